"""Random conversations on a small pool, every step checked, every answer compared with no cache
at all.
"""

import random
from contextlib import suppress

import pytest

from engine.api.errors import UnknownIdError
from engine.api.events import FinishReason
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.hash_runner import reference_output


class Storm:
    """Submits, cancels and continues conversations at random while the engine runs."""

    def __init__(self, seed: int, lag: int) -> None:
        self.random = random.Random(seed)
        self.block_size = self.random.choice([8, 8, 16, 32])
        num_blocks = self.random.randint(6, 24) * 8 // self.block_size + 3
        self.engine = CheckedEngine(
            num_blocks,
            self.block_size,
            lag=lag,
            token_budget=self.random.choice([4, 16, 64, 512]),
            max_running_requests=self.random.choice([1, 3, 8]),
            watermark=self.random.choice([0.0, 0.05]),
        )
        self.prompts: dict[str, tuple[list[int], int]] = {}
        self.histories: list[list[int]] = [[self.random.randrange(9)] * 20]

    def submit(self) -> None:
        name = f"r{len(self.prompts)}"
        history = self.random.choice(self.histories)
        cut = self.random.randint(0, len(history))
        fresh = [self.random.randrange(900) for _ in range(self.random.randint(1, 25))]
        ids = history[:cut] + fresh
        wanted = self.random.randint(1, 30)
        if not self.engine.core.manager.can_ever_fit(ids):
            return
        self.engine.add(name, ids, max_tokens=wanted)
        self.prompts[name] = (ids, wanted)
        for index in range(self.random.choice([0, 0, 0, 1, 3])):
            self.engine.add(f"{name}.{index}", ids, max_tokens=wanted, sibling=name)
            self.prompts[f"{name}.{index}"] = (ids, wanted)

    def fork(self, parent: str) -> None:
        child = f"{parent}+{len(self.prompts)}"
        # With a step in flight the parent may turn out to have ended.
        with suppress(UnknownIdError):
            self.engine.core.fork(parent, child, child, seed=None)
            self.prompts[child] = self.prompts[parent]

    def pin(self, name: str) -> None:
        pins, pool = self.engine.core.pins, self.engine.core.pool
        pins.unpin(name)
        # Not so much that requests already accepted could never run.
        if pool.num_pinned == 0 and pool.num_blocks > 12:
            pins.pin(name, self.random.choice(self.histories)[: 4 * self.block_size])

    def act(self) -> None:
        roll = self.random.random()
        live = list(self.engine.core.requests)
        if roll < 0.12:
            self.submit()
        elif roll < 0.15 and live:
            self.engine.cancel(self.random.choice(live))
        elif roll < 0.18 and live:
            self.engine.core.scheduler.focus = self.random.choice([*live, ""])
        elif roll < 0.20 and live:
            self.engine.core.pause(self.random.choice(live))
        elif roll < 0.25 and live:
            self.engine.core.resume(self.random.choice(live))
        elif roll < 0.28 and live:
            self.fork(self.random.choice(live))
        elif roll < 0.30:
            where = self.random.choice(["fail_next_submit", "fail_next_result"])
            setattr(self.engine.runner, where, self.random.choice([MemoryError(), OSError("x")]))
        elif roll < 0.32:
            self.pin(f"p{self.random.randrange(2)}")
        before = len(self.engine.events)
        self.engine.step()
        for event in self.engine.events[before:]:
            turn = getattr(event, "turn", None)
            if turn is not None:
                self.histories.append([*turn.prompt_ids, *turn.output_ids])

    def calm(self) -> None:
        """Whatever was stopped goes on; nothing more is put in its way."""
        for name in list(self.engine.core.requests):
            self.engine.core.resume(name)
        for name in ("p0", "p1"):
            self.engine.core.pins.unpin(name)
        self.engine.runner.fail_next_submit = self.engine.runner.fail_next_result = None

    def verify(self) -> None:
        for name, (ids, wanted) in self.prompts.items():
            output, done = self.engine.output(name), self.engine.finished(name)
            expected = reference_output(ids, wanted)
            # A fork is told only what it says itself; its turn holds all of it.
            answer = list(done.turn.output_ids)
            assert answer == expected[: len(answer)]
            assert output == answer[len(answer) - len(output) :]
            if done.reason is FinishReason.LENGTH and done.limit == "max_tokens":
                assert len(answer) == wanted
        self.engine.fold.rewind()
        pool = self.engine.core.pool
        assert pool.num_used == 0
        assert pool.num_free + pool.num_cached == pool.num_blocks


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("seed", range(20))
def test_random_conversations(seed, lag):
    storm = Storm(seed, lag)
    for _ in range(250):
        storm.act()
    storm.calm()
    storm.engine.run()
    storm.verify()
