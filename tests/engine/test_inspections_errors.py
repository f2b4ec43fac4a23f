"""Questions that fail, and those of an engine that failed: each gets its one reply."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from engine.api.client import QueueClient
from engine.api.commands import Inspect
from engine.api.errors import DeviceLostError, ErrorInfo, InvalidValueError
from engine.api.events import CommandFailed, QueryProgress, TokensCounted
from engine.inspections import Inspections

FAILED = ErrorInfo("device_lost", "The device failed.")


@pytest.fixture
def client() -> QueueClient:
    return QueueClient()


class Question:
    """Slices that end as told; ``closed`` once what was borrowed is back."""

    def __init__(
        self,
        end: BaseException | None = None,
        close: Exception | None = None,
        pace: float = 0.0,
    ) -> None:
        self.end, self.close_error, self.pace = end, close, pace
        self.num_slices = 0
        self.closed = False

    def slices(self) -> Generator[float, None, TokensCounted]:
        try:
            for _ in range(3):
                self.num_slices += 1
                yield self.num_slices * self.pace
            if self.end is not None:
                raise self.end
            return TokensCounted("q", 3)
        finally:
            self.closed = True
            if self.close_error is not None:
                raise self.close_error


def ask(client: QueueClient, *questions: Question) -> Inspections:
    inspections = Inspections()
    for index, question in enumerate(questions):
        inspections.add(client, Inspect("c", command_id=f"q{index}"), question.slices())
    return inspections


def failures(client: QueueClient) -> list[tuple[str, str]]:
    events = client.poll_events()
    assert all(isinstance(event, CommandFailed) for event in events)
    return [(event.command_id, event.error.code) for event in events]


def test_a_slice_at_a_time_when_there_is_no_time(client: QueueClient) -> None:
    question = Question()
    inspections = ask(client, question)
    for count in (1, 2, 3):
        inspections.advance(0.0)
        assert (question.num_slices, inspections.are_waiting) == (count, True)
    inspections.advance(0.0)
    assert not inspections.are_waiting
    assert client.poll_events() == [TokensCounted("q", 3)]


@pytest.mark.parametrize(
    ("error", "code"),
    [(InvalidValueError("no"), "invalid_value"), (ZeroDivisionError("oh"), "internal")],
)
def test_a_question_that_fails_is_told_and_the_next_goes_on(
    client: QueueClient, error: Exception, code: str
) -> None:
    bad, good = Question(error), Question()
    ask(client, bad, good).advance(10.0)
    failed, reply = client.poll_events()
    assert (failed.command_id, failed.command, failed.error.code) == ("q0", "Inspect", code)
    assert reply == TokensCounted("q", 3)
    assert bad.closed


def test_a_device_that_died_is_told_and_ends_the_engine(client: QueueClient) -> None:
    bad, later = Question(RuntimeError("CUDA error: misaligned address")), Question()
    inspections = ask(client, bad, later)
    with pytest.raises(DeviceLostError, match="misaligned address"):
        inspections.advance(10.0)
    assert failures(client) == [("q0", "device_lost")]
    assert bad.closed
    # The engine then gives the others up.
    inspections.abandon(FAILED)
    assert failures(client) == [("q1", "device_lost")]
    assert not inspections.are_waiting


def test_all_are_told_although_one_cannot_give_back_what_it_borrowed(client: QueueClient) -> None:
    bad, good = Question(close=RuntimeError("the books are broken")), Question()
    inspections = ask(client, bad, good)
    inspections.advance(0.0)
    inspections.abandon(FAILED)
    assert failures(client) == [("q0", "device_lost"), ("q1", "device_lost")]
    assert bad.closed


def test_questions_of_a_client_that_leaves_are_dropped(client: QueueClient) -> None:
    other = QueueClient()
    mine, theirs = Question(), Question()
    inspections = ask(client, mine)
    inspections.add(other, Inspect("c", command_id="theirs"), theirs.slices())
    inspections.advance(0.0)
    inspections.drop(FAILED, lambda of, _command: of is client)
    assert failures(client) == [("q0", "device_lost")]
    assert mine.closed
    inspections.advance(10.0)
    assert other.poll_events() == [TokensCounted("q", 3)]


def test_progress_is_told_once_a_turn_and_only_when_there_is_some(client: QueueClient) -> None:
    inspections = ask(client, Question(pace=0.25), Question())
    for fraction in (0.25, 0.5, 0.75):
        inspections.advance(0.0)
        assert client.poll_events() == [QueryProgress("q0", fraction)]
    inspections.advance(10.0)
    assert client.poll_events() == [TokensCounted("q", 3), TokensCounted("q", 3)]
