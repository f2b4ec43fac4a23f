"""What llama.cpp calls the tensors of a model, and what Hugging Face does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.models.config import ModelConfig
from engine.models.families import FAMILIES


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
        parts = [*_products(config, architecture == "llama"), *_norms(config)]
        for name, place in parts:
            named = Place(place.name.format(index), place.shape, place.in_pairs, place.offset)
            found[f"blk.{index}.{name}"] = named
    return found


def _products(config: ModelConfig, in_pairs: bool) -> Iterator[tuple[str, Place]]:
    family = FAMILIES[config.architecture]
    hidden, inner = config.hidden_size, config.intermediate_size
    query_rows = config.num_heads * config.head_dim
    key_rows = config.num_kv_heads * config.head_dim
    query, key, value = family.qkv
    gate, up = family.gate_up
    for name, target, rows, columns, bias in (
        ("attn_q", query, query_rows, hidden, config.qkv_bias),
        ("attn_k", key, key_rows, hidden, config.qkv_bias),
        ("attn_v", value, key_rows, hidden, config.qkv_bias),
        ("attn_output", family.output, hidden, query_rows, config.output_bias),
        ("ffn_gate", gate, inner, hidden, config.mlp_bias),
        ("ffn_up", up, inner, hidden, config.mlp_bias),
        ("ffn_down", family.down, hidden, inner, config.mlp_bias),
    ):
        turned = in_pairs and name in ("attn_q", "attn_k")
        yield f"{name}.weight", Place(f"{target}.weight", (rows, columns), turned)
        if bias:
            yield f"{name}.bias", Place(f"{target}.bias", (rows,), turned)


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
