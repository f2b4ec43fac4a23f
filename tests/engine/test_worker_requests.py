"""Requests through the engine thread: several answers, forks, pauses, continued answers, pins."""

import time
from collections.abc import Iterator

import pytest

from engine.api.commands import (
    Continue,
    CountTokens,
    EditCost,
    Fork,
    LoadModel,
    Pause,
    PauseEngine,
    Pin,
    Resume,
    ResumeEngine,
    StepEngine,
    Submit,
    SubscribePool,
    Truncate,
    Unpin,
)
from engine.api.events import (
    CommandFailed,
    EditCostReady,
    ModelLoaded,
    RequestFinished,
    RequestPaused,
    RequestResumed,
    RequestTruncated,
    TokensCounted,
    TokensGenerated,
)
from engine.api.params import ChatMessage
from tests.helpers.fake_loaded import install_fake_loader
from tests.helpers.hash_runner import reference_output
from tests.helpers.talk import Talk, submit, talk_with_engine

LOAD = LoadModel(models_dir="")


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talk_with_engine() as made:
        yield made


def loaded(talk, monkeypatch) -> None:
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)


def test_several_answers_have_seeds_of_their_own(talk, monkeypatch):
    loaded(talk, monkeypatch)
    command = submit("a")
    talk.send(Submit(("a", "b"), "c", command.messages, command.params))
    seeds = [talk.until(RequestFinished, request_id=name).seed for name in "ab"]
    assert seeds[0] == 0
    assert seeds[1] not in (0, 1)


def test_fork_through_the_thread(talk, monkeypatch):
    loaded(talk, monkeypatch)
    talk.send(PauseEngine(), submit("a", max_tokens=6), StepEngine(3))
    talk.until(TokensGenerated, request_id="a")
    talk.send(Fork("a", "b", "other", command_id="f"), ResumeEngine())
    first = talk.until(RequestFinished, request_id="a").turn
    second = talk.until(RequestFinished, request_id="b").turn
    assert first == second
    talk.send(Fork("gone", "x", "y", command_id="none"))
    assert talk.until(CommandFailed, command_id="none").error.code == "unknown_id"


def test_pause_and_resume_of_a_request(talk, monkeypatch):
    loaded(talk, monkeypatch)
    talk.send(PauseEngine(), submit("a", max_tokens=6), StepEngine(2), Pause("a"), ResumeEngine())
    talk.until(RequestPaused)
    time.sleep(0.05)
    talk.send(Resume("a"))
    talk.until(RequestResumed)
    assert talk.until(RequestFinished).usage.output_tokens == 6


def test_truncate_through_the_thread(talk, monkeypatch):
    loaded(talk, monkeypatch)
    talk.send(PauseEngine(), submit("a", max_tokens=6), StepEngine(4))
    prompt = len("hello engine")
    while len(talk.text("a")) < 4:
        talk.until(TokensGenerated, request_id="a")
        talk.events.extend(talk.client.poll_events())
    talk.send(Truncate("a", prompt + 1), Truncate("a", prompt - 1, command_id="short"))
    cut = talk.until(RequestTruncated, request_id="a")
    assert (cut.num_tokens, cut.output_tokens) == (prompt + 1, 1)
    assert talk.until(CommandFailed, command_id="short").error.code == "invalid_value"
    talk.send(ResumeEngine())
    done = talk.until(RequestFinished, request_id="a")
    ids = [ord(char) for char in "hello engine"]
    assert done.turn.output_ids == tuple(reference_output(ids, 6))


def test_continue_goes_on_with_the_same_turn(talk, monkeypatch):
    loaded(talk, monkeypatch)
    question = submit("a")
    talk.send(question)
    turn = talk.until(RequestFinished, request_id="a").turn
    answer = ChatMessage("assistant", "so far", turn)
    talk.send(Continue("b", "c", (*question.messages, answer), question.params))
    joined = talk.until(RequestFinished, request_id="b").turn
    whole = reference_output([ord(char) for char in "hello engine"], 8)
    assert joined.prompt_ids == turn.prompt_ids
    assert joined.output_ids == tuple(whole)


def test_pin_keeps_blocks_used_until_unpin(talk, monkeypatch):
    loaded(talk, monkeypatch)
    command = submit("a", "x" * 30)
    talk.send(command)
    talk.until(RequestFinished)
    talk.send(SubscribePool(), Pin("c", command.messages), CountTokens("", command_id="1"))
    talk.until(TokensCounted, command_id="1")
    deadline = time.monotonic() + 5.0
    while talk.client.latest_snapshot().num_used != 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert talk.client.latest_snapshot().num_used == 3
    talk.send(Unpin("c"))
    while talk.client.latest_snapshot().num_used and time.monotonic() < deadline:
        time.sleep(0.01)
    assert talk.client.latest_snapshot().num_used == 0


def test_edit_cost_counts_from_the_edited_message(talk, monkeypatch):
    loaded(talk, monkeypatch)
    messages = (ChatMessage("system", "s" * 20), ChatMessage("user", "u" * 12))
    talk.send(
        EditCost("c", messages, 1, command_id="e"), EditCost("c", messages, 2, command_id="x")
    )
    cost = talk.until(EditCostReady, command_id="e")
    assert (cost.invalidated_tokens, cost.invalidated_blocks) == (12, 2)
    assert talk.until(CommandFailed, command_id="x").error.code == "invalid_value"
