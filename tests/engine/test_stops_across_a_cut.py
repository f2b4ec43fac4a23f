"""A stop string of which a part was said before the answer was cut off, the rest after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from engine.api.events import FinishReason, RequestTruncated, TokensGenerated
from engine.api.params import SamplingParams
from engine.detokenizer import Detokenizer
from engine.tokenizer import Tokenizer
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.hash_runner import reference_output

PROMPT = [7 * i % 900 for i in range(20)]
IDS = reference_output(PROMPT, 12)
GIVEN = IDS[:5]


class Numbers:
    """Each id in brackets."""

    def is_special(self, token_id: int) -> bool:
        return False

    def token_bytes(self, token_id: int) -> bytes:
        return f"[{token_id}]".encode()


def text_of(ids: Sequence[int]) -> str:
    return "".join(f"[{token_id}]" for token_id in ids)


@pytest.fixture
def engine() -> CheckedEngine:
    made = CheckedEngine(64)
    tokenizer = cast(Tokenizer, Numbers())
    made.core._ledger._make_stream = lambda stop: Detokenizer(tokenizer, stop)
    return made


def go_on(engine: CheckedEngine, name: str, stop: str) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=7, seed=0, stop=(stop,))
    ids = [*PROMPT, *GIVEN]
    start, chars = len(PROMPT), len(text_of(GIVEN))
    engine.core.add_request(name, ids, params, answer_start=start, answer_chars=chars)


def shown(engine: CheckedEngine, name: str) -> str:
    told = (e for e in engine.events if isinstance(e, TokensGenerated) and e.request_id == name)
    return "".join(event.text for event in told) + engine.finished(name).text


def step_until_said(engine: CheckedEngine, name: str, count: int) -> None:
    for _ in range(100):
        if len(engine.output(name)) == count:
            return
        engine.step()
    raise AssertionError(f"{name} never said {count} tokens")


def test_it_ends_the_answer_that_goes_on(engine: CheckedEngine) -> None:
    stop = text_of(IDS[4:7])[1:-1]
    go_on(engine, "a", stop)
    engine.run()
    finished = engine.finished("a")
    assert (finished.reason, finished.stop) == (FinishReason.STOP, stop)
    assert shown(engine, "a") == ""
    assert finished.turn is not None
    assert finished.turn.output_ids == tuple(GIVEN)
    assert finished.turn.covered_chars == len(text_of(GIVEN))


def test_what_only_looked_like_one_is_shown(engine: CheckedEngine) -> None:
    go_on(engine, "a", f"{text_of(IDS[4:7])}never")
    engine.run()
    finished = engine.finished("a")
    assert finished.reason is FinishReason.LENGTH
    assert shown(engine, "a") == text_of(IDS[5:])
    assert finished.turn is not None
    assert finished.turn.output_ids == tuple(IDS)
    assert finished.turn.covered_chars == len(text_of(IDS))


def test_one_that_was_said_before_ends_nothing(engine: CheckedEngine) -> None:
    go_on(engine, "a", text_of(GIVEN[2:]))
    engine.run()
    assert engine.finished("a").reason is FinishReason.LENGTH
    assert shown(engine, "a") == text_of(IDS[5:])


def test_it_ends_a_fork_of_the_answer_too(engine: CheckedEngine) -> None:
    stop = text_of(IDS[4:9])
    go_on(engine, "a", stop)
    step_until_said(engine, "a", 2)
    engine.core.fork("a", "b", "b", seed=None)
    engine.run()
    for name in ("a", "b"):
        assert (engine.finished(name).reason, engine.finished(name).stop) == ("stop", stop)
        assert shown(engine, name) == ""


def test_it_ends_the_answer_that_was_taken_back(engine: CheckedEngine) -> None:
    stop = text_of(IDS[4:9])
    go_on(engine, "a", stop)
    step_until_said(engine, "a", 2)
    engine.core.truncate("a", len(PROMPT) + len(GIVEN) + 1)
    engine.run()
    (cut,) = [event for event in engine.events if isinstance(event, RequestTruncated)]
    assert cut.num_chars == len(text_of(GIVEN))
    assert (engine.finished("a").reason, engine.finished("a").stop) == ("stop", stop)
    assert shown(engine, "a") == ""
