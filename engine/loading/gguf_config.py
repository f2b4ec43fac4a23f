"""A GGUF file's metadata as a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from engine.api.errors import ModelFileError, UnsupportedModelError

ARCHITECTURES = ("llama",)
"""GGUF architectures that can be read. Mistral's files call themselves llama too."""

TOP_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""GGUF's names and Hugging Face's."""

_MAX_LAYERS = 1024


def hf_config(metadata: Mapping[str, Any], tensor_names: Collection[str]) -> dict[str, Any]:
    """config.json of the model in a GGUF file.

    Raises:
        UnsupportedModelError: an architecture or variant that we do not know.
        ModelFileError: an entry is missing.
    """
    values = _Values(metadata, _known_architecture(metadata))
    hidden = values.integer("embedding_length")
    heads = values.integer("attention.head_count")
    head_dim = values.integer("attention.key_length", hidden // max(heads, 1))
    _require_plain(values, head_dim, tensor_names)
    tokens = metadata.get("tokenizer.ggml.tokens")
    vocabulary = len(tokens) if isinstance(tokens, list) else 0
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": values.integer("vocab_size", vocabulary),
        "hidden_size": hidden,
        "intermediate_size": values.integer("feed_forward_length"),
        "num_hidden_layers": values.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": values.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": values.integer("context_length"),
        "rms_norm_eps": values.real("attention.layer_norm_rms_epsilon"),
        "rope_theta": values.real("rope.freq_base", 10000.0),
        "tie_word_embeddings": "output.weight" not in tensor_names,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32",
    }


def _known_architecture(metadata: Mapping[str, Any]) -> str:
    architecture = str(metadata.get("general.architecture", ""))
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"The model's architecture is {architecture or 'not named'}; "
            f"known: {', '.join(ARCHITECTURES)}.",
            architecture=architecture,
        )
    return architecture


def tensor_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor that a model of this config.json has, rows first."""
    hidden, feed_forward = config["hidden_size"], config["intermediate_size"]
    query_rows = config["num_attention_heads"] * config["head_dim"]
    key_rows = config["num_key_value_heads"] * config["head_dim"]
    embedding = (config["vocab_size"], hidden)
    layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (query_rows, hidden),
        "self_attn.k_proj": (key_rows, hidden),
        "self_attn.v_proj": (key_rows, hidden),
        "self_attn.o_proj": (hidden, query_rows),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (feed_forward, hidden),
        "mlp.up_proj": (feed_forward, hidden),
        "mlp.down_proj": (hidden, feed_forward),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = embedding
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


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


def _require_plain(values: _Values, head_dim: int, tensor_names: Collection[str]) -> None:
    """Refuses variants whose numbers would come out wrong, and sizes that make no sense."""
    layers = values.integer("block_count")
    if layers > _MAX_LAYERS or head_dim % 2:
        raise ModelFileError(
            f"The file gives {layers:,} layers and heads of {head_dim}: that makes no sense."
        )
    variants = {
        "a mixture of experts": bool(values.get("expert_count")),
        "scaled rotation": "rope_freqs.weight" in tensor_names
        or values.get("rope.scaling.type") not in (None, "none"),
        "rotation of a part of each head": values.integer("rope.dimension_count", head_dim)
        != head_dim,
        "sliding-window attention": bool(values.get("attention.sliding_window")),
    }
    for variant, present in variants.items():
        if present:
            raise UnsupportedModelError(
                f"The model uses {variant}, which is not supported for GGUF files yet.",
                variant=variant,
            )
