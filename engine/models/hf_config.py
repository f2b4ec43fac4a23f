"""Reads a Hugging Face config.json into a ModelConfig. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.api.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from engine.models.config import ModelConfig

SUPPORTED_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3")
_MAX_LAYERS = 1024
_MAX_SIZE = 1 << 24


def read_config(folder: Path) -> ModelConfig:
    """The shape of the model in ``folder``, with all end tokens that its two config files name.

    Raises:
        ModelNotFoundError: no config.json.
        ModelFileError: config.json or generation_config.json is damaged.
        UnsupportedModelError: an architecture or variant that we do not know.
    """
    values = read_json(folder / "config.json")
    if values is None:
        raise ModelNotFoundError(f"There is no config.json in {folder}.", path=str(folder))
    generation = read_json(folder / "generation_config.json") or {}
    name = folder.name
    if folder.parent.name == "snapshots":
        # A hub's own cache: models--owner--name/snapshots/revision.
        name = folder.parent.parent.name.removeprefix("models--").replace("--", "/")
    return config_from_hf(values, generation, default_name=name)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if there is no such file.

    Raises:
        ModelFileError: not a JSON object.
    """
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path.name} is damaged: {error}.", path=str(path)) from error
    if not isinstance(values, dict):
        raise ModelFileError(f"{path.name} is damaged: it holds no object.", path=str(path))
    return values


def config_from_hf(
    values: Mapping[str, Any], generation: Mapping[str, Any] | None = None, default_name: str = ""
) -> ModelConfig:
    """The shape that a config.json describes.

    Raises:
        ModelFileError: an entry is missing or out of range.
        UnsupportedModelError: an architecture or variant that we do not know.
    """
    architecture = _known_architecture(values)
    _require_plain(values)
    heads = _size(values, "num_attention_heads")
    kv_heads = _size(values, "num_key_value_heads", heads)
    hidden = _size(values, "hidden_size")
    if heads % kv_heads or hidden < heads:
        raise ModelFileError(
            f"config.json gives {heads} heads, {kv_heads} key-value heads, width {hidden}: "
            "these do not fit together.",
            heads=heads,
            kv_heads=kv_heads,
        )
    theta, scaling = _rope(values)
    return ModelConfig(
        architecture=architecture,
        name=str(values.get("name") or values.get("_name_or_path") or default_name),
        vocab_size=_size(values, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_size(values, "intermediate_size"),
        num_layers=_size(values, "num_hidden_layers", limit=_MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=_size(values, "head_dim", hidden // heads),
        context_length=_size(values, "max_position_embeddings"),
        rms_norm_eps=_real(values, "rms_norm_eps", 1e-6),
        rope_theta=theta,
        tie_word_embeddings=bool(values.get("tie_word_embeddings", False)),
        rope_scaling=scaling,
        eos_token_ids=token_ids(values, generation or {}),
        bos_token_id=min(token_ids(values, key="bos_token_id"), default=None),
    )


def _known_architecture(values: Mapping[str, Any]) -> str:
    names = values.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    if architecture not in SUPPORTED_ARCHITECTURES:
        raise UnsupportedModelError(
            f"The model's architecture is {architecture or 'not named'}; "
            f"known: {', '.join(SUPPORTED_ARCHITECTURES)}.",
            architecture=architecture,
        )
    return architecture


def token_ids(*sources: Mapping[str, Any], key: str = "eos_token_id") -> tuple[int, ...]:
    """All ids under ``key`` in several files, each a number, a list of numbers or absent."""
    found: set[int] = set()
    for values in sources:
        value = values.get(key)
        ids = value if isinstance(value, list) else [value]
        found.update(token_id for token_id in ids if isinstance(token_id, int))
    return tuple(sorted(found))


def _size(
    values: Mapping[str, Any], key: str, default: int | None = None, limit: int = _MAX_SIZE
) -> int:
    value = values.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise ModelFileError(f"config.json gives {key} = {value!r}; 1 to {limit:,} makes sense.")
    return value


def _real(values: Mapping[str, Any], key: str, default: float) -> float:
    value = values.get(key)
    value = default if value is None else value
    if not isinstance(value, int | float) or not value > 0.0:
        raise ModelFileError(f"config.json gives {key} = {value!r}; a number above 0 makes sense.")
    return float(value)


def _require_plain(values: Mapping[str, Any]) -> None:
    """Refuses variants whose numbers would come out wrong."""
    activation = values.get("hidden_act", "silu")
    variants = {
        f"the activation {activation}": activation not in ("silu", "swish"),
        "biases in its attention": bool(values.get("attention_bias")),
        "biases in its feed-forward layers": bool(values.get("mlp_bias")),
        "sliding-window attention": values.get("sliding_window") is not None,
        "quantised weights": values.get("quantization_config") is not None,
    }
    for variant, present in variants.items():
        if present:
            raise UnsupportedModelError(
                f"The model uses {variant}, which is not supported yet.", variant=variant
            )


def _rope(values: Mapping[str, Any]) -> tuple[float, tuple[tuple[str, float | int | str], ...]]:
    """Base and scaling. Newer files keep both in rope_parameters, older ones apart."""
    parameters = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(parameters, dict):
        raise ModelFileError(f"config.json gives {parameters!r} for the rotary embedding.")
    theta = _real({**values, **parameters}, "rope_theta", 10000.0)
    parameters = {key: value for key, value in parameters.items() if key != "rope_theta"}
    kind = parameters.pop("rope_type", None) or parameters.pop("type", None) or "default"
    parameters.pop("type", None)
    if kind not in SUPPORTED_ROPE_TYPES:
        raise UnsupportedModelError(
            f"The model scales its rotary embedding as {kind}; "
            f"known: {', '.join(SUPPORTED_ROPE_TYPES)}.",
            rope_type=str(kind),
        )
    if kind == "default":
        return theta, ()
    return theta, (("rope_type", kind), *sorted(parameters.items()))
