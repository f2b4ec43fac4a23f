"""Model families: which architectures the decoder runs, how they differ, and what their weights are
called. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from engine.api.errors import UnsupportedModelError
from engine.models.config import ModelConfig

ACTIVATIONS = ("silu", "gelu_tanh")
ROPE_TYPES = ("default", "linear", "llama3", "yarn", "longrope", "divisors")

EVERY_LAYER, UPPER_LAYERS, FIVE_OF_SIX = "every layer", "upper layers", "five of six"
UNROTATED_LAYERS = "unrotated layers"
"""Which layers have a window where config.json does not list them: all; those from
``max_window_layers`` on if ``use_sliding_window``; all but each sixth; those without rotation if
``use_sliding_window``."""


@dataclass(frozen=True, slots=True)
class Family:
    """What a family adds to the plain decoder, and the names of its weights.

    Differences: ``qkv_bias``, ``output_bias``, ``mlp_bias`` are yes, no or the entry of config.json
    that says so. ``windows`` is empty in a family without sliding windows. ``local_rope_theta``:
    the usual base in layers with a window, 0 where all layers rotate alike. ``defaults``: what an
    absent entry of config.json means, where that is not the same in all families.
    ``ignored_entries`` have no effect in this one; ``own_entries`` have one here that no other
    family knows. ``rope_names``: other names of kinds of scaled rotation, and what they mean here.
    The others are as in ``ModelConfig``.

    Names are in Hugging Face's spelling; ``{}`` is the layer's index. ``qkv`` and ``gate_up`` list
    the parts that are stacked into one product, or name the one that holds them stacked.
    """

    qkv_bias: bool | str = False
    output_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False
    windows: str = ""
    local_rope_theta: float = 0.0
    activation_key: str = "hidden_act"
    norm_offset: float = 0.0
    post_norms: bool = False
    scaled_embeddings: bool = False
    exceeds_float16: bool = False
    defaults: tuple[tuple[str, Any], ...] = ()
    ignored_entries: tuple[str, ...] = ()
    own_entries: tuple[str, ...] = ()
    rope_names: tuple[tuple[str, str], ...] = ()

    embedding: str = "model.embed_tokens"
    final_norm: str = "model.norm"
    lm_head: str = "lm_head"
    attention_norm: str = "model.layers.{}.input_layernorm"
    qkv: tuple[str, ...] = (
        "model.layers.{}.self_attn.q_proj",
        "model.layers.{}.self_attn.k_proj",
        "model.layers.{}.self_attn.v_proj",
    )
    query_norm: str = "model.layers.{}.self_attn.q_norm"
    key_norm: str = "model.layers.{}.self_attn.k_norm"
    output: str = "model.layers.{}.self_attn.o_proj"
    attention_post_norm: str = ""
    mlp_norm: str = "model.layers.{}.post_attention_layernorm"
    gate_up: tuple[str, ...] = (
        "model.layers.{}.mlp.gate_proj",
        "model.layers.{}.mlp.up_proj",
    )
    down: str = "model.layers.{}.mlp.down_proj"
    mlp_post_norm: str = ""
    ignored_suffixes: tuple[str, ...] = ("rotary_emb.inv_freq",)


_QWEN_DEFAULTS = (
    ("num_key_value_heads", 32),
    ("sliding_window", 4096),
    ("max_window_layers", 28),
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "LlamaForCausalLM": Family(
            qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias"
        ),
        "MistralForCausalLM": Family(
            windows=EVERY_LAYER,
            defaults=(("sliding_window", 4096), ("num_key_value_heads", 8)),
        ),
        "Qwen2ForCausalLM": Family(
            qkv_bias=True,
            windows=UPPER_LAYERS,
            defaults=_QWEN_DEFAULTS,
            ignored_entries=("attention_bias",),
        ),
        "Qwen3ForCausalLM": Family(
            qkv_bias="attention_bias",
            output_bias="attention_bias",
            qk_norm=True,
            windows=UPPER_LAYERS,
            defaults=(*_QWEN_DEFAULTS, ("head_dim", 128)),
        ),
        "SmolLM3ForCausalLM": Family(
            qkv_bias="attention_bias",
            output_bias="attention_bias",
            mlp_bias="mlp_bias",
            windows=UNROTATED_LAYERS,
            defaults=(
                ("num_key_value_heads", 4),
                ("tie_word_embeddings", True),
                ("rope_theta", 2e6),
                ("no_rope_layer_interval", 4),
            ),
            own_entries=("no_rope_layers", "no_rope_layer_interval"),
        ),
        "Gemma3ForCausalLM": Family(
            qkv_bias="attention_bias",
            output_bias="attention_bias",
            qk_norm=True,
            windows=FIVE_OF_SIX,
            local_rope_theta=1e4,
            activation_key="hidden_activation",
            norm_offset=1.0,
            post_norms=True,
            scaled_embeddings=True,
            exceeds_float16=True,
            defaults=(
                ("num_key_value_heads", 4),
                ("head_dim", 256),
                ("hidden_activation", "gelu_pytorch_tanh"),
                ("tie_word_embeddings", True),
                ("rope_theta", 1e6),
                ("query_pre_attn_scalar", 256),
                ("sliding_window", 4096),
            ),
            attention_post_norm="model.layers.{}.post_attention_layernorm",
            mlp_norm="model.layers.{}.pre_feedforward_layernorm",
            mlp_post_norm="model.layers.{}.post_feedforward_layernorm",
        ),
        "Phi3ForCausalLM": Family(
            windows=EVERY_LAYER,
            defaults=(("rms_norm_eps", 1e-5), ("original_max_position_embeddings", 4096)),
            own_entries=("partial_rotary_factor",),
            rope_names=(("su", "longrope"), ("yarn", "longrope")),
            qkv=("model.layers.{}.self_attn.qkv_proj",),
            gate_up=("model.layers.{}.mlp.gate_up_proj",),
        ),
    }
)


def family_of(config: ModelConfig) -> Family:
    """The family of a model.

    Raises:
        UnsupportedModelError: the architecture, or one of its features, is unknown to the decoder.
    """
    family = FAMILIES.get(config.architecture)
    if family is None:
        raise UnsupportedModelError(
            f"The architecture {config.architecture!r} is not supported; "
            f"supported: {', '.join(FAMILIES)}.",
            architecture=config.architecture,
        )
    rope_type = str(dict(config.rope_scaling).get("rope_type", "default"))
    for feature, value, known in (
        ("rope_type", rope_type, ROPE_TYPES),
        ("activation", config.activation, ACTIVATIONS),
    ):
        if value not in known:
            raise UnsupportedModelError(
                f"{config.name}: the {feature} {value} is not supported; known: "
                f"{', '.join(known)}.",
                architecture=config.architecture,
                feature=feature,
            )
    return family
