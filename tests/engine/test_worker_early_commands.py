"""Commands about the child of a fork that waits for its parent's prompt, in the order they came."""

from __future__ import annotations

import threading

import pytest

from engine.api.commands import Cancel, Fork, LoadModel, Pause, Resume
from engine.api.events import (
    CommandFailed,
    FinishReason,
    ModelLoaded,
    RequestFinished,
    RequestPaused,
    RequestWaiting,
)
from engine.model_loader import ModelLoader
from tests.helpers.fake_loaded import fake_engine
from tests.helpers.talk import Talk, submit

FORK = Fork("a", "child", "c-child", command_id="fork")


@pytest.fixture
def gate(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set: the model comes, for which the request a waits."""
    gate = threading.Event()

    def load(_loader: ModelLoader) -> object:
        assert gate.wait(10.0)
        return fake_engine()

    monkeypatch.setattr(ModelLoader, "_load", load)
    talk.send(LoadModel(""), submit("a", max_tokens=50))
    talk.until(RequestWaiting, request_id="a")
    return gate


def test_a_child_that_is_cancelled_before_it_is_there_ends(
    talk: Talk, gate: threading.Event
) -> None:
    talk.send(FORK, Cancel("child"))
    gate.set()
    assert talk.until(RequestFinished, request_id="child").reason is FinishReason.CANCELLED
    assert talk.until(RequestFinished, request_id="a").reason is FinishReason.LENGTH


def test_a_child_is_paused_and_goes_on_as_its_parent_does(
    talk: Talk, gate: threading.Event
) -> None:
    talk.send(FORK, Pause("child", command_id="pause"))
    gate.set()
    talk.until(RequestPaused, request_id="child")
    talk.until(RequestFinished, request_id="a")
    talk.send(Resume("child"))
    assert talk.until(RequestFinished, request_id="child").reason is FinishReason.LENGTH


def test_a_parent_that_is_cancelled_takes_the_fork_with_it(
    talk: Talk, gate: threading.Event
) -> None:
    talk.send(FORK, Cancel("child"), Cancel("a"))
    talk.until(RequestFinished, request_id="a")
    talk.until(CommandFailed, command_id="fork")
    gate.set()
    talk.until(ModelLoaded)
    ends = [event for event in talk.events if isinstance(event, RequestFinished)]
    assert [end.request_id for end in ends] == ["a"]
