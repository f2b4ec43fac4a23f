"""config.json of each family: read as transformers reads it, or refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.api.errors import EngineError
from engine.models.config import ModelConfig
from engine.models.families import FAMILIES
from engine.models.hf_config import config_from_hf
from engine.models.rotary import frequencies
from tests.helpers.config_entries import SIZES, config_of

# What a config.json of each family may hold besides sizes, and what makes no difference to answers.
WITHOUT_EFFECT = {
    "attention_dropout",
    "embd_pdrop",
    "resid_pdrop",
    "initializer_range",
    "pad_token_id",
    "pretraining_tp",
    "use_cache",
}
CHANGED: dict[str, Any] = {
    "architectures": ["MambaForCausalLM"],
    "attention_bias": True,
    "attn_logit_softcapping": 50.0,
    "bos_token_id": 7,
    "eos_token_id": [7, 8],
    "final_logit_softcapping": 30.0,
    "head_dim": 32,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "silu",
    "hidden_size": 128,
    "intermediate_size": 64,
    "is_encoder_decoder": True,
    "layer_types": ["sliding_attention"] + ["full_attention"] * 6,
    "max_position_embeddings": 512,
    "max_window_layers": 1,
    "mlp_bias": True,
    "no_rope_layer_interval": 2,
    "no_rope_layers": [0] + [1] * 6,
    "num_attention_heads": 8,
    "original_max_position_embeddings": 2048,
    "num_hidden_layers": 8,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 99,
    "rms_norm_eps": 1e-3,
    "rope_parameters": {"rope_type": "linear", "factor": 2.0},
    "sliding_window": 5,
    "tie_word_embeddings": True,
    "use_bidirectional_attention": True,
    "use_sliding_window": True,
    "vocab_size": 99,
}


def class_entries(architecture: str) -> set[str]:
    """What transformers' configuration class of the family declares."""
    import transformers
    from transformers import PreTrainedConfig

    common = set(PreTrainedConfig.__dataclass_fields__)
    return set(getattr(transformers, architecture).config_class.__dataclass_fields__) - common


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_entry_has_its_effect_or_is_refused(architecture: str) -> None:
    """Of those that transformers' configuration class of the family declares."""
    # A window that is there but not used would hide entries about windows.
    basis: dict[str, Any] = {}
    if "Qwen" in architecture:
        basis = {"use_sliding_window": True, "max_window_layers": 3}
    elif "SmolLM3" in architecture:
        basis = {"use_sliding_window": True, "sliding_window": 4, "no_rope_layer_interval": 3}
    elif "Phi3" in architecture:
        lists = {"long_factor": [2.0] * 8, "short_factor": [1.0] * 8}
        basis = {"rope_scaling": {"type": "longrope", **lists}}
    plain = config_of(architecture, **basis)
    for entry in sorted(class_entries(architecture) - WITHOUT_EFFECT):
        changed = CHANGED[entry]
        if changed == basis.get(entry, getattr(plain, entry, None)):
            changed = not changed if isinstance(changed, bool) else changed + 1
        try:
            config = config_of(architecture, **{**basis, entry: changed})
        except EngineError:
            continue
        assert config != plain, f"{entry} = {changed} changes nothing"


@pytest.mark.parametrize("architecture", FAMILIES)
def test_absent_entries_mean_what_they_mean_to_transformers(architecture: str) -> None:
    import transformers

    bare = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
    bare["num_attention_heads"] = 32
    theirs = getattr(transformers, architecture).config_class(**bare)
    ours = config_from_hf({"architectures": [architecture], **bare}, default_name="tiny")
    written = {**theirs.to_dict(), "architectures": [architecture]}
    full = config_from_hf(written, default_name="tiny")
    for name in ModelConfig.__slots__:
        if not name.endswith(("token_id", "token_ids")):
            assert getattr(ours, name) == getattr(full, name), name


def test_qwen3_0_6b() -> None:
    config = config_from_hf(
        {
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": False,
            "bos_token_id": 151643,
            "eos_token_id": 151645,
            "head_dim": 128,
            "hidden_act": "silu",
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "max_position_embeddings": 40960,
            "max_window_layers": 28,
            "num_attention_heads": 16,
            "num_hidden_layers": 28,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "sliding_window": None,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "use_sliding_window": False,
            "vocab_size": 151936,
        }
    )
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (16, 8, 128)
    assert (config.qk_norm, config.qkv_bias, config.output_bias) == (True, False, False)
    assert (config.rope_theta, config.layer_windows) == (1e6, ())
    assert config.kv_bytes_per_token(2) == 112 << 10


def test_gemma_3_270m() -> None:
    config = config_from_hf(
        {
            "_sliding_window_pattern": 6,
            "architectures": ["Gemma3ForCausalLM"],
            "attention_bias": False,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 640,
            "intermediate_size": 2048,
            "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
            "max_position_embeddings": 32768,
            "num_attention_heads": 4,
            "num_hidden_layers": 18,
            "num_key_value_heads": 1,
            "query_pre_attn_scalar": 256,
            "rms_norm_eps": 1e-06,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": None,
            "rope_theta": 1000000.0,
            "sliding_window": 512,
            "use_bidirectional_attention": False,
            "vocab_size": 262144,
        }
    )
    assert config.layer_windows == (512, 512, 512, 512, 512, None) * 3
    assert (config.rope_theta, config.local_rope_theta) == (1e6, 1e4)
    assert (config.tie_word_embeddings, config.activation) == (True, "gelu_tanh")
    assert config.embedding_scale == pytest.approx(640**0.5)
    assert config.attention_scale == 1 / 16


@pytest.mark.parametrize(
    ("architecture", "entries"),
    [
        ("Qwen2ForCausalLM", {"use_sliding_window": True, "max_window_layers": 3}),
        ("Qwen3ForCausalLM", {"use_sliding_window": True, "max_window_layers": 0}),
        ("Gemma3ForCausalLM", {}),
        ("Gemma3ForCausalLM", {"sliding_window_pattern": 3}),
        ("SmolLM3ForCausalLM", {"use_sliding_window": True, "no_rope_layer_interval": 3}),
        ("SmolLM3ForCausalLM", {"use_sliding_window": True, "no_rope_layers": [1, 0, 1, 1] * 2}),
    ],
)
def test_layers_with_a_window_are_those_of_transformers(
    architecture: str, entries: dict[str, Any]
) -> None:
    import transformers

    entries = {"sliding_window": 5, **entries}
    theirs = getattr(transformers, architecture).config_class(**SIZES, **entries)
    kinds = [5 if kind == "sliding_attention" else None for kind in theirs.layer_types]
    assert config_of(architecture, **entries).layer_windows == tuple(kinds)


def test_phi_4_mini() -> None:
    factors = {"long_factor": [float(i + 1) for i in range(48)], "short_factor": [1.0] * 48}
    config = config_from_hf(
        {
            "architectures": ["Phi3ForCausalLM"],
            "attention_bias": False,
            "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
            "embd_pdrop": 0.0,
            "full_attn_mod": 1,
            "hidden_act": "silu",
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "interpolate_factor": 1,
            "lm_head_bias": False,
            "max_position_embeddings": 131072,
            "mlp_bias": False,
            "num_attention_heads": 24,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "original_max_position_embeddings": 4096,
            "partial_rotary_factor": 0.75,
            "rms_norm_eps": 1e-05,
            "rope_scaling": {**factors, "type": "longrope"},
            "rope_theta": 10000.0,
            "sliding_window": 262144,
            "tie_word_embeddings": True,
            "vocab_size": 200064,
        }
    )
    assert (config.head_dim, config.rotary_dim, config.num_kv_heads) == (128, 96, 8)
    assert config.layer_windows == (262144,) * 32
    # Conversations of up to 4,096 tokens are short texts, if none can grow beyond that.
    short, long = frequencies(config, 4096), frequencies(config)
    assert short.scale == long.scale == pytest.approx((1 + math.log(32) / math.log(4096)) ** 0.5)
    assert (short.inv_freq / long.inv_freq).tolist() == pytest.approx(factors["long_factor"])


def test_smollm3_3b() -> None:
    config = config_from_hf(
        {
            "architectures": ["SmolLM3ForCausalLM"],
            "attention_bias": False,
            "hidden_act": "silu",
            "hidden_size": 2048,
            "intermediate_size": 11008,
            "layer_types": ["full_attention"] * 36,
            "max_position_embeddings": 65536,
            "max_window_layers": 28,
            "mlp_bias": False,
            "no_rope_layer_interval": 4,
            "no_rope_layers": [1, 1, 1, 0] * 9,
            "num_attention_heads": 16,
            "num_hidden_layers": 36,
            "num_key_value_heads": 4,
            "pretraining_tp": 2,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 5000000.0,
            "sliding_window": None,
            "use_sliding_window": False,
            "vocab_size": 128256,
        }
    )
    assert config.unrotated_layers == tuple(range(3, 36, 4))
    assert (config.tie_word_embeddings, config.layer_windows) == (True, ())


def test_divisors_are_one_for_each_frequency() -> None:
    scaling = {"rope_type": "divisors", "divisors": [1, 2.5, 3.0, 4.0]}
    config = config_of("LlamaForCausalLM", head_dim=8, rope_scaling=scaling)
    assert dict(config.rope_scaling)["divisors"] == (1.0, 2.5, 3.0, 4.0)
