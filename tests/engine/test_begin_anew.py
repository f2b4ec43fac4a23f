"""An exception in the books themselves, at any place and time: at most one request ends by it, and
the pool is whole again.
"""

import pytest

from engine.api.events import FinishReason
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.hash_runner import reference_output

SYSTEM = list(range(300, 332))
PROMPTS = {f"r{number}": [*SYSTEM, *[number] * (5 + number)] for number in range(4)}
SITES = [
    ("pool", "allocate"),
    ("pool", "hit"),
    ("pool", "release"),
    ("pool", "publish"),
    ("pool", "set_fill"),
    ("manager", "commit"),
    ("manager", "examine"),
    ("manager", "admit"),
    ("scheduler", "schedule"),
]


class Fuse:
    """Replaces a method so that its call number ``count`` raises, once or for ever after."""

    def __init__(self, target: object, name: str, count: int, for_ever: bool = False) -> None:
        self.left = count
        self.blown = False
        original = getattr(target, name)

        def call(*args: object, **kw: object) -> object:
            self.left -= 1
            if self.left == 0 or (for_ever and self.left < 0):
                self.blown = True
                raise MemoryError("planted")
            return original(*args, **kw)

        setattr(target, name, call)


def start(lag: int) -> CheckedEngine:
    engine = CheckedEngine(20, 8, lag=lag, token_budget=32)
    engine.may_begin_anew = True
    for name, prompt in PROMPTS.items():
        engine.add(name, prompt, max_tokens=14)
    return engine


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("site", SITES, ids=lambda site: ".".join(site))
def test_one_exception_at_any_call(lag, site):
    for count in range(1, 10_000, 7):
        engine = start(lag)
        owner = getattr(engine.core, site[0])
        fuse = Fuse(owner, site[1], count)
        engine.run()
        ended = [name for name in PROMPTS if engine.finished(name).reason is FinishReason.ERROR]
        assert ended == []
        for name, prompt in PROMPTS.items():
            assert engine.output(name) == reference_output(prompt, 14), (site, count, name)
        assert engine.core.pool.num_used == 0
        if not fuse.blown:
            break
    assert count > 7, "the place is never reached"


@pytest.mark.parametrize("lag", [0, 1])
def test_exception_that_never_ends_ends_every_request_with_the_reason(lag):
    engine = start(lag)
    engine.step()
    Fuse(engine.core.manager, "commit", 5, for_ever=True)
    engine.run()
    for name in PROMPTS:
        finished = engine.finished(name)
        assert finished.reason is FinishReason.ERROR
        assert finished.error is not None
        assert finished.error.code == "out_of_memory"
    assert engine.core.pool.num_used == 0


def test_pins_come_back_after_the_books_broke():
    engine = start(0)
    engine.run()
    assert engine.core.pins.pin("r0", SYSTEM) == 4
    engine.add("again", PROMPTS["r0"], max_tokens=4, conversation_id="r0")
    Fuse(engine.core.manager, "commit", 1)
    engine.step()
    assert engine.core.pool.num_pinned == 0
    engine.run()
    assert engine.core.pool.num_pinned == 4
    assert engine.output("again") == reference_output(PROMPTS["r0"], 4)


def test_text_that_cannot_be_completed_ends_its_request_alone(monkeypatch):
    engine = start(0)
    for _ in range(8):
        engine.step()
    stream = engine.core._ledger.answers["r1"].stream
    monkeypatch.setattr(type(stream), "feed", _broken_for(stream, type(stream).feed))
    monkeypatch.setattr(type(stream), "flush", _broken_for(stream, type(stream).flush))
    engine.run()
    assert engine.finished("r1").reason is FinishReason.ERROR
    for name in ("r0", "r2", "r3"):
        assert engine.output(name) == reference_output(PROMPTS[name], 14)
    assert engine.core.pool.num_used == 0


def _broken_for(broken: object, original):
    def call(stream, *args):
        if stream is broken:
            raise UnicodeError("no such character")
        return original(stream, *args)

    return call


def test_suspect_that_ended_before_the_books_broke_is_nobodys_culprit():
    """Its last token ends it, then the commit of another breaks off."""
    engine = start(0)
    engine.step()
    guard = engine.core.scheduler.guard
    suspect = engine.core.requests["r0"]
    guard.suspect([suspect])
    loop = engine.core._loop
    accept = loop._accept

    def breaks_after(request, *rest):
        if request is suspect:
            engine.core.cancel("r0")
            guard.suspect([suspect])
            raise MemoryError("planted")
        return accept(request, *rest)

    loop._accept = breaks_after
    engine.step()
    engine.run()
    assert engine.finished("r0").reason is FinishReason.CANCELLED
    for name in ("r1", "r2", "r3"):
        assert engine.output(name) == reference_output(PROMPTS[name], 14)
