"""Steps whose decodes share beginnings, through graphs and without, say what plain steps say."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine import graph_sizes, step_graphs
from engine.api.params import SamplingParams
from engine.attention.prefix_groups import PrefixGroup
from engine.batch import StepBatch
from engine.device_drawer import DeviceDrawer, Drawn
from engine.device_steps import DeviceSteps
from engine.request import Request
from engine.step_graphs import StepGraphs
from engine.step_inputs import Layout, Sizes, StepInputs, sizes_of
from kernels.reference.sample import sample
from tests.helpers.grouping_attention import GroupingBackend
from tests.helpers.recorded_graphs import Fetched, Recorder, step_of
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine

CPU = torch.device("cpu")
PROMPT = list(range(5, 25))


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama(num_layers=2)


class Oracle:
    """What a model says to a prompt, one at a time."""

    def __init__(self, tiny: TinyModel) -> None:
        self._engine = torch_engine(tiny, "paged_reference", num_blocks=200)
        self._said: dict[tuple[tuple[int, ...], float], list[int]] = {}

    def check(self, request: Request) -> None:
        """The request's answer so far is the beginning of that."""
        request.drop_placeholders()
        given = request.num_prompt_tokens
        prompt, answer = request.token_ids[:given], request.token_ids[given:]
        key = (tuple(prompt), request.params.repetition_penalty)
        if len(self._said.get(key, [])) < len(answer):
            params = greedy(max(40, len(answer)), repetition_penalty=key[1])
            name = f"{len(self._said)}.{len(answer)}"
            self._engine.core.add_request(name, prompt, params)
            self._engine.run()
            self._said[key] = self._engine.output(name)
        assert answer == self._said.get(key, [])[: len(answer)], request.request_id


@pytest.fixture(scope="module")
def oracle(tiny: TinyModel) -> Oracle:
    return Oracle(tiny)


def greedy(max_tokens: int, **kw: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, seed=0, max_tokens=max_tokens, **kw)  # type: ignore[arg-type]


@pytest.fixture
def sharing(tiny: TinyModel, cuda, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shared]:
    """Makes engines whose decodes share every beginning of a block or more, at once."""
    monkeypatch.setattr(step_graphs, "_WANTED_LONG", 0)
    monkeypatch.setattr(step_graphs, "expected_sizes", lambda *_: [])

    def make(**config: object) -> Shared:
        return Shared(torch_engine(tiny, "paged_reference", **config), cuda)  # type: ignore[arg-type]

    return make


class Shared:
    """An engine as on a GPU; ``requests`` are those that were ever asked."""

    def __init__(self, engine: TorchEngine, cuda: Callable[..., Recorder]) -> None:
        self.engine, self.core = engine, engine.core
        runner = engine.runner
        config = runner.decoder.config
        cache = runner.attention.cache
        assert cache is not None
        self.attention = runner.attention = GroupingBackend(cache, config)
        drawer = DeviceDrawer(sample, config.vocab_size, CPU)
        self.steps = DeviceSteps(
            runner.compute_logits, drawer, 8, 6, 3, CPU,
            tiling=self.attention, shares=lambda count, tokens, _own: count > 1 and tokens >= 8,
        )  # fmt: skip
        self.steps._copies = Fetched()
        self.recorder = cuda(self.steps._captured)
        uploads = self.steps._uploads
        self.graphs = self.steps.graphs = StepGraphs(
            self.recorder, self.steps._batch, drawer, self.attention, uploads, CPU
        )
        runner._device_steps = self.steps
        self.requests: dict[str, Request] = {}

    def add(self, name: str, prompt: list[int], params: SamplingParams, sibling: str = "") -> None:
        self.requests[name] = self.core.add_request(name, prompt, params, sibling=sibling)

    def fork(self, parent: str, child: str) -> None:
        self.core.fork(parent, child, child, seed=0)
        self.requests[child] = self.core.requests[child]

    def check(self, oracle: Oracle) -> None:
        for request in self.requests.values():
            oracle.check(request)


@pytest.mark.parametrize("lag", [0, 1])
def test_one_that_is_cut_shares_no_more_than_it_has(sharing, oracle: Oracle, lag: int) -> None:
    """It goes on in the next step, at its old place among the decodes."""
    shared = sharing(lag=lag)
    shared.add("a", PROMPT, greedy(60))
    shared.engine.step(26)
    shared.fork("a", "b")
    shared.engine.step(6)
    assert shared.attention.num_groups > 3
    shared.core.truncate("b", len(PROMPT) + 2)
    shared.engine.run()
    shared.check(oracle)


@pytest.mark.parametrize("lag", [0, 1])
def test_a_fork_at_the_place_of_one_that_left_shares_its_parents_beginning(
    sharing, oracle: Oracle, lag: int
) -> None:
    shared = sharing(lag=lag)
    other = list(range(100, 130))
    shared.add("a", PROMPT, greedy(40))
    shared.add("b", other, greedy(40))
    shared.add("c", [*other, 7], greedy(40))
    shared.engine.step(9)
    assert shared.attention.num_groups > 3
    shared.core._loop.drain()
    # Otherwise a block would have to be copied, and groups be looked for anew.
    while shared.requests["a"].num_computed_tokens % 8:
        shared.engine.step()
        shared.core._loop.drain()
    shared.core.cancel("c")
    shared.fork("a", "d")
    shared.engine.run()
    shared.check(oracle)


class TooLargeError(Exception):
    """As Triton's ``OutOfResources``, which is no ``RuntimeError``."""


@pytest.mark.parametrize("in_spare_time", [True, False])
def test_where_the_kernels_of_shared_beginnings_cannot_run_each_reads_its_own(
    sharing, oracle: Oracle, monkeypatch: pytest.MonkeyPatch, in_spare_time: bool
) -> None:
    monkeypatch.setattr(step_graphs, "_WANTED_LONG", 500 if in_spare_time else 2)
    shared = sharing(lag=1)
    compute = shared.recorder.compute

    def too_large(inputs, sizes: Sizes, kind) -> Drawn:
        if sizes.groups:
            raise TooLargeError("out of resource: shared memory")
        return compute(inputs, sizes, kind)

    shared.recorder.compute = too_large
    for number in range(3):
        shared.add(f"r{number}", [*PROMPT, number], greedy(30))
    shared.engine.step(12)
    while in_spare_time and shared.engine.runner.prepare():
        """Nothing of it comes to an end."""
    shared.engine.run()
    shared.check(oracle)
    assert shared.core.metrics.num_preemptions == 0
    assert shared.graphs.failure == ""
    assert shared.recorder.num_replays > 5


def test_a_step_too_large_for_a_graph_needs_no_kernels_for_its_groups(
    sharing, oracle: Oracle
) -> None:
    """They would be compiled while all wait for it."""
    shared = sharing(lag=1, num_blocks=200, token_budget=600, prefill_time_budget_ms=1e6)
    compute, too_large = shared.steps._compute_logits, []

    def watch(batch: StepBatch) -> torch.Tensor:
        if len(batch.prefills) > graph_sizes.MAX_CHUNKS:
            too_large.append(batch.prefix_groups)
        return compute(batch)

    shared.steps._compute_logits = watch
    shared.add("warm", PROMPT, greedy(2))
    shared.engine.run()
    for number in range(3):
        shared.add(f"r{number}", [*PROMPT, number], greedy(12))
    shared.engine.step(6)
    assert shared.attention.num_groups > 0
    for number in range(10):
        shared.add(f"s{number}", [100 + number] * 4, greedy(2))
    shared.engine.run()
    shared.check(oracle)
    assert too_large == [None]


@pytest.mark.parametrize(("members", "width"), [(2, 2), (3, 4), (5, 8)])
def test_more_decodes_than_a_graph_has_come_in_groups_of_few_sizes(
    members: int, width: int
) -> None:
    """Kernels are compiled for a group's size: not for each number that is left as some end."""
    step, extras = step_of(300, 0)
    groups = tuple(PrefixGroup(tuple(range(k, k + members)), 2) for k in (0, 10, 20))
    sizes = sizes_of(step, replace(extras, groups=groups))
    assert (sizes.decodes, sizes.groups, sizes.width) == (300, 4, width)
    numbers = np.empty(sizes.words, np.int64)
    Layout(sizes, 3).write(step, replace(extras, groups=groups), numbers)
    pieces = torch.split(torch.from_numpy(numbers), sizes.parts)
    written = StepInputs.of(pieces, sizes.groups).groups
    assert written is not None
    assert written.shared_blocks.tolist() == [2, 2, 2, 0]
    assert (written.members >= 0).sum(1).tolist() == [members] * 3 + [0]


def disturb(shared: Shared, draw: random.Random) -> None:
    """Something that may happen between two steps."""
    core, names = shared.core, list(shared.core.requests)
    what = draw.choice(["add", "siblings", "fork", "cut", "cancel", "pause", "resume", "leisure"])
    if what in ("add", "siblings") and len(names) < 8:
        begin = draw.choice([PROMPT, [*PROMPT, *range(40, 55)], list(range(100, 118))])
        prompt = begin + [draw.randrange(3, 300) for _ in range(draw.choice([1, 2, 20]))]
        params = greedy(
            draw.randint(5, 40),
            repetition_penalty=draw.choice([1.0, 1.4]),
            logprobs=draw.choice([None, 2]),
        )
        first = f"r{len(shared.requests)}"
        shared.add(first, prompt, params)
        for _ in range(2 * (what == "siblings")):
            shared.add(f"r{len(shared.requests)}", prompt, params, sibling=first)
    elif what == "leisure":
        for _ in range(draw.randint(1, 4)):
            shared.engine.runner.prepare()
    elif what == "resume":
        for name in names:
            core.resume(name)
    elif names:
        name = draw.choice(names)
        if what == "cancel":
            core.cancel(name)
        elif what == "pause":
            core.pause(name)
        # Steps in flight may end it.
        core._loop.drain()
        if what == "fork" and name in core.requests:
            shared.fork(name, f"r{len(shared.requests)}")
        elif what == "cut" and name in core.requests:
            given = core._ledger.answers[name].num_given_tokens
            core.truncate(name, draw.randint(given, core.requests[name].num_tokens))


@pytest.mark.parametrize("seed", [0, 1, 17, 28, 48, 50])
def test_whatever_happens_between_steps(
    sharing, oracle: Oracle, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Forks, cuts, preemption, few graphs, and graphs made ready at any time."""
    draw = random.Random(seed)
    monkeypatch.setattr(step_graphs, "_WANTED_LONG", draw.choice([0, 5]))
    monkeypatch.setattr(step_graphs, "MOST_GRAPHS", draw.choice([3, 160]))
    shared = sharing(
        lag=seed % 2,
        num_blocks=draw.choice([18, 30, 60]),
        token_budget=draw.choice([16, 64]),
        max_running_requests=draw.choice([3, 5, 12]),
    )
    for _ in range(60):
        disturb(shared, draw)
        shared.engine.step(draw.randint(0, 5))
    for name in list(shared.core.requests):
        shared.core.resume(name)
    shared.engine.run()
    shared.check(oracle)
    assert shared.core.metrics.num_begun_anew == 0
    assert shared.attention.num_groups > 0
    assert shared.recorder.num_replays > 10
