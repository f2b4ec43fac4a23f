"""Steps that stay in flight: newest tokens and block tables live with the model, and the answers
are those of steps that are waited for.
"""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.api.events import FinishReason
from engine.api.params import SamplingParams
from engine.device_batch import DeviceBatch
from engine.device_drawer import DeviceDrawer
from engine.device_steps import NOT_FINITE, DeviceSteps
from engine.graph_sizes import graph_rows
from engine.model_runner import ModelRunner
from engine.request import Request
from engine.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step_inputs import Extras, Layout, Sizes
from kernels.reference.sample import Sampled, sample, unpack
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama()


class Spoiler:
    """The reference of the drawing kernel; takes the first row's token away when told to."""

    def __init__(self) -> None:
        self.spoil_next = False

    def __call__(self, logits: Tensor, parameters: Tensor, counts=None, **kw) -> Sampled:
        drawn = sample(logits, parameters, counts, **kw)
        if self.spoil_next:
            self.spoil_next = False
            drawn.tokens[0] = NOT_FINITE
        return drawn


def in_flight(engine: TorchEngine, max_requests: int = 2) -> Spoiler:
    """Lets the engine's runner compute through ``DeviceSteps``."""
    runner, spoiler = engine.runner, Spoiler()
    device = runner.decoder.device
    runner._device_steps = DeviceSteps(
        runner.compute_logits,
        DeviceDrawer(spoiler, runner.decoder.config.vocab_size, device),
        runner._block_size,
        4,
        max_requests,
        device,
    )
    return spoiler


def conversations(seed: int) -> list[tuple[list[int], int]]:
    draw = random.Random(seed)
    system = [draw.randrange(3, 300) for _ in range(20)]
    return [
        (system + [draw.randrange(3, 300) for _ in range(draw.randint(1, 30))], draw.randint(1, 30))
        for _ in range(7)
    ]


def answers(engine: TorchEngine, seed: int, disturb: bool = False) -> list[list[int]]:
    asked = conversations(seed)
    for number, (prompt, count) in enumerate(asked):
        engine.add(f"r{number}", prompt, count)
        engine.step(2)
        if disturb and number == 3 and "r0" in engine.core.requests:
            engine.core.pause("r0")
            engine.step(3)
            engine.core.resume("r0")
    engine.run()
    return [engine.output(f"r{number}") for number in range(len(asked))]


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_blocks", [14, 64])
def test_answers_are_those_of_steps_that_are_waited_for(tiny, lag, seed, num_blocks):
    """Growing tables, more requests than rows, preemption in the small pool, chunks, hits."""
    plain = torch_engine(tiny, "paged_reference", num_blocks=64)
    engine = torch_engine(tiny, "paged_reference", num_blocks=num_blocks, lag=lag, token_budget=24)
    in_flight(engine)
    assert answers(engine, seed, disturb=True) == answers(plain, seed)
    if num_blocks == 14:
        assert engine.core.metrics.num_preemptions > 0 or seed


@pytest.mark.parametrize("lag", [0, 1])
def test_forks_share_and_copy(tiny, lag):
    plain = torch_engine(tiny, "paged_reference")
    plain.add("a", list(range(5, 40)), 20)
    plain.run()
    engine = torch_engine(tiny, "paged_reference", lag=lag)
    in_flight(engine)
    engine.add("a", list(range(5, 40)), 20)
    engine.add("sibling", list(range(5, 40)), 20, sibling="a")
    engine.step(6)
    said = len(engine.core.requests["a"].token_ids) - 35
    engine.core.fork("a", "b", "b", seed=3)
    engine.events.extend(engine.core.take_events())
    said = engine.core.requests["b"].num_tokens - 35
    engine.run()
    assert engine.output("a") == engine.output("sibling") == plain.output("a")
    assert engine.output("b") == plain.output("a")[said:]


@pytest.mark.parametrize("lag", [0, 1])
def test_logits_that_are_no_numbers_end_their_request_alone(tiny, lag):
    plain = torch_engine(tiny, "paged_reference")
    engine = torch_engine(tiny, "paged_reference", lag=lag)
    spoiler = in_flight(engine)
    for each in (plain, engine):
        each.add("a", [5, 6, 7], 12)
        each.add("b", [8, 9], 12)
        each.step(5)
    spoiler.spoil_next = True
    plain.run()
    engine.run()
    finished = engine.finished("a")
    assert finished.reason is FinishReason.ERROR
    assert finished.error is not None
    assert "not finite" in finished.error.message
    assert engine.output("b") == plain.output("b")


@pytest.mark.parametrize("lag", [0, 1])
def test_who_asks_again_after_such_logits_is_not_given_their_keys(tiny, lag):
    engine = torch_engine(tiny, "paged_reference", lag=lag)
    spoiler = in_flight(engine)
    prompt = list(range(5, 40))
    engine.add("a", prompt, 12)
    engine.step(8)
    manager = engine.core._loop._manager
    assert manager.known_prefix(prompt)
    spoiler.spoil_next = True
    engine.run()
    assert engine.finished("a").reason is FinishReason.ERROR
    assert manager.known_prefix(prompt) == []
    engine.add("again", prompt, 12)
    engine.run()
    assert engine.finished("again").usage.cached_tokens == 0


PENALISED = SamplingParams(
    temperature=0.8,
    top_k=40,
    top_p=0.9,
    repetition_penalty=1.3,
    presence_penalty=0.4,
    frequency_penalty=0.2,
    seed=2**64 - 3,
    max_tokens=25,
)
MIXED = [
    PENALISED,
    SamplingParams(temperature=0.0, max_tokens=25),
    SamplingParams(temperature=1.1, seed=5, max_tokens=25, logprobs=3),
    SamplingParams(temperature=0.9, min_p=0.1, seed=6, max_tokens=25),
    SamplingParams(temperature=0.0, repetition_penalty=1.5, max_tokens=25),
]


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("num_blocks", [16, 64])
def test_every_way_of_drawing_is_the_hosts(tiny, lag, num_blocks):
    """Penalties count on the device; preemption, forks and cuts keep the count."""
    plain = torch_engine(tiny, "paged_reference")
    engine = torch_engine(tiny, "paged_reference", num_blocks=num_blocks, lag=lag)
    in_flight(engine)
    for each in (engine, plain):
        for number, params in enumerate(MIXED):
            prompt = list(range(5 + number, 40))
            each.core.add_request(f"r{number}", prompt, params)
    parent = engine.core.requests["r0"]
    while parent.num_output_tokens < 7:
        engine.step()
    engine.core.fork("r0", "child", "child", seed=9)
    forked_at = engine.core.requests["child"].num_tokens
    engine.core.truncate("r0", 37)
    engine.run()
    while plain.core.requests["r0"].num_tokens < forked_at:
        plain.step()
    plain.core.fork("r0", "child", "child", seed=9)
    plain.run()
    names = [*(f"r{number}" for number in range(len(MIXED))), "child"]
    for name in names:
        assert engine.finished(name).turn == plain.finished(name).turn, name
    found = [e.logprobs for e in engine.events if getattr(e, "logprobs", ())]
    wanted = [e.logprobs for e in plain.events if getattr(e, "logprobs", ())]
    assert len(found) == len(wanted) == 25
    for a, b in zip(found, wanted, strict=True):
        assert a == pytest.approx(b, abs=1e-4)
    tops = [
        [e.top_logprobs[0] for e in each.events if getattr(e, "top_logprobs", ())]
        for each in (engine, plain)
    ]
    for ours, theirs in zip(*tops, strict=True):
        assert [token for token, _ in ours] == [token for token, _ in theirs]
        assert len(ours) == 3
        for (_, a), (_, b) in zip(ours, theirs, strict=True):
            assert a == pytest.approx(b, abs=1e-4)
    if num_blocks == 16:
        assert engine.core.metrics.num_preemptions > 0


def test_row_of_one_that_left_draws_with_the_newcomers_parameters():
    batch = device_batch(1)
    for name, temperature in (("a", 0.5), ("b", 2.0)):
        params = SamplingParams(temperature=temperature)
        request = Request(name, name, [1, 2, 3], 2, params, 7, 0.0, block_table=[0])
        step = batch.lay(SchedulerOutput(1, (), (ScheduledChunk(request, 0, 3, samples=True),)))
        (row,) = unpack(torch.from_numpy(step.draws))
        assert (row.temperature, row.seed) == (temperature, 7)
        # The token at position 3 is output number 1.
        assert row.output_index == 1
        batch.forget(name)


@pytest.mark.parametrize("failing", [1, 2])
def test_tables_that_found_no_memory_to_grow_grow_in_the_next_step(tiny, monkeypatch, failing):
    """Newest tokens and tables are as many, or a step would read beyond one of them."""
    plain = torch_engine(tiny, "paged_reference")
    engine = torch_engine(tiny, "paged_reference", lag=1)
    in_flight(engine)
    steps = engine.runner._device_steps
    assert steps is not None
    for each in (engine, plain):
        for number in range(2):
            each.add(f"r{number}", [5 + number, 6, 7], 20)
        each.step(3)
    grows, zeros, calls = steps._batch._grow, torch.zeros, []

    def no_memory(*sizes: object, **kw: object) -> Tensor:
        calls.append(sizes)
        if len(calls) == failing:
            raise RuntimeError("CUDA out of memory.")
        return zeros(*sizes, **kw)  # type: ignore[call-overload, no-any-return]

    def grow() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(torch, "zeros", no_memory)
            grows()

    monkeypatch.setattr(steps._batch, "_grow", grow)
    for each in (engine, plain):
        each.add("third", [9, 8, 7], 20)
        each.run()
    assert len(calls) == failing + 2
    # Each was computed again once, after the step that broke off.
    assert engine.core.metrics.num_preemptions == 3
    for name in ("r0", "r1", "third"):
        assert engine.output(name) == plain.output(name)


def device_batch(max_requests: int) -> DeviceBatch:
    device = torch.device("cpu")
    return DeviceBatch(8, 4, max_requests, device, DeviceDrawer(sample, 320, device))


def test_padding_writes_and_attends_to_nothing():
    batch = device_batch(4)
    requests = []
    for number in range(3):
        request = Request(f"r{number}", "", [1, 2, 3], 2, SamplingParams(), 7, 0.0)
        request.block_table, request.num_computed_tokens = [number], 2
        requests.append(request)
    chunks = tuple(ScheduledChunk(request, 2, 1, samples=True) for request in requests)
    step = batch.lay(SchedulerOutput(1, chunks, ()))
    sizes = Sizes(decodes=4, prompt=0, samples=4, tiles=0)
    numbers = np.empty(sizes.words, np.int64)
    Layout(sizes, batch.padding_row).write(step, Extras.none(), numbers)
    ids, positions, slots, lengths, rows, _, _, draws, *_ = np.split(
        numbers, np.cumsum(sizes.parts)[:-1]
    )
    assert slots.tolist() == [2, 10, 18, -1]
    assert lengths.tolist() == [3, 3, 3, 0]
    assert rows[-1] == batch.padding_row == 4
    assert len(ids) == len(positions) == 4
    # Nothing is counted for it.
    draws = draws.reshape(4, -1)
    assert unpack(torch.from_numpy(draws))[-1].count_slot is None


def test_graph_sizes_grow_by_a_third_at_most():
    sizes = sorted({graph_rows(count) for count in range(1, 257)})
    assert sizes[:4] == [1, 2, 4, 8]
    for count in range(1, 257):
        assert count <= graph_rows(count) <= 256
    for smaller, larger in pairwise(sizes[4:]):
        assert larger <= smaller * 1.34


def test_runner_is_the_models(tiny):
    engine = torch_engine(tiny, "paged_reference")
    assert isinstance(engine.runner, ModelRunner)
    assert engine.runner._device_steps is None
