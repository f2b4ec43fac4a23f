"""Entries of a config.json that change what a model computes, and that the decoder does not do.

Everything else in a config.json is either read or makes no difference to an answer: dropout,
initialisation, ids of tokens, how a library stores or runs the model. Code of its own (auto_map) is
never run: an architecture that is known is computed as it is known. No torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from engine.api.errors import UnsupportedModelError

_NO = (None, False, 0, 0.0)
_ONE = (None, 1)

_REFUSED: Mapping[str, tuple[str, tuple[object, ...]]] = MappingProxyType(
    {
        "quantization_config": ("quantised weights", (None,)),
        "attn_logit_softcapping": ("a cap on attention scores", _NO),
        "final_logit_softcapping": ("a cap on logits", _NO),
        "logits_soft_cap": ("a cap on logits", _NO),
        "num_experts": ("a mixture of experts", _NO),
        "num_local_experts": ("a mixture of experts", _NO),
        "n_routed_experts": ("a mixture of experts", _NO),
        "moe_num_experts": ("a mixture of experts", _NO),
        "logit_scale": ("a factor on logits", _ONE),
        "logits_scaling": ("a factor on logits", _ONE),
        "lm_head_multiplier": ("a factor on logits", _ONE),
        "embedding_multiplier": ("a factor on embeddings", _ONE),
        "scale_emb": ("a factor on embeddings", _ONE),
        "residual_multiplier": ("a factor on the residual", _ONE),
        "scale_depth": ("a factor on the residual", (None,)),
        "attention_multiplier": ("another factor on attention scores", (None,)),
        "use_bidirectional_attention": ("attention to later tokens", _NO),
        "is_encoder_decoder": ("an encoder", _NO),
        "add_cross_attention": ("attention to an encoder", _NO),
        "partial_rotary_factor": ("rotation of a part of each head", _ONE),
        "rotary_pct": ("rotation of a part of each head", _ONE),
        "rope_interleaved": ("rotation of neighbouring pairs", _NO),
        "rope_interleave": ("rotation of neighbouring pairs", _NO),
        "no_rope_layers": ("layers without rotation", (None, [])),
        "no_rope_layer_interval": ("layers without rotation", _NO),
        "full_attn_mod": ("attention that differs between layers", _ONE),
        "interpolate_factor": ("another mixture of scaled rotation", _ONE),
        "lm_head_bias": ("biases in its output layer", _NO),
        "use_mrope": ("rotation by several positions", _NO),
        "alibi": ("attention biased by distance", _NO),
        "use_alibi": ("attention biased by distance", _NO),
        "clip_qkv": ("clipped queries, keys and values", _NO),
        "attention_chunk_size": ("attention by chunks", _NO),
        "attn_temperature_tuning": ("scores scaled by position", _NO),
        "llama_4_scaling": ("scores scaled by position", (None,)),
        "attention_sink_size": ("attention sinks", _NO),
        "use_parallel_residual": ("attention and feed-forward side by side", _NO),
        "parallel_attn": ("attention and feed-forward side by side", _NO),
        "cross_layer_attention": ("keys and values shared by layers", _NO),
        "num_kv_shared_layers": ("keys and values shared by layers", _NO),
    }
)


def require_known(
    values: Mapping[str, Any],
    family_differences: Mapping[str, str],
    own_entries: Collection[str] = (),
) -> None:
    """Refuses a config.json with an entry whose effect is not computed.

    Args:
        values: config.json.
        family_differences: further entries that must be off, and what they mean.
        own_entries: those that are computed in this family only.

    Raises:
        UnsupportedModelError: the message names the entry.
    """
    further = {key: (meaning, _NO) for key, meaning in family_differences.items()}
    for key, (meaning, neutral) in {**_REFUSED, **further}.items():
        if key not in own_entries and values.get(key) not in neutral:
            raise unsupported(meaning, key, values[key])


def unsupported(what: str, key: str, value: object = None) -> UnsupportedModelError:
    """The error for a model that uses ``what``, as the entry ``key`` of its config.json says."""
    entry = key if value is None else f"{key} = {_short(value)}"
    return UnsupportedModelError(
        f"The model uses {what} ({entry}), which is not supported yet.",
        action="Choose another model.",
        variant=key,
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
