"""The panel's model against the real engine core: sharing, forks, copies, eviction, preemption."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from app.cache_panel.history import History
from app.cache_panel.past import Past
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import Undo
from engine.api.errors import UnknownIdError
from engine.api.events import BlockEventKind, BlockView, PoolEvent
from engine.snapshotter import Snapshotter
from tests.helpers.engine_cases import CheckedEngine

BLOCK_SIZE = 8
NUM_BLOCKS = 26
STEPS = 220


class Talk:
    """Conversations at random over a pool that is too small for them, followed by the model."""

    def __init__(self, seed: int, lag: int) -> None:
        self.random = random.Random(seed)
        self.lag = lag
        self.engine = CheckedEngine(NUM_BLOCKS, BLOCK_SIZE, lag=lag, token_budget=32)
        self.snapshots = Snapshotter(self.engine.core, block_bytes=1024)
        self.model = PoolModel.from_snapshot(self.snapshots.snapshot(0.0))
        self.history: list[tuple[tuple[object, ...], PoolEvent, Undo]] = []
        self.causes: set[str] = set()
        self.kinds: set[BlockEventKind] = set()
        self.names = 0

    def act(self) -> None:
        """Perhaps a command, then a step, then the model must equal the pool."""
        live = list(self.engine.core.requests)
        roll = self.random.random()
        if roll < 0.2 and len(live) < 6:
            self.submit()
        elif roll < 0.24 and live:
            self.engine.cancel(self.random.choice(live))
        elif roll < 0.30 and live:
            self.names += 1
            with suppress(UnknownIdError):
                child = f"f{self.names}"
                self.engine.core.fork(self.random.choice(live), child, child, seed=None)
        self.engine.step()
        self.follow()

    def submit(self) -> None:
        self.names += 1
        prefix = [1] * self.random.choice([0, 20, 40])
        own = [self.random.randrange(2, 900) for _ in range(self.random.randint(1, 30))]
        prompt = prefix + own
        if self.engine.core.manager.can_ever_fit(prompt):
            self.engine.add(f"r{self.names}", prompt, max_tokens=self.random.randint(1, 40))

    def follow(self) -> None:
        for event in self.engine.fold.events[self.model.last_seq :]:
            before = self.now()
            undo = self.model.forward(event)
            assert undo is not None, self.model.inconsistency
            self.history.append((before, event, undo))
            self.causes.add(event.cause)
            if hasattr(event, "kind"):
                self.kinds.add(event.kind)
        self.compare()

    def now(self) -> tuple[object, ...]:
        return blocks_of(self.model), tables_of(self.model), self.model.last_step.tolist()

    def compare(self) -> None:
        core = self.engine.core
        fresh = PoolModel.from_snapshot(self.snapshots.snapshot(0.0))
        assert blocks_of(self.model) == blocks_of(fresh)
        assert tables_of(self.model) == core.live_tables()
        if self.lag == 0:
            # With a step in flight an event carries the step of its commit, one later, and a
            # snapshot leaves out requests that have ended but still hold their blocks.
            assert self.model.last_step.tolist() == fresh.last_step.tolist()
            assert tables_of(self.model) == tables_of(fresh)
        assert self.model.counts == fresh.counts
        assert self.model.last_seq == fresh.last_seq

    def rewind(self) -> None:
        for before, event, undo in reversed(self.history):
            assert self.model.backward(event, undo), self.model.inconsistency
            assert self.now() == before


def blocks_of(model: PoolModel) -> list[BlockView]:
    return [model.view(block) for block in range(model.num_blocks)]


def tables_of(model: PoolModel) -> dict[str, list[int]]:
    return {table.request_id: table.blocks[:] for table in model.tables.values()}


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_model_equals_the_engine_after_every_step_and_backwards(seed: int, lag: int) -> None:
    talk = Talk(seed, lag)
    for _ in range(STEPS):
        talk.act()
    wanted = {BlockEventKind.HIT, BlockEventKind.STORED, BlockEventKind.REMOVED}
    assert wanted | {BlockEventKind.COPIED} <= talk.kinds
    assert any("preempt" in cause for cause in talk.causes), talk.causes
    talk.rewind()


def test_answers_to_one_prompt_take_from_the_cache_what_the_engine_says() -> None:
    engine = CheckedEngine(NUM_BLOCKS, BLOCK_SIZE)
    snapshots = Snapshotter(engine.core, block_bytes=1024)
    model = PoolModel.from_snapshot(snapshots.snapshot(0.0))
    # Ends within a block, and with the end of one.
    for name, length in (("a", 20), ("b", 24)):
        prompt = [len(name) + length + i for i in range(length)]
        engine.add(name, prompt, max_tokens=20)
        engine.add(f"{name}2", prompt, max_tokens=20, sibling=name)
    history = []
    for step in range(6):
        if step == 4:
            engine.core.fork("a", "fork", "c9", seed=None)
        engine.step()
        for event in engine.fold.events[model.last_seq :]:
            before = dict(model.hit_tokens)
            undo = model.forward(event)
            assert undo is not None, model.inconsistency
            history.append((before, event, undo))
    found = {r.request_id: r.num_cached_tokens for r in engine.core.requests.values()}
    assert (found["a2"], found["b2"]) == (19, 23)
    assert found["fork"] > 20
    assert model.hit_tokens == {name: count for name, count in found.items() if count}
    middle = model.copy()
    for before, event, undo in reversed(history):
        assert model.backward(event, undo), model.inconsistency
        assert model.hit_tokens == before
    assert model.apply([event for _before, event, _undo in history])
    assert model.hit_tokens == middle.hit_tokens


def test_a_packed_past_takes_from_the_cache_what_the_present_does() -> None:
    engine = CheckedEngine(NUM_BLOCKS, BLOCK_SIZE)
    model = PoolModel.from_snapshot(Snapshotter(engine.core, 1024).snapshot(0.0))
    history = History()
    engine.add("a", list(range(20)), max_tokens=20)
    engine.add("a2", list(range(20)), max_tokens=20, sibling="a")
    seen = [dict(model.hit_tokens)]
    for _ in range(6):
        engine.step()
        for event in engine.fold.events[model.last_seq :]:
            assert model.apply([event], history.add)
            seen.append(dict(model.hit_tokens))
    assert seen[-1] == {"a2": 19}
    past = Past(model, history)
    for position in [*range(history.end, -1, -1), *range(history.end + 1)]:
        past.seek(position)
        assert past.model.hit_tokens == seen[position]
