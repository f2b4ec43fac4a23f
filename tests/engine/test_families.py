"""Every model family gives the tokens and logits of transformers' own model."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.model_runner import ModelRunner, build_runner
from tests.helpers.reference import logit_error, reference_greedy
from tests.helpers.runner_driver import RunnerDriver
from tests.helpers.tiny_model import TinyModel, tiny_model
from tests.helpers.torch_engine import torch_engine

pytestmark = pytest.mark.usefixtures("one_thread")

NEW_TOKENS = 64
BLOCK_SIZE = 8
NUM_BLOCKS = 96
LENGTHS = (1, 16, 17, 50)


@dataclass(frozen=True)
class Case:
    """``lengths``: of the prompts, in tokens."""

    architecture: str
    entries: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] = LENGTHS


def rope(rope_type: str, **values: float) -> dict[str, Any]:
    """Scaled from 16 positions; the answers go on to more than 110."""
    values = {"rope_theta": 1e4, "original_max_position_embeddings": 16, **values}
    return {"rope_parameters": {"rope_type": rope_type, **values}}


def longrope(length: int, **values: Any) -> dict[str, Any]:
    """Of heads of 16 that are rotated by three quarters, trained on ``length`` positions."""
    factors = {
        "short_factor": [1.0, 1.0, 1.125, 1.25, 1.375, 1.5],
        "long_factor": [1.0, 1.5, 3.0, 5.5, 9.0, 14.0],
    }
    scaling = {"type": "longrope", **factors, **values}
    return {
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "partial_rotary_factor": 0.75,
        "rope_scaling": scaling,
        "original_max_position_embeddings": length,
    }


CASES = {
    "llama": Case("LlamaForCausalLM", {"head_dim": 16}),
    "llama biased": Case("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "llama linear": Case("LlamaForCausalLM", rope("linear", factor=4.0)),
    "llama 3": Case(
        "LlamaForCausalLM",
        {
            "head_dim": 16,
            **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0),
        },
    ),
    "mistral": Case("MistralForCausalLM", {"sliding_window": None}),
    "mistral window": Case("MistralForCausalLM", {"sliding_window": 11}),
    "mistral window 2": Case("MistralForCausalLM", {"sliding_window": 2}),
    "mistral yarn": Case(
        "MistralForCausalLM",
        {"sliding_window": None, **rope("yarn", factor=32.0, mscale=1.0, mscale_all_dim=0.5)},
    ),
    "qwen2": Case("Qwen2ForCausalLM"),
    "qwen2 tied": Case("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "qwen2 window from layer 1": Case(
        "Qwen2ForCausalLM",
        {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 1},
    ),
    "qwen2 window unused": Case("Qwen2ForCausalLM", {"sliding_window": 10, "max_window_layers": 1}),
    "qwen3": Case("Qwen3ForCausalLM", {"head_dim": 32}),
    "qwen3 windows by layer": Case(
        "Qwen3ForCausalLM",
        {
            "head_dim": 16,
            "use_sliding_window": True,
            "sliding_window": 9,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen3 yarn": Case("Qwen3ForCausalLM", {"head_dim": 32, **rope("yarn", factor=32.0)}),
    "qwen3 yarn sharp": Case(
        "Qwen3ForCausalLM",
        {
            "head_dim": 32,
            **rope(
                "yarn",
                factor=32.0,
                attention_factor=1.7,
                beta_fast=8.0,
                beta_slow=2.0,
                truncate=False,
            ),
        },
    ),
    "qwen3 biased": Case("Qwen3ForCausalLM", {"head_dim": 8, "attention_bias": True}),
    "smollm3": Case("SmolLM3ForCausalLM", {"num_hidden_layers": 5, "no_rope_layer_interval": 2}),
    "smollm3 listed, biased": Case(
        "SmolLM3ForCausalLM",
        {"no_rope_layers": [0, 1, 1], "attention_bias": True, "mlp_bias": True},
    ),
    "smollm3 windows": Case(
        "SmolLM3ForCausalLM",
        {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 11},
    ),
    "smollm3 yarn": Case(
        "SmolLM3ForCausalLM",
        {"no_rope_layer_interval": 3, "head_dim": 16, **rope("yarn", factor=32.0)},
    ),
    "phi3": Case("Phi3ForCausalLM"),
    "phi3 window": Case("Phi3ForCausalLM", {"sliding_window": 11, "tie_word_embeddings": True}),
    "phi3 partial": Case(
        "Phi3ForCausalLM",
        {"num_attention_heads": 3, "num_key_value_heads": 1, "partial_rotary_factor": 0.5},
    ),
    "phi3 longrope short": Case("Phi3ForCausalLM", longrope(512, factor=2.0)),
    "phi3 longrope long": Case(
        "Phi3ForCausalLM", longrope(16, attention_factor=1.1), (17, 18, 33, 50)
    ),
    "gemma3": Case(
        "Gemma3ForCausalLM",
        {
            "num_hidden_layers": 7,
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 13,
            "tie_word_embeddings": False,
        },
    ),
}


@dataclass(frozen=True)
class Judged:
    """A model, prompts, and what transformers answers to each."""

    model: TinyModel
    prompts: list[list[int]]
    expected: list[list[int]]


@pytest.fixture(scope="module", params=CASES)
def judged(request: pytest.FixtureRequest) -> Judged:
    case = CASES[request.param]
    model = tiny_model(case.architecture, seed=3, **case.entries)
    draw = random.Random(5)
    prompts = [[draw.randrange(3, 320) for _ in range(length)] for length in case.lengths]
    expected = [reference_greedy(model.reference, prompt, NEW_TOKENS) for prompt in prompts]
    assert len({token for answer in expected for token in answer}) > 50, "the answers say little"
    return Judged(model, prompts, expected)


def runner_of(model: TinyModel, backend: str = "auto") -> ModelRunner:
    return build_runner(
        model.config,
        model.weights(),
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        dtype="float32",
        backend=backend,
    )


def driver_of(runner: ModelRunner) -> RunnerDriver:
    return RunnerDriver(runner, NUM_BLOCKS, BLOCK_SIZE)


def test_tokens_in_chunks_and_in_a_batch(judged: Judged) -> None:
    driver = driver_of(runner_of(judged.model))
    requests = [driver.request(str(i), prompt) for i, prompt in enumerate(judged.prompts)]
    for request in requests:
        driver.prefill(request, 7)
    driver.decode(requests, NEW_TOKENS - 1)
    assert [driver.output(request) for request in requests] == judged.expected


@pytest.mark.parametrize("backend", ["dense", "contiguous", "paged_reference"])
def test_tokens_through_every_backend(judged: Judged, backend: str) -> None:
    """The whole engine: chunks that end inside windows, a batch, and too few blocks for it."""
    engine = torch_engine(judged.model, backend, num_blocks=22, token_budget=13)
    for index, prompt in enumerate(judged.prompts):
        engine.add(str(index), prompt, NEW_TOKENS)
    engine.run()
    assert engine.core.metrics.num_preemptions > 0
    assert [engine.output(str(index)) for index in range(len(LENGTHS))] == judged.expected


def test_tokens_after_a_prefix_hit(judged: Judged) -> None:
    engine = torch_engine(judged.model, "paged_reference")
    for name in ("cold", "warm"):
        engine.add(name, judged.prompts[-1], NEW_TOKENS)
        engine.run()
    assert engine.finished("warm").usage.cached_tokens == 48
    assert engine.output("cold") == engine.output("warm") == judged.expected[-1]


def test_logits(judged: Judged) -> None:
    sequence = judged.prompts[-1] + judged.expected[-1]
    error = logit_error(driver_of(runner_of(judged.model)), judged.model.reference, sequence)
    assert error <= 1e-4


@pytest.mark.parametrize(
    "name",
    ["mistral window", "qwen3 windows by layer", "gemma3", "smollm3 windows", "phi3 longrope long"],
)
def test_what_differs_by_layer_or_head_through_the_triton_kernels(name: str) -> None:
    """A few tokens only: Triton's interpreter is slow."""
    pytest.importorskip("triton")
    from engine.attention.paged_triton import PagedTritonBackend

    case = CASES[name]
    model = tiny_model(case.architecture, seed=3, **case.entries)
    runner = runner_of(model)
    assert runner.attention.cache is not None
    runner.attention = PagedTritonBackend(runner.attention.cache, model.config)
    draw = random.Random(5)
    prompt = [draw.randrange(3, 320) for _ in range(40)]
    driver = driver_of(runner)
    request = driver.request("r", prompt)
    driver.prefill(request, 13)
    driver.decode([request], 6)
    assert driver.output(request) == reference_greedy(model.reference, prompt, 7)
