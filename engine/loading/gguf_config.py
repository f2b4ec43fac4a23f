"""A GGUF file's metadata as a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from engine.api.errors import ModelFileError, UnsupportedModelError

ARCHITECTURES = ("llama",)
"""GGUF architectures that can be read. Mistral's files call themselves llama too."""


def hf_config(metadata: Mapping[str, Any], tensor_names: Collection[str]) -> dict[str, Any]:
    """config.json of the model in a GGUF file.

    Raises:
        UnsupportedModelError: an architecture or variant that we do not know.
        ModelFileError: an entry is missing.
    """
    architecture = str(metadata.get("general.architecture", ""))
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"The model's architecture is {architecture or 'not named'}; "
            f"known: {', '.join(ARCHITECTURES)}.",
            architecture=architecture,
        )
    values = _Values(metadata, architecture)
    hidden = values.integer("embedding_length")
    heads = values.integer("attention.head_count")
    head_dim = values.integer("attention.key_length", hidden // max(heads, 1))
    _require_plain(values, head_dim, tensor_names)
    vocabulary = len(metadata.get("tokenizer.ggml.tokens", []))
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


def num_heads(config: Mapping[str, Any], tensor_name: str) -> int:
    """How many heads the rows of a query or key weight hold."""
    key = "num_attention_heads" if ".q_proj." in tensor_name else "num_key_value_heads"
    return int(config[key])


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
    """Refuses variants whose numbers would come out wrong."""
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
