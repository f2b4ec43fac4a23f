"""config.json from a GGUF file's metadata: what is taken over, what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.gguf_config import DIVISORS_TENSOR, hf_config
from tests.helpers.tiny_gguf import HEADS, HIDDEN, KV_HEADS, LAYERS

HEAD_DIM = HIDDEN // HEADS


def config(architecture: str = "llama", divisors: tuple[float, ...] = (), **entries: Any):
    """Of a small model with these entries; a dot in a key is written ``__``, None takes it away."""
    values: dict[str, Any] = {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": 512,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": 300,
        **{key.replace("__", "."): value for key, value in entries.items()},
    }
    metadata = {f"{architecture}.{key}": value for key, value in values.items()}
    return hf_config(
        {"general.architecture": architecture, **metadata}, (), {DIVISORS_TENSOR: divisors}
    )


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"embedding_length": None}, r"None for llama\.embedding_length"),
        ({"context_length": 0}, r"0 for llama\.context_length"),
        ({"block_count": 2.0}, r"2\.0 for llama\.block_count"),
        ({"attention__layer_norm_rms_epsilon": None}, r"None for llama\.attention\.layer_norm"),
        ({"rope__freq_base": -1.0}, r"-1\.0 for llama\.rope\.freq_base"),
        ({"rope__freq_base": float("nan")}, r"nan for llama\.rope\.freq_base"),
        ({"block_count": 5000}, r"5,000 layers and heads of 64"),
        ({"attention__key_length": 63}, r"2 layers and heads of 63"),
    ],
)
def test_entries_that_make_no_sense_are_named(entries: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        config(**entries)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"attention__causal": False}, r"later tokens \(attention\.causal\)"),
        ({"rope__dimension_count": 32}, r"a part of each head \(rope\.dimension_count\)"),
        ({"attention__value_length": 32}, r"values of another size \(attention\.value_length\)"),
        ({"rope__scaling__type": "longrope"}, r"scaled as longrope \(rope\.scaling\.type\)"),
        ({"architecture": "qwen2", "attention__sliding_window": 9}, "sliding-window attention"),
        ({"architecture": "mamba"}, "architecture is mamba; known: llama, qwen2"),
        (
            {"rope__scaling__type": "yarn", "divisors": (1.0, 2.0)},
            r"scaled twice, by yarn too \(rope\.scaling\.type\)",
        ),
    ],
)
def test_what_is_not_computed_is_refused_by_name(entries: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        config(**entries)


def test_a_neutral_value_is_no_reason_to_refuse() -> None:
    plain = config()
    assert config(attention__causal=True, expert_count=0, logit_scale=1.0) == plain
    assert config(rope__scaling__type="none", attention__sliding_window=0) == plain
    with pytest.raises(UnsupportedModelError, match=r"mixture of experts \(expert_count\)"):
        config(expert_count=8)


def test_scaled_rotation_is_taken_over() -> None:
    linear = config(rope__scaling__type="linear", rope__scaling__factor=4.0)
    assert linear["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    yarn = config(
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=2048,
        rope__scaling__yarn_beta_fast=24.0,
    )
    assert yarn["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 2048,
        "beta_fast": 24.0,
    }
    divided = config(divisors=(1.0, 2.0))["rope_scaling"]
    assert divided == {"rope_type": "divisors", "divisors": [1.0, 2.0]}
    with pytest.raises(ModelFileError, match=r"None for llama\.rope\.scaling\.factor"):
        config(rope__scaling__type="linear")


def test_a_number_in_single_precision_is_the_decimal_it_was_written_as() -> None:
    assert config(rope__freq_base=999999.9375)["rope_theta"] == 999999.94
    assert config(attention__layer_norm_rms_epsilon=9.999999747378752e-06)["rms_norm_eps"] == 1e-5


def test_a_window_of_every_layer_is_mistrals() -> None:
    found = config(attention__sliding_window=64)
    assert (found["model_type"], found["sliding_window"]) == ("mistral", 64)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (6, {"sliding_window_pattern": 6}),
        ([True, False], {"layer_types": ["sliding_attention", "full_attention"]}),
        (None, {}),
    ],
)
def test_layers_with_a_window_in_gemma(pattern: object, expected: dict[str, Any]) -> None:
    found = config(
        "gemma3",
        attention__sliding_window=64,
        attention__sliding_window_pattern=pattern,
        rope__freq_base_swa=5e4,
    )
    kept = {key: found[key] for key in ("sliding_window_pattern", "layer_types") if key in found}
    assert kept == expected
    assert (found["rope_theta"], found["rope_local_base_freq"]) == (1e6, 5e4)
    assert found["query_pre_attn_scalar"] == HEAD_DIM


def test_only_the_largest_gemma_divides_its_scores_by_another_number() -> None:
    found = config("gemma3", attention__sliding_window=64, block_count=62, attention__key_length=32)
    assert (found["head_dim"], found["query_pre_attn_scalar"]) == (32, HIDDEN // HEADS)
