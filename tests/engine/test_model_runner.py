"""The runner as a whole: what it leaves alone, and how it fails."""

from __future__ import annotations

import pytest
import torch

from engine.api.params import SamplingParams
from engine.attention.paged_reference import PagedReferenceBackend
from engine.model_runner import ModelRunner, build_runner
from engine.scheduler_output import SchedulerOutput
from tests.helpers.runner_driver import RunnerDriver
from tests.helpers.tiny_model import tiny_llama

BLOCK_SIZE = 8
NUM_BLOCKS = 32
PROMPT = [5, 9, 200, 31, 7, 7, 8, 250, 11, 12, 90]


@pytest.fixture
def runner() -> ModelRunner:
    tiny = tiny_llama()
    return build_runner(
        tiny.config,
        tiny.weights(),
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        max_model_len=128,
        dtype="float32",
    )


def pool(runner: ModelRunner) -> list[torch.Tensor]:
    assert isinstance(runner.attention, PagedReferenceBackend)
    cache = runner.attention.cache
    return [*cache.k, *cache.v]


def test_a_step_changes_exactly_the_slots_it_computes(runner: ModelRunner) -> None:
    driver = RunnerDriver(runner, NUM_BLOCKS, BLOCK_SIZE)
    for tensor in pool(runner):
        tensor.fill_(float("nan"))
    first, second = driver.request("a", PROMPT), driver.request("b", PROMPT[:3])
    driver.prefill(second)
    before = [tensor.clone() for tensor in pool(runner)]
    driver.step(decodes=[second], prefills=[(first, 9)])
    written = {first.block_table[i // BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE for i in range(9)}
    written.add(second.block_table[0] * BLOCK_SIZE + 3)
    untouched = [slot for slot in range(NUM_BLOCKS * BLOCK_SIZE) if slot not in written]
    for now, then in zip(pool(runner), before, strict=True):
        flat_now, flat_then = (t.view(torch.int32).flatten(0, 1) for t in (now, then))
        assert torch.equal(flat_now[untouched], flat_then[untouched])
        assert bool(now.flatten(0, 1)[sorted(written)].isfinite().all())


def test_output_does_not_depend_on_what_else_is_in_the_pool(runner: ModelRunner) -> None:
    outputs = []
    for poison in (0.0, float("nan"), float("inf")):
        for tensor in pool(runner):
            tensor.fill_(poison)
        driver = RunnerDriver(runner, NUM_BLOCKS, BLOCK_SIZE, seed=int(poison == 0.0))
        requests = [driver.request("a", PROMPT), driver.request("b", PROMPT[:2])]
        for request in requests:
            driver.prefill(request, 4)
        driver.decode(requests, 20)
        outputs.append([driver.output(request) for request in requests])
        for request in requests:
            driver.finish(request)
    assert outputs[0] == outputs[1] == outputs[2]


def test_nan_fails_one_request_and_leaves_the_others(runner: ModelRunner) -> None:
    driver = RunnerDriver(runner, NUM_BLOCKS, BLOCK_SIZE)
    sick, well = driver.request("sick", PROMPT), driver.request("well", PROMPT)
    driver.prefill(sick)
    driver.prefill(well)
    pool(runner)[1][sick.block_table[0], 2] = float("nan")
    samples = driver.step(decodes=[sick, well])
    assert samples[0].request_id == "sick"
    assert samples[0].token_ids == ()
    assert "not finite" in samples[0].error
    assert samples[1].token_ids != ()
    assert not samples[1].error
    driver.decode([well], 5)
    cold = driver.request("cold", PROMPT)
    driver.prefill(cold)
    driver.decode([cold], 6)
    assert driver.output(well) == driver.output(cold)


def test_a_step_that_fails_as_a_whole_raises_and_the_next_one_works(runner: ModelRunner) -> None:
    driver = RunnerDriver(runner, NUM_BLOCKS, BLOCK_SIZE)
    bad = driver.request("bad", [*PROMPT, 10_000])
    with pytest.raises((IndexError, RuntimeError)):
        driver.prefill(bad)
    driver.finish(bad)
    good = driver.request("good", PROMPT)
    driver.prefill(good)
    assert len(driver.output(good)) == 1


def test_a_step_of_copies_alone(runner: ModelRunner) -> None:
    for tensor in pool(runner):
        tensor.normal_()
    before = [tensor.clone() for tensor in pool(runner)]
    result = runner.submit(SchedulerOutput(0, (), (), ((3, 5),))).result()
    assert result.samples == []
    for now, then in zip(pool(runner), before, strict=True):
        then[5] = then[3]
        assert torch.equal(now, then)


@pytest.mark.parametrize("lag", [0, 1])
def test_a_seeded_stream_survives_preemption_and_chunking(runner: ModelRunner, lag: int) -> None:
    """The same seed draws the same tokens whether or not the KV was thrown away on the way."""
    params = SamplingParams(temperature=1.0, top_p=0.95, repetition_penalty=1.2)
    driver = RunnerDriver(runner, NUM_BLOCKS, BLOCK_SIZE, lag=lag)
    whole = driver.request("whole", PROMPT, params, seed=7)
    driver.prefill(whole)
    driver.decode([whole], 20)
    broken = driver.request("broken", PROMPT, params, seed=7)
    driver.prefill(broken, 3)
    driver.decode([broken], 9)
    runner.forget("broken")
    driver.output(broken)
    broken.block_table, broken.num_computed_tokens = [], 0
    driver.prefill(broken, 5)
    driver.decode([broken], 10)
    assert driver.output(broken) == driver.output(whole)
    other = driver.request("other", PROMPT, params, seed=8)
    driver.prefill(other)
    driver.decode([other], 20)
    assert driver.output(other) != driver.output(whole)


def test_forgetting_a_stranger_is_allowed(runner: ModelRunner) -> None:
    runner.forget("nobody")


def test_a_chunk_that_samples_nothing_works_in_every_dtype() -> None:
    """No row is wanted then, and products of no rows are a special case in some libraries."""
    tiny = tiny_llama()
    for dtype in ("bfloat16", "float32", "float64"):
        runner = build_runner(
            tiny.config,
            tiny.weights(),
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            dtype=dtype,
        )
        driver = RunnerDriver(runner, NUM_BLOCKS, BLOCK_SIZE)
        request = driver.request("a", PROMPT)
        assert driver.step(prefills=[(request, 4)]) == []
        driver.prefill(request)
        assert len(driver.output(request)) == 1
