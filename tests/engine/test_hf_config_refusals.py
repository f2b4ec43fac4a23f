"""Entries of a config.json that are refused by name, and those that are no reason to refuse."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.errors import ModelFileError, UnsupportedModelError
from tests.helpers.config_entries import config_of


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
        ("LlamaForCausalLM", {"hidden_act": []}, r"activation \[\]"),
        ("Qwen2ForCausalLM", {"layer_types": ["linear_attention"] * 7}, "linear_attention"),
        (
            "MistralForCausalLM",
            {"layer_types": ["full_attention", "sliding_attention"] + ["full_attention"] * 5},
            "layer_types",
        ),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("Qwen3ForCausalLM", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ("Qwen3ForCausalLM", {"no_rope_layer_interval": 4}, "no_rope_layer_interval"),
        ("Phi3ForCausalLM", {"full_attn_mod": 2}, "full_attn_mod"),
        ("Phi3ForCausalLM", {"lm_head_bias": True}, "lm_head_bias"),
        ("SmolLM3ForCausalLM", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("SmolLM3ForCausalLM", {"sliding_window": 9, "layer_types": ["x"] * 7}, "kind x"),
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
        (
            "Phi3ForCausalLM",
            {"rope_scaling": {"type": "longrope", "long_factor": [1.0] * 8}},
            "longrope without short_factor",
        ),
        (
            "Phi3ForCausalLM",
            {"rope_scaling": {"type": "su", "long_factor": [1.0] * 7, "short_factor": [1.0] * 8}},
            r"each of 8 rotary frequencies.*\(long_factor\)",
        ),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 0.2}, "which is 3 of a head's 16"),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 2}, "which is 32 of a head's 16"),
        ("SmolLM3ForCausalLM", {"no_rope_layer_interval": 0}, "no_rope_layer_interval = 0"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}, "for each of 7 layers"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [2] * 7}, "0 or 1 in no_rope_layers"),
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
