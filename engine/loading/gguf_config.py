"""A GGUF file's metadata as a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from engine.api.errors import ModelFileError, UnsupportedModelError

ARCHITECTURES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "llama": ("LlamaForCausalLM", "llama"),
        "qwen2": ("Qwen2ForCausalLM", "qwen2"),
        "qwen3": ("Qwen3ForCausalLM", "qwen3"),
        "smollm3": ("SmolLM3ForCausalLM", "smollm3"),
        "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
        "phi3": ("Phi3ForCausalLM", "phi3"),
    }
)
"""GGUF architectures that can be read, with Hugging Face's class and model type. Mistral's files
call themselves llama too."""

DIVISORS_TENSOR = "rope_freqs.weight"
"""Divides the rotary frequencies one by one: how llama.cpp stores Llama 3's scaling."""

LONG_TENSOR, SHORT_TENSOR = "rope_factors_long.weight", "rope_factors_short.weight"
ROPE_TENSORS = (DIVISORS_TENSOR, LONG_TENSOR, SHORT_TENSOR)
"""Tensors that are numbers of the rotary embedding, not weights; the last two are LongRoPE's."""

_MAX_LAYERS = 1024
_GEMMA_27B_LAYERS = 62
# llama.cpp has no entry for it: every fourth layer of a SmolLM3 does not rotate.
_SMOLLM3_INTERVAL = 4
_PHI3 = "phi3"

_ATTENTION_FACTOR = "rope.scaling.attn_factor"
_ORIGINAL_LENGTH = "rope.scaling.original_context_length"

# What llama.cpp computes where these are there, and we do not; each with the value that is neutral.
_REFUSED: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "expert_count": ("a mixture of experts", 0),
        "attn_logit_softcapping": ("a cap on attention scores", 0),
        "final_logit_softcapping": ("a cap on logits", 0),
        "logit_scale": ("a factor on logits", 1),
        "embedding_scale": ("a factor on embeddings", 1),
        "residual_scale": ("a factor on the residual", 1),
        "attention.scale": ("another factor on attention scores", 0),
        "attention.clamp_kqv": ("clipped queries, keys and values", 0),
        "attention.max_alibi_bias": ("attention biased by distance", 0),
        "attention.temperature_scale": ("scores scaled by position", 0),
        "attention.shared_kv_layers": ("keys and values shared by layers", 0),
        _ATTENTION_FACTOR: ("another factor on scaled rotation", 1),
        "rope.scaling.yarn_attn_factor": ("another factor on scaled rotation", 1),
        "rope.scaling.yarn_ext_factor": ("another mixture of scaled rotation", 1),
        "rope.scaling.yarn_log_multiplier": ("another factor on scaled rotation", 0),
        "rope.dimension_sections": ("rotation by several positions", 0),
    }
)


def hf_config(
    metadata: Mapping[str, Any],
    tensor_names: Collection[str],
    rope_factors: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> dict[str, Any]:
    """config.json of the model in a GGUF file.

    Args:
        metadata: the file's.
        tensor_names: of all its tensors.
        rope_factors: what those of ``ROPE_TENSORS`` that it has hold, by name.

    Raises:
        UnsupportedModelError: an architecture or variant that we do not know.
        ModelFileError: an entry is missing or makes no sense.
    """
    architecture = _known_architecture(metadata)
    class_name, model_type = ARCHITECTURES[architecture]
    values = _Values(metadata, architecture)
    hidden = values.integer("embedding_length")
    heads = values.integer("attention.head_count")
    head_dim = values.integer("attention.key_length", hidden // max(heads, 1))
    _require_known(values, head_dim, architecture)
    tokens = metadata.get("tokenizer.ggml.tokens")
    vocabulary = len(tokens) if isinstance(tokens, list) else 0
    config = {
        "architectures": [class_name],
        "model_type": model_type,
        "vocab_size": values.integer("vocab_size", vocabulary),
        "hidden_size": hidden,
        "intermediate_size": values.integer("feed_forward_length"),
        "num_hidden_layers": values.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": values.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": values.integer("context_length"),
        "rms_norm_eps": values.real("attention.layer_norm_rms_epsilon"),
        "rope_theta": values.real("rope.freq_base", 1e6 if architecture == "gemma3" else 1e4),
        "tie_word_embeddings": "output.weight" not in tensor_names,
        "attention_bias": "blk.0.attn_q.bias" in tensor_names,
        "mlp_bias": "blk.0.ffn_up.bias" in tensor_names,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32",
    }
    scaling = _rope_scaling(values, rope_factors)
    if scaling:
        config["rope_scaling"] = scaling
    if architecture == "gemma3":
        return {**config, **_gemma_entries(values, hidden, heads, head_dim)}
    config["hidden_act"] = "silu"
    if architecture == _PHI3:
        return {**config, **_phi_entries(values, head_dim)}
    if architecture == "smollm3":
        config["no_rope_layer_interval"] = _SMOLLM3_INTERVAL
    return {**config, **_window_entries(values, architecture)}


def _known_architecture(metadata: Mapping[str, Any]) -> str:
    architecture = str(metadata.get("general.architecture", ""))
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"The model's architecture is {architecture or 'not named'}; "
            f"known: {', '.join(ARCHITECTURES)}.",
            architecture=architecture,
        )
    return architecture


class _Values:
    """The entries of one architecture."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self._metadata = metadata
        self._architecture = architecture

    def get(self, key: str) -> Any:
        return self._metadata.get(f"{self._architecture}.{key}")

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or value <= 0:
            raise self._missing(key, value)
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, float) or not value > 0.0:
            raise self._missing(key, value)
        # Stored in single precision: the shortest decimal that means the same number.
        return float(str(np.float32(value)))

    def _missing(self, key: str, value: object) -> ModelFileError:
        return ModelFileError(f"The file says {value!r} for {self._architecture}.{key}.", key=key)


def _require_known(values: _Values, head_dim: int, architecture: str) -> None:
    """Refuses variants whose numbers would come out wrong, and sizes that make no sense."""
    layers = values.integer("block_count")
    if layers > _MAX_LAYERS or head_dim % 2:
        raise ModelFileError(
            f"The file gives {layers:,} layers and heads of {head_dim}: that makes no sense."
        )
    is_phi = architecture == _PHI3
    for key, (variant, neutral) in _REFUSED.items():
        scales = is_phi and key == _ATTENTION_FACTOR
        if values.get(key) not in (None, neutral) and not scales:
            raise _unsupported(variant, key)
    for key in ("rope.dimension_count", "attention.value_length"):
        if is_phi and "rope" in key:
            continue
        if values.integer(key, head_dim) != head_dim:
            what = "rotation of a part of each head" if "rope" in key else "values of another size"
            raise _unsupported(what, key)
    if values.get("attention.causal") not in (None, True):
        raise _unsupported("attention to later tokens", "attention.causal")


def _rope_scaling(values: _Values, factors: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    if LONG_TENSOR in factors or SHORT_TENSOR in factors:
        return _longrope(values, factors)
    kind = values.get("rope.scaling.type") or "none"
    divisors = factors.get(DIVISORS_TENSOR)
    if divisors:
        if kind != "none":
            raise _unsupported(f"rotation scaled twice, by {kind} too", "rope.scaling.type")
        return {"rope_type": "divisors", "divisors": list(divisors)}
    if kind == "none":
        return {}
    if kind not in ("linear", "yarn"):
        raise _unsupported(f"rotation scaled as {kind}", "rope.scaling.type")
    scaling: dict[str, Any] = {"rope_type": kind, "factor": values.real("rope.scaling.factor")}
    if kind == "yarn":
        length = values.get(_ORIGINAL_LENGTH)
        if length is not None:
            scaling["original_max_position_embeddings"] = length
        for key in ("beta_fast", "beta_slow"):
            if values.get(f"rope.scaling.yarn_{key}") is not None:
                scaling[key] = values.real(f"rope.scaling.yarn_{key}")
    return scaling


def _longrope(values: _Values, factors: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    scaling: dict[str, Any] = {
        "rope_type": "longrope",
        # A list that is missing is named when config.json is read.
        **{
            key: list(factors[tensor])
            for key, tensor in (("short_factor", SHORT_TENSOR), ("long_factor", LONG_TENSOR))
            if tensor in factors
        },
    }
    if values.get(_ATTENTION_FACTOR) is not None:
        scaling["attention_factor"] = values.real(_ATTENTION_FACTOR)
    if values.get(_ORIGINAL_LENGTH) is not None:
        scaling["original_max_position_embeddings"] = values.integer(_ORIGINAL_LENGTH)
    return scaling


def _phi_entries(values: _Values, head_dim: int) -> dict[str, Any]:
    entries: dict[str, Any] = {
        # Where it is absent the length that it was trained with is the whole context.
        "original_max_position_embeddings": values.integer(
            _ORIGINAL_LENGTH, values.integer("context_length")
        )
    }
    if values.get("attention.sliding_window"):
        entries["sliding_window"] = values.integer("attention.sliding_window")
    rotated = values.integer("rope.dimension_count", head_dim)
    if rotated != head_dim:
        # Half of an element more, so that rounding down gives the same number again.
        entries["partial_rotary_factor"] = (rotated + 0.5) / head_dim
    return entries


def _window_entries(values: _Values, architecture: str) -> dict[str, Any]:
    window = values.get("attention.sliding_window")
    if not window:
        return {}
    if architecture != "llama":
        # The file does not say which layers have it.
        raise _unsupported("sliding-window attention", "attention.sliding_window")
    return {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": values.integer("attention.sliding_window"),
    }


def _gemma_entries(values: _Values, hidden: int, heads: int, head_dim: int) -> dict[str, Any]:
    entries: dict[str, Any] = {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": values.integer("attention.sliding_window"),
        "rope_local_base_freq": values.real("rope.freq_base_swa", 1e4),
        # Not in the file: only the largest model divides its scores by another number.
        "query_pre_attn_scalar": (
            hidden // heads if values.get("block_count") == _GEMMA_27B_LAYERS else head_dim
        ),
    }
    pattern = values.get("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        kinds = ("full_attention", "sliding_attention")
        entries["layer_types"] = [kinds[bool(slides)] for slides in pattern]
    elif pattern is not None:
        entries["sliding_window_pattern"] = values.integer("attention.sliding_window_pattern")
    return entries


def _unsupported(variant: str, key: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"The model uses {variant} ({key}), which is not supported for GGUF files yet.",
        variant=key,
    )
