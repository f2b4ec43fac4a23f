"""Reads a Hugging Face config.json into a ModelConfig. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.api.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from engine.models.config import ModelConfig
from engine.models.families import FAMILIES, Family
from engine.models.hf_refusals import require_known, unsupported
from engine.models.hf_rope import read_rope
from engine.models.hf_windows import read_windows

_ACTIVATIONS: Mapping[str, str] = MappingProxyType(
    {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
)
_BIASES: Mapping[str, str] = MappingProxyType(
    {
        "attention_bias": "biases in its attention",
        "mlp_bias": "biases in its feed-forward layers",
    }
)
MAX_JSON_BYTES = 16 << 20
"""The largest are tokenizer_config.json with thousands of added tokens: some megabytes."""

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
        ModelFileError: not a JSON object, or far too large for one.
    """
    if not path.is_file():
        return None
    size = path.stat().st_size
    if size > MAX_JSON_BYTES:
        raise ModelFileError(
            f"{path.name} is damaged: it has {size:,} bytes, {MAX_JSON_BYTES:,} are the limit.",
            path=str(path),
        )
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
    architecture, family = _known_family(values)
    values = {**dict(family.defaults), **values}
    biases = {key: what for key, what in _BIASES.items() if key not in _read(family)}
    require_known(values, biases, family.own_entries)
    heads = _size(values, "num_attention_heads")
    kv_heads = _size(values, "num_key_value_heads", heads)
    hidden = _size(values, "hidden_size")
    num_layers = _size(values, "num_hidden_layers", limit=_MAX_LAYERS)
    head_dim = _size(values, "head_dim", hidden // heads or 1)
    if heads % kv_heads or hidden < heads or head_dim % 2:
        raise ModelFileError(
            f"config.json gives {heads} heads of {head_dim}, {kv_heads} key-value heads, width "
            f"{hidden}: these do not fit together.",
            heads=heads,
            kv_heads=kv_heads,
        )
    rope = read_rope(values, family, head_dim, num_layers)
    return ModelConfig(
        architecture=architecture,
        # Not `_name_or_path`: of a fine-tune that is its base, or a path of whoever trained it.
        name=str(values.get("name") or default_name),
        vocab_size=_size(values, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_size(values, "intermediate_size"),
        num_layers=num_layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        context_length=_size(values, "max_position_embeddings"),
        rms_norm_eps=_real(values, "rms_norm_eps", 1e-6),
        rope_theta=rope.theta,
        tie_word_embeddings=bool(values.get("tie_word_embeddings", False)),
        rope_scaling=rope.scaling,
        qkv_bias=_flag(family.qkv_bias, values),
        output_bias=_flag(family.output_bias, values),
        mlp_bias=_flag(family.mlp_bias, values),
        qk_norm=family.qk_norm,
        layer_windows=read_windows(values, family, num_layers, rope.unrotated_layers),
        local_rope_theta=rope.local_theta,
        rotary_dim=rope.rotary_dim,
        unrotated_layers=rope.unrotated_layers,
        activation=_activation(values, family),
        norm_offset=family.norm_offset,
        post_norms=family.post_norms,
        embedding_scale=hidden**0.5 if family.scaled_embeddings else 1.0,
        exceeds_float16=family.exceeds_float16,
        query_scale=_query_scale(values, family),
        eos_token_ids=token_ids(values, generation or {}),
        bos_token_id=min(token_ids(values, key="bos_token_id"), default=None),
    )


def _known_family(values: Mapping[str, Any]) -> tuple[str, Family]:
    names = values.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    if architecture not in FAMILIES:
        raise UnsupportedModelError(
            f"The model's architecture is {architecture or 'not named'}; "
            f"known: {', '.join(FAMILIES)}.",
            architecture=architecture,
        )
    return architecture, FAMILIES[architecture]


def _read(family: Family) -> tuple[bool | str, ...]:
    """Entries about biases that have their effect, or none, in this family."""
    return (family.qkv_bias, family.output_bias, family.mlp_bias, *family.ignored_entries)


def _flag(given: bool | str, values: Mapping[str, Any]) -> bool:
    return bool(values.get(given, False)) if isinstance(given, str) else given


def _activation(values: Mapping[str, Any], family: Family) -> str:
    name = values.get(family.activation_key, "silu")
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise unsupported(f"the activation {name}", family.activation_key)
    return _ACTIVATIONS[name]


def _query_scale(values: Mapping[str, Any], family: Family) -> float | None:
    key = "query_pre_attn_scalar"
    if key in dict(family.defaults):
        return _real(values, key, 1.0)
    if values.get(key) is not None:
        raise unsupported("another factor on attention scores", key)
    return None


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
