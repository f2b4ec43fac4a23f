"""What llama.cpp calls the tensors of a model, and what Hugging Face does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.gguf_config import ROPE_TENSORS
from engine.loading.gguf_header import GgufTensor
from engine.loading.plain_text import plain_text
from engine.models.config import ModelConfig
from engine.models.families import FAMILIES

_IN_PAIRS = frozenset({"llama", "smollm3"})
"""Architectures whose query and key rows llama.cpp stores for rotation of neighbouring pairs."""

_QKV, _GATE_UP = ("attn_q", "attn_k", "attn_v"), ("ffn_gate", "ffn_up")
_STACKED: Mapping[tuple[str, ...], str] = MappingProxyType({_QKV: "attn_qkv", _GATE_UP: "ffn_up"})
"""What they are called in families that keep them stacked."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor goes. ``name``: Hugging Face's; ``shape``: rows first.

    ``in_pairs``: rows of a head are stored for rotation of neighbouring pairs and have to be
    brought back to the order of two halves. ``offset``: what was added to it for llama.cpp.
    """

    name: str
    shape: tuple[int, ...]
    in_pairs: bool = False
    offset: float = 0.0


def places(config: ModelConfig, architecture: str) -> dict[str, Place]:
    """Every tensor of a model in a GGUF file, by its name there.

    Args:
        config: the model's shape.
        architecture: GGUF's name of it.
    """
    family, hidden = FAMILIES[config.architecture], config.hidden_size
    embedding, offset = (config.vocab_size, hidden), family.norm_offset
    found = {
        "token_embd.weight": Place(f"{family.embedding}.weight", embedding),
        "output_norm.weight": Place(f"{family.final_norm}.weight", (hidden,), offset=offset),
    }
    if not config.tie_word_embeddings:
        found["output.weight"] = Place(f"{family.lm_head}.weight", embedding)
    for index in range(config.num_layers):
        parts = [*_products(config, architecture in _IN_PAIRS), *_norms(config)]
        for name, place in parts:
            named = Place(place.name.format(index), place.shape, place.in_pairs, place.offset)
            found[f"blk.{index}.{name}"] = named
    return found


def placed(
    tensors: Iterable[GgufTensor], config: ModelConfig, architecture: str
) -> tuple[tuple[Place, GgufTensor], ...]:
    """A file's tensors and where they go, in the file's order; without the factors of rotation.

    Raises:
        UnsupportedModelError: a tensor that a model of this architecture does not have.
        ModelFileError: a tensor is missing, or its shape is not what the metadata say.
    """
    expected = places(config, architecture)
    found = []
    for tensor in tensors:
        if tensor.name in ROPE_TENSORS:
            continue
        place = expected.get(tensor.name)
        if place is None:
            raise UnsupportedModelError(
                f"The model has a tensor {plain_text(tensor.name)}, which a model of the "
                f"architecture {architecture} with these metadata does not have.",
                tensor=plain_text(tensor.name),
            )
        if tensor.shape != place.shape:
            raise ModelFileError(
                f"Tensor {plain_text(tensor.name)} has the shape {tensor.shape}; the file's "
                f"metadata ask for {place.shape}."
            )
        found.append((place, tensor))
    wanted = {place.name for place in expected.values()}
    missing = sorted(wanted - {place.name for place, _ in found})
    if missing:
        raise ModelFileError(
            f"The model lacks {len(missing)} of its {len(expected)} tensors, {missing[0]} first.",
            missing=len(missing),
        )
    return tuple(found)


def _products(config: ModelConfig, in_pairs: bool) -> Iterator[tuple[str, Place]]:
    family = FAMILIES[config.architecture]
    hidden, inner = config.hidden_size, config.intermediate_size
    query_rows = config.num_heads * config.head_dim
    key_rows = config.num_kv_heads * config.head_dim
    qkv_rows = (query_rows, key_rows, key_rows)
    for names, targets, rows, columns, bias in (
        (_QKV, family.qkv, qkv_rows, hidden, config.qkv_bias),
        (("attn_output",), (family.output,), (hidden,), query_rows, config.output_bias),
        (_GATE_UP, family.gate_up, (inner, inner), hidden, config.mlp_bias),
        (("ffn_down",), (family.down,), (hidden,), inner, config.mlp_bias),
    ):
        if len(targets) < len(names):
            names, rows = (_STACKED[names],), (sum(rows),)
        for name, target, count in zip(names, targets, rows, strict=True):
            turned = in_pairs and name in ("attn_q", "attn_k")
            yield f"{name}.weight", Place(f"{target}.weight", (count, columns), turned)
            if bias:
                yield f"{name}.bias", Place(f"{target}.bias", (count,), turned)


def _norms(config: ModelConfig) -> Iterator[tuple[str, Place]]:
    family = FAMILIES[config.architecture]
    norms = [
        ("attn_norm", family.attention_norm, config.hidden_size),
        ("ffn_norm", family.mlp_norm, config.hidden_size),
    ]
    if config.qk_norm:
        norms.append(("attn_q_norm", family.query_norm, config.head_dim))
        norms.append(("attn_k_norm", family.key_norm, config.head_dim))
    if config.post_norms:
        norms.append(("post_attention_norm", family.attention_post_norm, config.hidden_size))
        norms.append(("post_ffw_norm", family.mlp_post_norm, config.hidden_size))
    for name, target, size in norms:
        yield f"{name}.weight", Place(f"{target}.weight", (size,), offset=family.norm_offset)
