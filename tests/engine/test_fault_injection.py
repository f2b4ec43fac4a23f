"""Memory that runs out at any one place costs at most one request, and that one says so.

A short run is played once to count how often each place is passed, then once for each of those
times with a MemoryError there: before the place has done anything, and after it has done all.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import engine.model_runner
from engine.answer import Answer
from engine.api.errors import UnknownIdError
from engine.api.events import FinishReason
from engine.attention.paged_reference import PagedReferenceBackend
from engine.batch import InputBatch
from engine.block_hash import HashChain
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool
from engine.detokenizer import Detokenizer
from engine.event_log import PoolEventLog
from engine.flights import Flights
from engine.free_queue import FreeBlockQueue
from engine.kv_cache import KVCache
from engine.metrics import EngineMetrics
from engine.model_runner import ModelRunner
from engine.models.decoder import Decoder
from engine.scheduler import Scheduler
from tests.helpers import hash_runner
from tests.helpers.hash_runner import HashRunner
from tests.helpers.pool_fold import PoolFold
from tests.helpers.storm_setup import Asked, Setup, Subject
from tests.helpers.storm_subjects import IntegerSubject, TinySubject

BOOKS = [
    (Scheduler, "schedule"), (BlockManager, "examine"), (BlockManager, "admit"),
    (BlockManager, "append_slot"), (BlockManager, "own_block"), (BlockManager, "commit"),
    (BlockManager, "free"), (BlockManager, "fork"), (BlockPool, "allocate"), (BlockPool, "hit"),
    (BlockPool, "copy"), (BlockPool, "set_fill"), (BlockPool, "publish"), (BlockPool, "evict"),
    (BlockPool, "release"), (BlockPool, "lookup"), (FreeBlockQueue, "remove"),
    (FreeBlockQueue, "push_front"), (FreeBlockQueue, "push_back"), (HashChain, "upto"),
    (PoolEventLog, "append"), (Flights, "launch"), (Answer, "accept"), (Answer, "computed"),
    (Detokenizer, "feed"), (EngineMetrics, "record_step"), (HashRunner, "submit"),
    (hash_runner._Handle, "result"),
]  # fmt: skip
MODEL = [
    (ModelRunner, "submit"), (engine.model_runner._Done, "result"), (InputBatch, "build"),
    (PagedReferenceBackend, "begin_step"), (PagedReferenceBackend, "copy_blocks"),
    (KVCache, "store"), (KVCache, "copy_blocks"), (Decoder, "forward"),
    (engine.model_runner, "sample"), (engine.model_runner, "to_device"),
    (ModelRunner, "compute_logits"), (ModelRunner, "_sample_row"),
]  # fmt: skip
PROMPT = [(7 * i) % 300 for i in range(18)]


class Injector:
    """Counts how often a place is passed; at the ``at``-th time memory runs out."""

    def __init__(self, at: int, late: bool) -> None:
        self.at, self.late, self.count = at, late, 0

    def around(self, original: Callable[..., object]) -> Callable[..., object]:
        def place(*args: object, **kw: object) -> object:
            self.count += 1
            now = self.count == self.at
            if now and not self.late:
                raise MemoryError("planted")
            result = original(*args, **kw)
            if now:
                raise MemoryError("planted")
            return result

        return place


class Run:
    """Three prompts, two of them alike, in a pool that is too small; a fork and a cancellation.

    ``refused``: requests whose command failed.
    """

    def __init__(self, subject: Subject, num_blocks: int, follows: bool) -> None:
        self.subject, self.core = subject, subject.core
        self.core.log.enabled = True
        self.fold = PoolFold(num_blocks) if follows else None
        self.asked: dict[str, Asked] = {}
        self.refused: set[str] = set()
        self.num_made = 5
        self.said: dict[str, list[int]] = {}
        self.done: dict[str, object] = {}

    def play(self) -> None:
        for name, ids in (("a", PROMPT), ("b", PROMPT[:17]), ("c", PROMPT[::-1])):
            self.ask(name, ids)
        self.steps(4)
        self.command("d", lambda: self.core.fork("a", "d", "d", 0))
        self.steps(3)
        self.command("c", lambda: self.core.cancel("c"))
        self.ask("e", [*PROMPT, 5])
        self.steps(200)

    def ask(self, name: str, ids: list[int]) -> None:
        params = self.subject.greedy(10)
        self.asked[name] = Asked(tuple(ids), len(ids), params)
        self.command(name, lambda: self.core.add_request(name, ids, params))

    def command(self, name: str, run: Callable[[], object]) -> None:
        """The engine's thread tells the client of a command that failed, and goes on."""
        try:
            run()
        except MemoryError:
            self.refused.add(name)
        except UnknownIdError:
            assert name == "d", "only the fork's parent may have ended before"
            self.num_made -= 1
        self.take(self.core.take_events())

    def steps(self, most: int) -> None:
        for _ in range(most):
            if self.core.has_work:
                self.take(self.core.step())
        assert most < 100 or not self.core.has_work

    def take(self, events: list[object]) -> None:
        for event in events:
            self.said.setdefault(event.request_id, []).extend(getattr(event, "token_ids", ()))
            if hasattr(event, "usage"):
                assert event.request_id not in self.done
                self.done[event.request_id] = event
        assert self.core.violations() == []
        if self.fold is not None:
            self.fold.apply(self.core.log.drain())
            self.fold.check(self.core.pool, self.core.live_tables())

    def verify(self) -> None:
        for name in (*self.asked, "d"):
            asked = self.asked[name if name != "d" else "a"]
            expected = list(self.subject.expected(asked).ids)
            said, done = self.said.get(name, []), self.done.get(name)
            if done is None:
                assert not said
            elif done.reason is FinishReason.LENGTH:
                assert expected[len(expected) - len(said) :] == said
                assert done.turn.output_ids == tuple(expected)
            elif done.reason is FinishReason.ERROR:
                self.refused.add(name)
                assert done.error.code == "out_of_memory"
                assert "emory" in done.error.message
            else:
                assert (name, done.reason) == ("c", FinishReason.CANCELLED)
        assert len(self.done) == self.num_made - len(self.refused - set(self.done))
        assert len(self.refused) <= 1, f"{self.refused} for one fault"
        assert self.core.requests == {}
        assert self.core.pool.num_used == 0
        assert self.core.pool.num_free + self.core.pool.num_cached == self.core.pool.num_blocks
        assert self.subject.is_idle()
        if self.fold is not None:
            self.fold.rewind()


def play(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Setup], Subject],
    place: tuple[object, str],
    injector: Injector,
    lag: int,
) -> None:
    setup = Setup(8, 9, 64, 8, 0.0, 10_000, True, 100.0, lag)
    owner, name = place
    # An event that could not be kept leaves a gap in the sequence, which whoever listens sees.
    run = Run(make(setup), setup.num_blocks, follows=owner is not PoolEventLog)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, injector.around(getattr(owner, name)))
        run.play()
    run.verify()


def times_passed(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Setup], Subject],
    place: tuple[object, str],
    lag: int,
) -> int:
    injector = Injector(0, late=False)
    play(monkeypatch, make, place, injector, lag)
    assert injector.count > 0, f"the run never comes to {place}"
    return injector.count


def name_of(place: tuple[object, str]) -> str:
    return f"{getattr(place[0], '__name__', place[0])}.{place[1]}"


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("place", BOOKS, ids=name_of)
def test_books(place, lag, monkeypatch):
    count = times_passed(monkeypatch, IntegerSubject, place, lag)
    for at in range(1, count + 1):
        for late in (False, True):
            play(monkeypatch, IntegerSubject, place, Injector(at, late), lag)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("place", MODEL, ids=name_of)
def test_model(place, monkeypatch):
    count = times_passed(monkeypatch, TinySubject, place, 1)
    for at in range(1, count + 1):
        play(monkeypatch, TinySubject, place, Injector(at, late=at % 2 == 0), 1)
