"""config.json of each family: read as transformers reads it, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.errors import EngineError, ModelFileError, UnsupportedModelError
from engine.models.config import ModelConfig
from engine.models.families import FAMILIES
from engine.models.hf_config import config_from_hf

SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}

# What a config.json of each family may hold besides sizes, and what makes no difference to answers.
WITHOUT_EFFECT = {
    "attention_dropout",
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
    "num_attention_heads": 8,
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


def config_of(architecture: str, **entries: Any) -> ModelConfig:
    values = {"architectures": [architecture], **SIZES, **entries}
    return config_from_hf(values, default_name="tiny")


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
    ("architecture", "entries", "named"),
    [
        ("LlamaForCausalLM", {"sliding_window": 9}, "sliding_window"),
        ("MistralForCausalLM", {"attention_bias": True}, "attention_bias"),
        ("Qwen2ForCausalLM", {"num_experts": 8}, "num_experts"),
        ("Qwen3ForCausalLM", {"mlp_bias": True}, "mlp_bias"),
        ("LlamaForCausalLM", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("Gemma3ForCausalLM", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ("LlamaForCausalLM", {"num_local_experts": 8}, "num_local_experts"),
        ("LlamaForCausalLM", {"logit_scale": 0.5}, "logit_scale"),
        ("LlamaForCausalLM", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("LlamaForCausalLM", {"query_pre_attn_scalar": 5}, "query_pre_attn_scalar"),
        ("LlamaForCausalLM", {"hidden_act": "relu2"}, "activation relu2"),
        ("Qwen2ForCausalLM", {"layer_types": ["linear_attention"] * 7}, "linear_attention"),
        (
            "MistralForCausalLM",
            {"layer_types": ["full_attention", "sliding_attention"] + ["full_attention"] * 5},
            "layer_types",
        ),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("Qwen3ForCausalLM", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ("Qwen3ForCausalLM", {"rope_scaling": {"type": "longrope"}}, "longrope"),
        (
            "Qwen2ForCausalLM",
            {"rope_scaling": {"type": "yarn", "factor": 2.0, "mrope_section": [1, 2]}},
            "mrope_section",
        ),
        (
            "LlamaForCausalLM",
            {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
            "rotation that differs between layers",
        ),
        (
            "Gemma3ForCausalLM",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
            "a scaled rotation in layers with a window",
        ),
        (
            "LlamaForCausalLM",
            {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}},
            "rotation of a part of each head",
        ),
    ],
)
def test_what_is_not_computed_is_refused_by_name(
    architecture: str, entries: dict[str, Any], named: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        config_of(architecture, **entries)


@pytest.mark.parametrize(
    ("architecture", "entries", "named"),
    [
        ("MistralForCausalLM", {"sliding_window": 0}, "sliding_window"),
        ("MistralForCausalLM", {"sliding_window": "wide"}, "sliding_window"),
        ("Qwen3ForCausalLM", {"layer_types": ["full_attention"]}, "layer_types"),
        ("Qwen3ForCausalLM", {"layer_types": ["sliding_attention"] * 7}, "no window"),
        ("Qwen3ForCausalLM", {"head_dim": 33}, "33"),
        ("LlamaForCausalLM", {"rope_scaling": {"type": "linear"}}, "without factor"),
        ("LlamaForCausalLM", {"rope_scaling": {"type": "linear", "factor": "x"}}, "factor = 'x'"),
        ("LlamaForCausalLM", {"rope_scaling": {"type": "linear", "factor": 0}}, "factor = 0"),
        (
            "LlamaForCausalLM",
            {
                "rope_scaling": {
                    "type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 4.0,
                }
            },
            "high_freq_factor",
        ),
        (
            "Qwen3ForCausalLM",
            {"rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": 1}},
            "truncate",
        ),
        ("LlamaForCausalLM", {"rope_scaling": ["linear"]}, r"\['linear'\] for the rotary"),
        (
            "Gemma3ForCausalLM",
            {"rope_parameters": {"full_attention": {}, "sliding_attention": [1]}},
            "no parameters for the rotary",
        ),
        (
            "LlamaForCausalLM",
            {"head_dim": 32, "rope_scaling": {"type": "divisors", "divisors": [1.0] * 7}},
            "each of 16 rotary frequencies",
        ),
        (
            "LlamaForCausalLM",
            {"head_dim": 4, "rope_scaling": {"type": "divisors", "divisors": [1.0, 0.0]}},
            r"divisors = 0\.0",
        ),
        (
            "Qwen3ForCausalLM",
            {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": -1},
            "max_window_layers = -1",
        ),
        (
            "Gemma3ForCausalLM",
            {"sliding_window": 8, "sliding_window_pattern": "six"},
            "sliding_window_pattern = 'six'",
        ),
    ],
)
def test_entries_that_make_no_sense_are_named(
    architecture: str, entries: dict[str, Any], named: str
) -> None:
    with pytest.raises(ModelFileError, match=named):
        config_of(architecture, **entries)


def test_entries_without_effect_are_no_reason_to_refuse() -> None:
    harmless = {
        "attention_dropout": 0.1,
        "pretraining_tp": 2,
        "rope_interleaved": False,
        "logit_scale": 1,
        "num_experts": 0,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0",
        "rope_scaling": {"type": "yarn", "factor": 2.0, "finetuned": True},
    }
    assert config_of("LlamaForCausalLM", **harmless).rope_scaling[0] == ("rope_type", "yarn")


@pytest.mark.parametrize(
    ("architecture", "entries"),
    [
        ("Qwen2ForCausalLM", {"use_sliding_window": True, "max_window_layers": 3}),
        ("Qwen3ForCausalLM", {"use_sliding_window": True, "max_window_layers": 0}),
        ("Gemma3ForCausalLM", {}),
        ("Gemma3ForCausalLM", {"sliding_window_pattern": 3}),
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


def test_divisors_are_one_for_each_frequency() -> None:
    scaling = {"rope_type": "divisors", "divisors": [1, 2.5, 3.0, 4.0]}
    config = config_of("LlamaForCausalLM", head_dim=8, rope_scaling=scaling)
    assert dict(config.rope_scaling)["divisors"] == (1.0, 2.5, 3.0, 4.0)
