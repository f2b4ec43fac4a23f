"""A small engine over the integer model, with the pool's invariants checked after every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.api.events import RequestEvent, RequestFinished, TokensGenerated
from engine.api.params import EngineConfig, SamplingParams
from engine.block_hash import root_hash
from engine.core import EngineCore
from engine.limits import ModelLimits
from tests.helpers.hash_runner import HashRunner
from tests.helpers.pool_fold import PoolFold

NEVER_ENDS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    stopped: bool = False
    stop: str = ""


@dataclass(slots=True)
class NumberStream:
    """Text of the integer model: each id in brackets, nothing held back."""

    ids: list[int] = field(default_factory=list)

    def follow(self, token_ids: Sequence[int]) -> None:
        """Nothing that was told is held back."""

    def feed(self, token_ids: Sequence[int]) -> Piece:
        self.ids.extend(token_ids)
        return Piece("".join(f"[{token}]" for token in token_ids))

    def flush(self) -> str:
        return ""

    def kept_tokens(self) -> tuple[int, int]:
        return len(self.ids), 0


def cannot_read_again(self: NumberStream, token_ids: Sequence[int]) -> Piece:
    """``feed`` that takes new tokens one by one, but breaks when fed with many."""
    if len(token_ids) > 1:
        raise MemoryError("planted")
    return Piece(f"[{token_ids[0]}]")


class FakeClock:
    """Advances a millisecond a look, so that durations are never zero."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


class CheckedEngine:
    """An EngineCore over ``HashRunner`` that keeps all events and checks every step."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 8,
        *,
        context_length: int = 10_000,
        eos: frozenset[int] = NEVER_ENDS,
        **config: object,
    ) -> None:
        self.runner = HashRunner(num_blocks, block_size)
        settings = EngineConfig.from_mapping({"block_size": block_size, "watermark": 0.0, **config})
        limits = ModelLimits(context_length, eos, root_hash("test"), "fingerprint")
        self.core = EngineCore(
            self.runner, limits, settings, num_blocks, lambda stop: NumberStream(), FakeClock()
        )
        self.events: list[RequestEvent] = []
        self.fold = PoolFold(num_blocks)
        self.core.log.enabled = True
        self.may_begin_anew = False

    def add(self, request_id: str, prompt: Sequence[int], max_tokens: int = 8, **kw: object):
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, seed=0)
        return self.core.add_request(request_id, prompt, params, **kw)

    def step(self) -> list[RequestEvent]:
        events = self.core.step()
        self.events.extend(events)
        self.check()
        return events

    def cancel(self, request_id: str) -> None:
        self.core.cancel(request_id)
        self.events.extend(self.core.take_events())
        self.check()

    def check(self) -> None:
        assert self.core.violations() == []
        assert self.runner.faults == []
        # The core survives a fault of its own; a test that did not plant one must not.
        assert self.may_begin_anew or not self.core.metrics.num_begun_anew
        self.fold.apply(self.core.log.drain())
        self.fold.check(self.core.pool, self.core.live_tables())

    def run(self, max_steps: int = 10_000) -> None:
        for _ in range(max_steps):
            if not self.core.has_work:
                return
            self.step()
        raise AssertionError(f"still busy after {max_steps} steps")

    def output(self, request_id: str) -> list[int]:
        return [
            token
            for event in self.events
            if isinstance(event, TokensGenerated) and event.request_id == request_id
            for token in event.token_ids
        ]

    def finished(self, request_id: str) -> RequestFinished:
        (event,) = [
            event
            for event in self.events
            if isinstance(event, RequestFinished) and event.request_id == request_id
        ]
        return event
