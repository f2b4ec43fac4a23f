"""Writes a model of any family as a GGUF file, the way llama.cpp's converter does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
from gguf.constants import MODEL_ARCH_NAMES
from gguf.tensor_mapping import get_tensor_name_map

from tests.helpers.tiny_gguf import TinyGguf, add_entry
from tests.helpers.tiny_model import TinyModel

VOCAB_SIZE = len(TinyGguf().tokens())


def write_gguf(
    model: TinyModel,
    architecture: str,
    path: Path,
    tokenizer: Mapping[str, Any] | None = None,
    *,
    rope_factors: Mapping[str, list[float]] = MappingProxyType({}),
    **extra: Any,
) -> Path:
    """A file of ``model``, whose vocabulary has ``VOCAB_SIZE`` tokens, or those of ``tokenizer``.

    Names come from the gguf package. ``rope_factors``: tensors of the rotary embedding.
    ``extra``: further metadata of the architecture, with ``__`` for a dot.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    sizes = {
        "block_count": config.num_layers,
        "context_length": config.context_length,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": config.rope_theta,
        "vocab_size": config.vocab_size,
        **{key.replace("__", "."): value for key, value in extra.items()},
    }
    entries = {f"{architecture}.{key}": value for key, value in sizes.items()}
    for key, value in {**entries, **(tokenizer or TinyGguf().tokenizer_metadata())}.items():
        add_entry(writer, key, value)
    kind = next(arch for arch, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(kind, config.num_layers)
    for name, tensor in model.weights():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        writer.add_tensor(found, _converted(name, tensor.numpy(), model, architecture))
    for name, factors in rope_factors.items():
        writer.add_tensor(name, np.array(factors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _converted(name: str, values: Any, model: TinyModel, architecture: str) -> Any:
    config = model.config
    if architecture == "gemma3" and name.endswith("norm.weight"):
        return values + np.float32(1.0)
    if architecture in ("llama", "smollm3") and ("q_proj" in name or "k_proj" in name):
        halves = values.reshape(-1, 2, config.head_dim // 2, *values.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
    return np.ascontiguousarray(values)
