"""Greedy output of the paged engine equals transformers' own model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.model_runner import ModelRunner, build_runner
from engine.request import Request
from tests.helpers.paged import dense_attention
from tests.helpers.reference import logit_error, reference_greedy
from tests.helpers.runner_driver import RunnerDriver
from tests.helpers.starter import starter_files
from tests.helpers.tiny_model import TinyModel, tiny_llama

pytestmark = pytest.mark.usefixtures("one_thread")

NEW_TOKENS = 64
BLOCK_SIZE = 16
NUM_BLOCKS = 96


def random_prompts(vocab_size: int) -> list[list[int]]:
    """Lengths around the block size, one token, and several blocks."""
    draw = random.Random(5)
    return [
        [draw.randrange(3, vocab_size) for _ in range(length)] for length in (1, 15, 16, 17, 33, 50)
    ]


def runner_of(model: TinyModel, dtype: str = "float32") -> ModelRunner:
    return build_runner(
        model.config, model.weights(), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=dtype
    )


def driver_of(runner: ModelRunner, lag: int = 0) -> RunnerDriver:
    return RunnerDriver(runner, NUM_BLOCKS, BLOCK_SIZE, lag=lag)


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama()


@pytest.fixture(scope="module")
def prompts(tiny: TinyModel) -> list[list[int]]:
    return random_prompts(tiny.config.vocab_size)


@pytest.fixture(scope="module")
def expected(tiny: TinyModel, prompts: list[list[int]]) -> list[list[int]]:
    return [reference_greedy(tiny.reference, prompt, NEW_TOKENS) for prompt in prompts]


@pytest.fixture(scope="module")
def tiny_runner(tiny: TinyModel) -> ModelRunner:
    return runner_of(tiny)


def finish(driver: RunnerDriver, requests: Sequence[Request]) -> list[list[int]]:
    driver.decode(requests, NEW_TOKENS - 1)
    outputs = [driver.output(request) for request in requests]
    for request in requests:
        driver.finish(request)
    return outputs


@pytest.mark.parametrize("lag", [0, 1])
def test_alone(
    tiny_runner: ModelRunner, prompts: list[list[int]], expected: list[list[int]], lag: int
) -> None:
    for prompt, want in zip(prompts, expected, strict=True):
        driver = driver_of(tiny_runner, lag)
        request = driver.request("alone", prompt)
        driver.prefill(request)
        assert finish(driver, [request]) == [want]


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("chunk", [None, 1, 7, 16])
def test_batched_and_chunked(
    tiny_runner: ModelRunner,
    prompts: list[list[int]],
    expected: list[list[int]],
    chunk: int | None,
    lag: int,
) -> None:
    driver = driver_of(tiny_runner, lag)
    requests = [driver.request(str(i), prompt) for i, prompt in enumerate(prompts)]
    for request in requests:
        driver.prefill(request, chunk)
    assert finish(driver, requests) == expected


def test_prefills_beside_decodes(
    tiny_runner: ModelRunner, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    """One decodes while the others' prompts come in by chunks, two of them in one step."""
    driver = driver_of(tiny_runner)
    first, *others = (driver.request(str(i), prompt) for i, prompt in enumerate(prompts))
    driver.prefill(first)
    pending, running = list(others), [first]
    while pending:
        chunks = []
        for request in pending[:2]:
            rest = request.num_tokens - request.num_computed_tokens
            chunks.append((request, min(6, rest)))
        driver.step(decodes=running, prefills=chunks)
        for request, _ in chunks:
            if request.num_computed_tokens >= request.num_prompt_tokens:
                pending.remove(request)
                running.append(request)
    while any(request.num_output_tokens < NEW_TOKENS for request in running):
        driver.step(decodes=[r for r in running if r.num_output_tokens < NEW_TOKENS])
    outputs = {request.request_id: driver.output(request) for request in running}
    for request in running:
        driver.finish(request)
    assert [outputs[str(i)] for i in range(len(prompts))] == expected


def test_prefix_hit_through_shared_blocks(
    tiny_runner: ModelRunner, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    """The second request takes the first one's full blocks; neither notices the other."""
    prompt, want = prompts[-1], expected[-1]
    driver = driver_of(tiny_runner)
    first = driver.request("cold", prompt)
    driver.prefill(first)
    full = (len(prompt) - 1) // BLOCK_SIZE
    second = driver.request("hit", prompt, shared_blocks=first.block_table[:full])
    assert second.num_computed_tokens == 48
    driver.prefill(second)
    assert finish(driver, [first, second]) == [want, want]


def test_fork_with_a_copied_partial_block(
    tiny_runner: ModelRunner, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    """A fork in the middle of a block goes on from a copy, and its parent is unaffected."""
    driver = driver_of(tiny_runner)
    parent = driver.request("parent", prompts[3])
    driver.prefill(parent)
    driver.decode([parent], 4)
    child = driver.request("child", parent.token_ids[:-1])
    child.token_ids.append(3)
    child.num_prompt_tokens = len(child.token_ids)
    child.num_computed_tokens = parent.num_computed_tokens
    copied = driver.free.pop()
    child.block_table = [*parent.block_table[:-1], copied]
    assert child.num_computed_tokens % BLOCK_SIZE != 0
    driver.step(decodes=[parent], prefills=[(child, 1)], copies=[(parent.block_table[-1], copied)])
    driver.decode([parent, child], NEW_TOKENS - 6)
    cold = driver.request("cold", child.token_ids[: child.num_prompt_tokens])
    driver.prefill(cold)
    driver.decode([cold], NEW_TOKENS - 6)
    assert driver.output(parent) == expected[3]
    assert driver.output(child) == driver.output(cold)
    assert driver.output(child) != driver.output(parent)[6 : 6 + len(driver.output(child))]
    for request in (parent, child, cold):
        driver.finish(request)


def test_block_replaced_between_steps(
    tiny_runner: ModelRunner, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    """Copy-on-write replaces a block of a live table; the persistent row follows."""
    driver = driver_of(tiny_runner)
    request = driver.request("moved", prompts[4])
    driver.prefill(request)
    new, old = driver.free.pop(), request.block_table[1]
    request.block_table[1] = new
    driver.step(decodes=[request], copies=[(old, new)])
    driver.decode([request], NEW_TOKENS - 2)
    assert driver.output(request) == expected[4]
    driver.finish(request)


@pytest.mark.parametrize(
    "shape",
    [
        {"tied": False},
        {"num_heads": 4, "num_kv_heads": 4},
        {"num_heads": 6, "num_kv_heads": 1},
        {"qkv_bias": True},
    ],
    ids=["untied", "no groups", "one kv head", "bias"],
)
def test_other_shapes(shape: dict[str, Any]) -> None:
    model = tiny_llama(seed=3, **shape)
    prompt = random_prompts(model.config.vocab_size)[4]
    driver = driver_of(runner_of(model))
    request = driver.request("r", prompt)
    driver.prefill(request)
    want = reference_greedy(model.reference, prompt, NEW_TOKENS)
    assert finish(driver, [request]) == [want]


class DenseStep:
    """Attention of a whole prompt in one step, written out: no pool, no blocks."""

    def __init__(self, head_dim: int) -> None:
        self._head_dim = head_dim

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        shape = (len(key), -1, self._head_dim)
        scale = self._head_dim**-0.5
        return dense_attention(query, key.view(shape), value.reshape(shape), 0, scale).flatten(1)


def test_paging_changes_nothing_in_float64() -> None:
    """Shuffled blocks, chunks and caching change the logits by rounding alone."""
    model = tiny_llama(dtype=torch.float64)
    prompt = random_prompts(model.config.vocab_size)[-1]
    runner = runner_of(model, "float64")

    def dense(ids: torch.Tensor) -> Any:
        rows = torch.arange(ids.shape[1])
        step = DenseStep(model.config.head_dim)
        logits = runner.decoder.forward(ids[0], rows, step, rows)
        return SimpleNamespace(logits=logits[None])

    assert logit_error(driver_of(runner), dense, prompt) < 1e-10


def test_bfloat16_logits_are_as_close_as_the_reference_in_bfloat16() -> None:
    exact = tiny_llama(dtype=torch.float64)
    rounded = tiny_llama(dtype=torch.bfloat16)
    prompt = random_prompts(exact.config.vocab_size)[-1]
    # The same weights for all three: those that bfloat16 can hold.
    exact.reference.load_state_dict(rounded.reference.state_dict())
    with torch.inference_mode():
        theirs = rounded.reference(torch.tensor([prompt])).logits.double()
        error = (theirs - exact.reference(torch.tensor([prompt])).logits).abs().max()
    ours = logit_error(driver_of(runner_of(rounded, "bfloat16")), exact.reference, prompt)
    assert ours <= 2 * float(error)


# --- the starter model ---


STARTER_TEXTS = [
    "Why is the sky blue?",
    "Write a short poem about paging memory.",
    "List three prime numbers and say why they are prime.",
    "def fibonacci(n):",
    "Translate 'good morning' into French, Spanish and German, one a line.",
]


def test_starter_model_equals_transformers() -> None:
    from transformers import LlamaForCausalLM

    starter = starter_files()
    reference: Any = LlamaForCausalLM.from_pretrained(starter.folder, dtype=torch.float32)
    reference.eval()
    encode = starter.tokenizer().encode_text
    prompts = [encode(text) for text in STARTER_TEXTS]
    want = [reference_greedy(reference, prompt, NEW_TOKENS) for prompt in prompts]
    runner = build_runner(
        starter.config, starter.weights(), num_blocks=96, max_model_len=512, dtype="float32"
    )
    driver = driver_of(runner)
    alone = driver.request("alone", prompts[0])
    driver.prefill(alone)
    assert finish(driver, [alone]) == [want[0]]
    driver = driver_of(runner)
    requests = [driver.request(str(i), prompt) for i, prompt in enumerate(prompts)]
    for request in requests:
        driver.prefill(request)
    assert finish(driver, requests) == want
    assert logit_error(driver_of(runner), reference, prompts[1] + want[1]) < 1e-4
