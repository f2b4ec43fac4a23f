"""Steps that stay in flight: newest tokens and block tables live with the model, and the answers
are those of steps that are waited for.
"""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from engine.api.events import FinishReason
from engine.api.params import SamplingParams
from engine.decode_graphs import graph_rows, padded
from engine.device_batch import DRAW_WORDS, DeviceBatch, draw_words
from engine.device_steps import NOT_FINITE, DeviceSteps
from engine.model_runner import ModelRunner
from engine.request import Request
from engine.scheduler_output import SchedulerOutput
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama()


class Greedy:
    """Draws the best token; forgets a row's logits where it is told to."""

    def __init__(self) -> None:
        self.spoil_next = False

    def __call__(self, logits: Tensor, draws: Tensor, rows: Tensor) -> Tensor:
        assert draws.shape == (len(logits), DRAW_WORDS)
        assert rows.shape == (len(logits),)
        tokens = logits.argmax(-1)
        if self.spoil_next:
            self.spoil_next = False
            tokens[0] = NOT_FINITE
        return tokens


def in_flight(engine: TorchEngine, max_requests: int = 2) -> Greedy:
    """Lets the engine's runner compute through ``DeviceSteps``."""
    runner, drawer = engine.runner, Greedy()
    runner._device_steps = DeviceSteps(
        runner.compute_logits,
        drawer,
        runner._block_size,
        4,
        max_requests,
        runner.decoder.device,
    )
    return drawer


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
    drawer = in_flight(engine)
    for each in (plain, engine):
        each.add("a", [5, 6, 7], 12)
        each.add("b", [8, 9], 12)
        each.step(5)
    drawer.spoil_next = True
    plain.run()
    engine.run()
    finished = engine.finished("a")
    assert finished.reason is FinishReason.ERROR
    assert finished.error is not None
    assert "not finite" in finished.error.message
    assert engine.output("b") == plain.output("b")


def test_draw_words_carry_every_parameter():
    params = SamplingParams(
        temperature=0.7,
        top_k=40,
        top_p=0.9,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=-0.5,
        frequency_penalty=0.25,
    )
    request = Request("r", "r", [1] * 9, 5, params, 2**64 - 3, 0.0)
    words = draw_words(request)
    bits = torch.from_numpy(words).to(torch.int32).view(torch.float32).tolist()
    fractions = [bits[0], *bits[2:7]]
    wanted = [0.7, 0.9, 0.05, 1.1, -0.5, 0.25]
    assert all(math.isclose(a, b, rel_tol=1e-7) for a, b in zip(fractions, wanted, strict=True))
    assert words[1] == 40
    assert words[7] == -3
    # The token at position 9 is output number 4.
    assert words[8] + 9 == 4


def test_row_of_one_that_left_draws_with_the_newcomers_parameters():
    batch = DeviceBatch(8, 4, 1, torch.device("cpu"))
    for name, temperature in (("a", 0.5), ("b", 2.0)):
        request = Request(name, name, [1, 2, 3], 3, SamplingParams(temperature=temperature), 7, 0.0)
        request.block_table = [0]
        step = batch.lay(SchedulerOutput(1, (), (chunk_of(request),)))
        bits = torch.from_numpy(step.draws[0]).to(torch.int32).view(torch.float32)
        assert float(bits[0]) == temperature
        batch.forget(name)


def chunk_of(request: Request):
    from engine.scheduler_output import ScheduledChunk

    return ScheduledChunk(request, 0, request.num_tokens, samples=True)


def test_padding_writes_and_attends_to_nothing():
    batch = DeviceBatch(8, 4, 4, torch.device("cpu"))
    requests = []
    for number in range(3):
        request = Request(f"r{number}", "", [1, 2, 3], 2, SamplingParams(), 7, 0.0)
        request.block_table, request.num_computed_tokens = [number], 2
        requests.append(request)
    from engine.scheduler_output import ScheduledChunk

    chunks = tuple(ScheduledChunk(request, 2, 1, samples=True) for request in requests)
    step = batch.lay(SchedulerOutput(1, chunks, ()))
    ids, positions, slots, lengths, rows, draws = padded(step, 4, batch.padding_row)
    assert slots.tolist() == [2, 10, 18, -1]
    assert lengths.tolist() == [3, 3, 3, 0]
    assert rows[-1] == batch.padding_row == 4
    assert len(ids) == len(positions) == len(draws) == 4


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
