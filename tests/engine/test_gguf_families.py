"""GGUF files of every family: the weights and the shape that the model had before conversion."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.gguf_config import DIVISORS_TENSOR, LONG_TENSOR, SHORT_TENSOR
from engine.loading.model_folder import LoadedFiles, open_model
from engine.models.rotary import frequencies
from tests.helpers.family_gguf import VOCAB_SIZE, write_gguf
from tests.helpers.tiny_gguf import TinyGguf
from tests.helpers.tiny_model import TinyModel, tiny_model

Family = tuple[str, str, dict[str, Any], dict[str, Any]]

FAMILIES: dict[str, Family] = {
    "llama": ("LlamaForCausalLM", "llama", {}, {}),
    "llama biased": (
        "LlamaForCausalLM",
        "llama",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        {},
    ),
    "llama linear": (
        "LlamaForCausalLM",
        "llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
        {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0},
    ),
    "mistral": ("MistralForCausalLM", "llama", {"sliding_window": None}, {}),
    "mistral window": (
        "MistralForCausalLM",
        "llama",
        {"sliding_window": 9},
        {"attention__sliding_window": 9},
    ),
    "qwen2": ("Qwen2ForCausalLM", "qwen2", {"tie_word_embeddings": True}, {}),
    "qwen3": ("Qwen3ForCausalLM", "qwen3", {"head_dim": 32}, {}),
    "qwen3 yarn": (
        "Qwen3ForCausalLM",
        "qwen3",
        {
            "head_dim": 32,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "rope_theta": 1e4,
                "original_max_position_embeddings": 128,
            },
        },
        {
            "rope__scaling__type": "yarn",
            "rope__scaling__factor": 4.0,
            "rope__scaling__original_context_length": 128,
        },
    ),
    "smollm3": (
        "SmolLM3ForCausalLM",
        "smollm3",
        {"num_hidden_layers": 4, "tie_word_embeddings": True},
        {},
    ),
    "phi3": ("Phi3ForCausalLM", "phi3", {"original_max_position_embeddings": 512}, {}),
    "phi3 window": (
        "Phi3ForCausalLM",
        "phi3",
        {"sliding_window": 9, "tie_word_embeddings": True},
        {"attention__sliding_window": 9},
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "gemma3",
        {"num_hidden_layers": 7, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 9},
        {"attention__sliding_window": 9},
    ),
}


def make(name: str) -> TinyModel:
    return tiny_model(FAMILIES[name][0], vocab_size=VOCAB_SIZE, **FAMILIES[name][2])


def opened(model: TinyModel, name: str, folder: Path, **extra: Any) -> LoadedFiles:
    _, architecture, _, metadata = FAMILIES[name]
    path = write_gguf(model, architecture, folder / "tiny.gguf", **{**metadata, **extra})
    return open_model(path, folder / "models")


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_and_shape_are_those_before_conversion(name: str, tmp_path: Path) -> None:
    model = make(name)
    files = opened(model, name, tmp_path)
    weights = dict(files.weights())
    wanted = dict(model.weights())
    if model.config.tie_word_embeddings:
        del wanted["lm_head.weight"]
    assert weights.keys() == wanted.keys()
    # Adding 1 to a norm and taking it away again rounds.
    bound = 1e-7 if name == "gemma3" else 0.0
    for key, tensor in weights.items():
        assert (tensor - wanted[key]).abs().max() <= bound, key
    same = {"name": files.config.name, "bos_token_id": 1, "eos_token_ids": (2,)}
    architecture = {}
    if name == "mistral":
        # Without a window nothing tells it from Llama, and nothing differs.
        architecture = {"architecture": "LlamaForCausalLM"}
    assert files.config == replace(model.config, **same, **architecture)


def test_llama_3_as_divisors_of_the_frequencies(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_theta": 1e4,
    }
    model = tiny_model(
        "LlamaForCausalLM", vocab_size=VOCAB_SIZE, head_dim=32, rope_parameters=scaling
    )
    divisors = []
    for pair in range(16):
        wavelength = 2 * math.pi * 1e4 ** (pair / 16)
        smooth = (64 / wavelength - 1.0) / 3.0
        between = 1 / ((1 - smooth) / 8.0 + smooth)
        divisors.append(1.0 if wavelength < 16 else 8.0 if wavelength > 64 else between)
    assert len(set(divisors)) > 3
    files = opened(model, "llama", tmp_path, rope_factors={DIVISORS_TENSOR: divisors})
    found = frequencies(files.config).inv_freq
    theirs = model.reference.model.rotary_emb.inv_freq.double()
    assert torch.allclose(found, theirs, rtol=3e-7, atol=0.0)
    assert "rope_freqs.weight" not in dict(files.weights())


LISTS = {SHORT_TENSOR: [1.0, 1.5, 2.0], LONG_TENSOR: [1.0, 4.0, 32.0]}


def partial_phi() -> TinyModel:
    """Heads of 8 that are rotated by three quarters."""
    scaling = {
        "type": "longrope",
        "short_factor": LISTS[SHORT_TENSOR],
        "long_factor": LISTS[LONG_TENSOR],
    }
    return tiny_model(
        "Phi3ForCausalLM",
        vocab_size=VOCAB_SIZE,
        partial_rotary_factor=0.75,
        rope_scaling=scaling,
        original_max_position_embeddings=64,
    )


def test_phi_4s_lists_of_factors_and_its_partial_rotation(tmp_path: Path) -> None:
    model = partial_phi()
    sharper = math.sqrt(1 + math.log(512 / 64) / math.log(64))
    files = opened(
        model,
        "phi3",
        tmp_path,
        rope_factors=LISTS,
        rope__dimension_count=6,
        rope__scaling__original_context_length=64,
        rope__scaling__attn_factor=sharper,
    )
    assert (files.config.rotary_dim, model.config.rotary_dim) == (6, 6)
    for length in (64, 65, None):
        ours, theirs = frequencies(files.config, length), frequencies(model.config, length)
        assert torch.equal(ours.inv_freq, theirs.inv_freq)
        assert ours.scale == pytest.approx(theirs.scale)
    assert not {*LISTS} & {*dict(files.weights())}


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ({LONG_TENSOR: [1.0] * 3}, "longrope without short_factor"),
        ({**LISTS, SHORT_TENSOR: [1.0] * 4}, r"each of 3 rotary frequencies.*short_factor"),
    ],
)
def test_lists_of_factors_that_do_not_fit_are_named(
    factors: dict[str, list[float]], said: str, tmp_path: Path
) -> None:
    extra = {"rope__dimension_count": 6, "rope__scaling__original_context_length": 64}
    with pytest.raises(ModelFileError, match=said):
        opened(partial_phi(), "phi3", tmp_path, rope_factors=factors, **extra)


def test_divisors_of_another_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="each of 4 rotary frequencies"):
        opened(make("llama"), "llama", tmp_path, rope_factors={DIVISORS_TENSOR: [1.0] * 3})


def test_gemma_says_where_its_windows_are(tmp_path: Path) -> None:
    files = opened(
        make("gemma3"),
        "gemma3",
        tmp_path,
        attention__sliding_window_pattern=[True, False] * 3 + [True],
    )
    assert files.config.layer_windows == (9, None, 9, None, 9, None, 9)


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_a_window_in_layers_that_are_not_named_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="sliding-window"):
        opened(make(name), name, tmp_path, attention__sliding_window=9)


def test_biases_that_qwen_2_does_not_have_are_refused(tmp_path: Path) -> None:
    path = write_gguf(make("llama biased"), "qwen2", tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedModelError, match="biases in its feed-forward"):
        open_model(path, tmp_path / "models")


class WithSinks(TinyGguf):
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {**super()._shapes(), "blk.0.attn_sinks.weight": (4,)}


def test_a_tensor_that_the_family_does_not_have_is_named(tmp_path: Path) -> None:
    path = WithSinks().write(tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedModelError, match=r"tensor blk\.0\.attn_sinks\.weight"):
        open_model(path, tmp_path / "models")
