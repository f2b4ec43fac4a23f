"""A request taken back to fewer tokens goes on as if it had never gone further."""

import pytest

from engine.api.errors import InvalidValueError, UnknownIdError
from engine.api.events import RequestTruncated
from tests.helpers.engine_cases import CheckedEngine, NumberStream, cannot_read_again
from tests.helpers.hash_runner import reference_output

PROMPT = list(range(100, 121))
LAGS = pytest.mark.parametrize("lag", [0, 1])


def truncate(engine: CheckedEngine, name: str, num_tokens: int) -> RequestTruncated:
    engine.core.truncate(name, num_tokens)
    engine.events.extend(engine.core.take_events())
    engine.check()
    return [event for event in engine.events if isinstance(event, RequestTruncated)][-1]


@LAGS
@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4, 10, 11, 12])
def test_goes_on_as_if_it_had_never_gone_further(lag, kept):
    engine = CheckedEngine(16, 8, lag=lag)
    engine.add("a", PROMPT, max_tokens=30)
    while engine.core.requests["a"].num_tokens < len(PROMPT) + 14:
        engine.step()
    event = truncate(engine, "a", len(PROMPT) + kept)
    wanted = reference_output(PROMPT, 30)
    assert event.output_tokens == kept
    assert event.num_chars == sum(len(f"[{token}]") for token in wanted[:kept])
    before = len(engine.output("a"))
    engine.run()
    assert engine.output("a")[before:] == wanted[kept:]
    assert engine.finished("a").turn.output_ids == tuple(wanted)
    assert engine.finished("a").usage.output_tokens == 30
    assert engine.core.pool.num_used == 0


@LAGS
@pytest.mark.parametrize("when", range(1, 12))
def test_in_any_phase(lag, when):
    """Two contenders in a pool for one: prefill, decode, waiting and preempted all come up."""
    engine = CheckedEngine(8, 8, lag=lag, token_budget=8)
    engine.add("a", PROMPT, max_tokens=20)
    engine.add("b", [*PROMPT[:10], 1, 2, 3], max_tokens=20)
    for _ in range(when):
        engine.step()
    for name, prompt in (("a", PROMPT), ("b", [*PROMPT[:10], 1, 2, 3])):
        if name in engine.core.requests:
            engine.core.truncate(name, len(prompt))
            engine.check()
    engine.events.extend(engine.core.take_events())
    engine.run()
    assert engine.finished("a").turn.output_ids == tuple(reference_output(PROMPT, 20))
    wanted = tuple(reference_output([*PROMPT[:10], 1, 2, 3], 20))
    assert engine.finished("b").turn.output_ids == wanted


@LAGS
def test_fork_keeps_what_its_parent_gave_up(lag):
    engine = CheckedEngine(16, 8, lag=lag)
    engine.add("a", PROMPT, max_tokens=24)
    for _ in range(16):
        engine.step()
    engine.core.fork("a", "b", "b", seed=1)
    truncate(engine, "a", len(PROMPT) + 2)
    engine.run()
    wanted = tuple(reference_output(PROMPT, 24))
    assert engine.finished("a").turn.output_ids == wanted
    assert engine.finished("b").turn.output_ids == wanted


def test_paused_request_stays_paused():
    engine = CheckedEngine(16, 8)
    engine.add("a", PROMPT, max_tokens=12)
    for _ in range(9):
        engine.step()
    engine.core.pause("a")
    truncate(engine, "a", len(PROMPT) + 3)
    assert not engine.core.has_work
    engine.core.resume("a")
    engine.run()
    assert engine.finished("a").turn.output_ids == tuple(reference_output(PROMPT, 12))


@LAGS
def test_text_that_cannot_be_read_again_leaves_all_as_it_was(lag, monkeypatch):
    engine = CheckedEngine(16, 8, lag=lag)
    engine.add("a", PROMPT, max_tokens=12)
    for _ in range(9):
        engine.step()

    with monkeypatch.context() as patch:
        patch.setattr(NumberStream, "feed", cannot_read_again)
        with pytest.raises(MemoryError, match="planted"):
            engine.core.truncate("a", len(PROMPT) + 2)
    engine.events.extend(engine.core.take_events())
    engine.run()
    assert engine.output("a") == reference_output(PROMPT, 12)
    assert engine.finished("a").usage.output_tokens == 12
    assert engine.finished("a").usage.recomputed_tokens == 0
    assert not [event for event in engine.events if isinstance(event, RequestTruncated)]


def test_refused_with_the_numbers():
    engine = CheckedEngine(16, 8)
    engine.add("a", PROMPT, max_tokens=12)
    for _ in range(3):
        engine.step()
    for num_tokens in (len(PROMPT) - 1, len(PROMPT) + 4):
        with pytest.raises(InvalidValueError, match=f"{num_tokens}.*21.*24"):
            engine.core.truncate("a", num_tokens)
    with pytest.raises(UnknownIdError):
        engine.core.truncate("nobody", 3)
    engine.run()
    assert engine.output("a") == reference_output(PROMPT, 12)
