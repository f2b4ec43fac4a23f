"""Models of well-known shapes with random weights: speed does not depend on what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from engine.models.config import ModelConfig
from engine.quantized.grouped import GroupedWeight


def _qwen3(name: str, tied: bool, **sizes: int) -> ModelConfig:
    return ModelConfig(
        architecture="Qwen3ForCausalLM",
        name=name,
        vocab_size=151_936,
        head_dim=128,
        num_kv_heads=8,
        context_length=40_960,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        tie_word_embeddings=tied,
        qk_norm=True,
        **sizes,
    )


def _llama(name: str, theta: float, **sizes: int) -> ModelConfig:
    return ModelConfig(
        architecture="LlamaForCausalLM",
        name=name,
        rms_norm_eps=1e-5,
        rope_theta=theta,
        tie_word_embeddings=True,
        **sizes,
    )


SHAPES: Mapping[str, ModelConfig] = MappingProxyType(
    {
        "qwen3-0.6b": _qwen3(
            "random Qwen3-0.6B",
            tied=True,
            hidden_size=1024,
            intermediate_size=3072,
            num_layers=28,
            num_heads=16,
        ),
        "qwen3-8b": _qwen3(
            "random Qwen3-8B",
            tied=False,
            hidden_size=4096,
            intermediate_size=12_288,
            num_layers=36,
            num_heads=32,
        ),
        "smollm2-135m": _llama(
            "random SmolLM2-135M",
            theta=1e5,
            vocab_size=49_152,
            hidden_size=576,
            intermediate_size=1536,
            num_layers=30,
            num_heads=9,
            num_kv_heads=3,
            head_dim=64,
            context_length=8192,
        ),
        # For trying the benchmarks. The vocabulary holds the token ids of W1, up to 10,000.
        "tiny": _llama(
            "random tiny",
            theta=1e4,
            vocab_size=10_240,
            hidden_size=64,
            intermediate_size=128,
            num_layers=2,
            num_heads=4,
            num_kv_heads=2,
            head_dim=16,
            context_length=40_960,
        ),
    }
)


FOUR_BITS = "-4bit"
"""After a shape's name: its matrices are quantised."""
_GROUP = 32
_DEVIATION_OF_CODES = 4.6


def shape_of(name: str) -> ModelConfig:
    """The shape ``random:NAME`` asks for, also with ``FOUR_BITS`` after it.

    Raises:
        ValueError: there is no such shape.
    """
    shape = SHAPES.get(name.removesuffix(FOUR_BITS))
    if shape is None:
        raise ValueError(f"no random model {name!r}; there are: {', '.join(SHAPES)}")
    return shape


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every weight's shape under its Hugging Face name."""
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    query, kv = config.num_heads * dim, config.num_kv_heads * dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, query),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    if config.qk_norm:
        layer |= {"self_attn.q_norm": (dim,), "self_attn.k_norm": (dim,)}
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    for index in range(config.num_layers):
        shapes |= {f"model.layers.{index}.{name}.weight": size for name, size in layer.items()}
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def num_parameters(config: ModelConfig) -> int:
    """Number of weights; a tied output layer counts once."""
    return sum(torch.Size(shape).numel() for shape in weight_shapes(config).values())


def random_weights(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 0,
    four_bits: bool = False,
) -> Iterator[tuple[str, Tensor | GroupedWeight]]:
    """Names and tensors, made one at a time where they are used; matrices of ``four_bits``.

    Products keep the size of what goes in, and the two that add to the residual stream are smaller
    the more layers there are, so that activations stay near 1 and logits finite at any depth.
    """
    generator = torch.Generator(device).manual_seed(seed)
    depth = (2 * config.num_layers) ** -0.5
    for name, shape in weight_shapes(config).items():
        if len(shape) == 1:
            weight = torch.empty(shape, dtype=dtype, device=device)
            yield name, weight.normal_(1.0, 0.1, generator=generator)
            continue
        scale = shape[1] ** -0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            scale *= depth
        if four_bits:
            yield name, _four_bits(shape, scale, generator)
        else:
            weight = torch.empty(shape, dtype=dtype, device=device)
            yield name, weight.normal_(0.0, scale, generator=generator)


def _four_bits(shape: tuple[int, ...], scale: float, generator: torch.Generator) -> GroupedWeight:
    """Codes that are all as likely, of values as large as ``scale``."""
    rows, columns = shape
    device = generator.device
    codes = torch.empty((rows, columns // 2), dtype=torch.uint8, device=device)
    codes.random_(0, 256, generator=generator)
    # Between 0.5 and 1.5 times what gives the sixteen codes this deviation.
    spread = torch.rand((rows, columns // _GROUP), device=device, generator=generator) + 0.5
    step = (spread * scale / _DEVIATION_OF_CODES).half()
    # Any order of random codes is as good as another.
    return GroupedWeight(codes, step, -7.5 * step, 4, _GROUP, woven=device.type == "cuda")
