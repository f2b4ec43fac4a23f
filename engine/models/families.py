"""Model families: which architectures the decoder runs, and what their weights are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from engine.api.errors import UnsupportedModelError
from engine.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Family:
    """Names of one family's weights in Hugging Face's spelling; ``{}`` is the layer's index.

    ``qkv`` and ``gate_up`` list the parts that are stacked into one product. The biases are there
    where ``ModelConfig.qkv_bias`` says so; ``output_bias`` is empty in a family that has none.
    """

    embedding: str = "model.embed_tokens.weight"
    final_norm: str = "model.norm.weight"
    lm_head: str = "lm_head.weight"
    attention_norm: str = "model.layers.{}.input_layernorm.weight"
    qkv: tuple[str, ...] = (
        "model.layers.{}.self_attn.q_proj.weight",
        "model.layers.{}.self_attn.k_proj.weight",
        "model.layers.{}.self_attn.v_proj.weight",
    )
    qkv_bias: tuple[str, ...] = (
        "model.layers.{}.self_attn.q_proj.bias",
        "model.layers.{}.self_attn.k_proj.bias",
        "model.layers.{}.self_attn.v_proj.bias",
    )
    output: str = "model.layers.{}.self_attn.o_proj.weight"
    output_bias: str = "model.layers.{}.self_attn.o_proj.bias"
    mlp_norm: str = "model.layers.{}.post_attention_layernorm.weight"
    gate_up: tuple[str, ...] = (
        "model.layers.{}.mlp.gate_proj.weight",
        "model.layers.{}.mlp.up_proj.weight",
    )
    down: str = "model.layers.{}.mlp.down_proj.weight"
    ignored_suffixes: tuple[str, ...] = ("rotary_emb.inv_freq",)


FAMILIES: Mapping[str, Family] = MappingProxyType({"LlamaForCausalLM": Family()})


def family_of(config: ModelConfig) -> Family:
    """The family of a model.

    Raises:
        UnsupportedModelError: the architecture, or one of its features, is unknown to the decoder.
    """
    family = FAMILIES.get(config.architecture)
    if family is None:
        raise UnsupportedModelError(
            f"The architecture {config.architecture!r} is not supported; "
            f"supported: {', '.join(sorted(FAMILIES))}.",
            architecture=config.architecture,
        )
    rope_kind = str(dict(config.rope_scaling).get("rope_type", "default"))
    features = {
        "rope_scaling": config.rope_scaling and rope_kind != "default",
        "qk_norm": config.qk_norm,
        "sliding_window": config.sliding_window is not None,
    }
    for feature, present in features.items():
        if present:
            raise UnsupportedModelError(
                f"{config.name}: {feature} is not supported for {config.architecture}.",
                architecture=config.architecture,
                feature=feature,
            )
    return family
