"""Several clients at one engine: whose events, whose requests, who may do what, who leaves."""

from __future__ import annotations

import threading
import time

import pytest

from engine.api.client import Arrivals, EngineHandle, QueueClient
from engine.api.commands import (
    Cancel,
    Continue,
    CountTokens,
    Disconnect,
    LoadModel,
    Pause,
    PauseEngine,
    Pin,
    ResumeEngine,
    SetFocus,
    Shutdown,
    StepEngine,
    Submit,
    SubscribePool,
    UnloadModel,
)
from engine.api.errors import ErrorInfo
from engine.api.events import (
    BlockEvents,
    CommandFailed,
    EngineStats,
    EngineStatus,
    EngineStatusChanged,
    FinishReason,
    ModelLoaded,
    ModelLoadFailed,
    ModelUnloaded,
    RequestFinished,
    RequestQueued,
    RequestWaiting,
    TokensCounted,
    TokensGenerated,
    WaitReason,
)
from engine.api.params import ChatMessage
from engine.model_loader import ModelLoader
from tests.helpers.fake_loaded import fake_engine, install_fake_loader
from tests.helpers.talk import Talk, submit

LOAD = LoadModel(models_dir="", command_id="load")


@pytest.fixture
def owner(handle: EngineHandle, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """The owner, with a model loaded."""
    install_fake_loader(monkeypatch)
    owner = Talk(handle.owner)
    owner.send(LOAD)
    owner.until(ModelLoaded)
    return owner


def guest_of(handle: EngineHandle, *capabilities: str) -> Talk:
    return Talk(handle.connect(frozenset(capabilities)) if capabilities else handle.connect())


def heard(talk: Talk, kind: type) -> list:
    talk.events.extend(talk.client.poll_events())
    return [event for event in talk.events if isinstance(event, kind)]


def settle(talk: Talk, name: str) -> None:
    """All that was sent before has been served."""
    talk.send(CountTokens("", command_id=name))
    talk.until(TokensCounted, command_id=name)


def test_events_of_a_request_go_to_its_client_only(handle, owner):
    guest = guest_of(handle)
    owner.send(submit("a"))
    guest.send(submit("b", "other words"))
    owner.until(RequestFinished, request_id="a")
    guest.until(RequestFinished, request_id="b")
    assert {event.request_id for event in heard(owner, TokensGenerated)} == {"a"}
    assert {event.request_id for event in heard(guest, TokensGenerated)} == {"b"}
    assert len(heard(owner, RequestFinished)) == len(heard(guest, RequestFinished)) == 1


def test_newcomer_is_told_status_and_model(handle, owner):
    owner.send(PauseEngine())
    settle(owner, "s")
    guest = guest_of(handle)
    loaded = guest.until(ModelLoaded)
    assert loaded.model.name == "integers"
    (status,) = heard(guest, EngineStatusChanged)
    assert (status.status, status.paused) == (EngineStatus.READY, True)


def test_model_events_and_stats_go_to_all(handle, owner):
    guest = guest_of(handle)
    owner.send(submit("a"))
    owner.until(RequestFinished)
    guest.until(EngineStats)
    owner.send(UnloadModel(command_id="u"))
    guest.until(ModelUnloaded, command_id="u")
    guest.send(LoadModel("", command_id="again"))
    owner.until(ModelLoaded, command_id="again")


def test_each_client_subscribes_at_its_own_rate(handle, owner):
    fast, slow, none = (guest_of(handle) for _ in range(3))
    fast.send(SubscribePool(1000.0))
    slow.send(SubscribePool(2.0))
    settle(fast, "f")
    settle(slow, "s")
    owner.send(submit("a", max_tokens=200))
    owner.until(RequestFinished)
    assert len(heard(fast, BlockEvents)) > 3 * len(heard(slow, BlockEvents))
    slow.until(BlockEvents)
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline and len(heard(slow, BlockEvents)) < 2:
        time.sleep(0.01)

    def seqs(talk):
        return [e.seq for batch in heard(talk, BlockEvents) for e in batch.events]

    assert seqs(fast)[:5] == seqs(slow)[:5] == [1, 2, 3, 4, 5]
    assert not heard(none, BlockEvents)
    assert none.client.latest_snapshot() is None


def test_leaving_takes_ones_own_along_and_nothing_else(handle, owner, monkeypatch):
    guest = guest_of(handle)
    message = (ChatMessage("user", "x" * 40),)
    guest.send(Submit(("seed",), "pinned", message, submit("x").params))
    guest.until(RequestFinished, request_id="seed")
    guest.send(PauseEngine(), SubscribePool(), SetFocus("c-g"), Pin("pinned", message))
    guest.send(submit("g", max_tokens=500))
    owner.send(submit("o"), SubscribePool(500.0))
    guest.until(RequestQueued, request_id="g")
    owner.until(RequestQueued)
    owner.send(StepEngine(3))
    guest.until(TokensGenerated, request_id="g")
    assert guest.client.close(5.0)
    assert guest.client.poll_events()[-1].reason is FinishReason.CANCELLED
    owner.send(ResumeEngine())
    assert owner.until(RequestFinished).reason is FinishReason.LENGTH
    deadline = time.monotonic() + 5.0
    while owner.client.latest_snapshot().num_used and time.monotonic() < deadline:
        time.sleep(0.01)
    assert owner.client.latest_snapshot().num_used == 0, "its pin stayed"


def test_nothing_is_published_for_one_that_left(handle, owner):
    guest = guest_of(handle)
    guest.send(SubscribePool(1000.0))
    settle(guest, "s")
    assert guest.client.close(5.0)
    guest.client.poll_events()
    snapshot = guest.client.latest_snapshot()
    owner.send(submit("a", max_tokens=30))
    owner.until(RequestFinished)
    settle(owner, "t")
    assert guest.client.poll_events() == []
    assert guest.client.latest_snapshot() is snapshot


def test_what_one_sends_after_leaving_is_refused(handle, owner):
    guest = guest_of(handle)
    guest.send(Disconnect(), submit("late"), CountTokens("x", command_id="q"))
    assert guest.until(RequestFinished, request_id="late").error.code == "disconnected"
    assert guest.until(CommandFailed, command_id="q").error.code == "disconnected"
    guest.send(submit("later"))
    assert guest.until(RequestFinished, request_id="later").error.code == "disconnected"
    assert not heard(guest, RequestQueued)


def test_only_the_owner_ends_the_engine(handle, owner):
    guest = guest_of(handle)
    guest.send(Shutdown(command_id="s"))
    assert guest.until(CommandFailed, command_id="s").error.code == "not_allowed"
    owner.send(Disconnect(command_id="d"))
    assert owner.until(CommandFailed, command_id="d").error.code == "not_allowed"
    owner.send(submit("a"))
    owner.until(RequestFinished)


def test_requests_of_others_are_out_of_reach_but_not_of_the_owners(handle, owner):
    guest, other = guest_of(handle), guest_of(handle)
    owner.send(PauseEngine())
    settle(owner, "s")
    guest.send(submit("g"))
    guest.until(RequestQueued)
    other.send(Cancel("g"), Pause("g", command_id="p"))
    assert other.until(CommandFailed, command_id="p").error.code == "unknown_id"
    assert not heard(guest, RequestFinished)
    owner.send(Cancel("g"))
    assert guest.until(RequestFinished).reason is FinishReason.CANCELLED


def test_what_a_client_is_not_able_to_is_refused(handle, owner):
    guest = guest_of(handle, "fork")
    assert guest.client.capabilities == {"fork"}
    guest.send(LoadModel("", command_id="l"), SubscribePool(command_id="p"))
    assert guest.until(CommandFailed, command_id="l").error.code == "not_allowed"
    assert guest.until(CommandFailed, command_id="p").error.code == "not_allowed"
    guest.send(Continue("r", "c", (ChatMessage("user", "x"),)))
    assert guest.until(RequestFinished, request_id="r").error.code == "not_allowed"
    guest.send(submit("a"))
    assert guest.until(RequestFinished, request_id="a").reason is FinishReason.LENGTH


def test_everybody_hears_of_the_end_and_is_refused_afterwards():
    handle = EngineHandle()
    guest = guest_of(handle)
    assert handle.owner.close(5.0)
    guest.until(EngineStatusChanged, status=EngineStatus.STOPPED)
    guest.send(submit("a"), CountTokens("", command_id="q"), LoadModel("", command_id="l"))
    assert guest.until(RequestFinished).error.code == "engine_stopped"
    assert guest.until(CommandFailed, command_id="q").error.code == "engine_stopped"
    assert guest.until(ModelLoadFailed, command_id="l").error.code == "engine_stopped"
    assert guest.client.close(1.0)
    late = guest_of(handle)
    late.until(EngineStatusChanged, status=EngineStatus.STOPPED)


def test_client_on_its_way_when_the_engine_ends_is_told():
    owner, waiting = QueueClient(), QueueClient(is_owner=False)
    arrivals = Arrivals(owner)
    assert arrivals.take() == [owner]
    arrivals.add(waiting)
    waiting.send(submit("a"))
    end = EngineStatusChanged(EngineStatus.FAILED, error=ErrorInfo("code", "words"))
    arrivals.finish(end, [owner])
    assert owner.poll_events() == [end]
    refused, told = waiting.poll_events()
    assert (refused.request_id, refused.error.code, told) == ("a", "code", end)
    arrivals.finish(EngineStatusChanged(EngineStatus.STOPPED), [owner])
    assert owner.poll_events() == []


def test_unloading_while_a_model_loads_ends_what_waits_for_it(handle, monkeypatch):
    gate = threading.Event()
    install_fake_loader(monkeypatch, gate)
    owner = Talk(handle.owner)
    owner.send(LOAD, submit("a"))
    owner.until(RequestWaiting, waits_for=WaitReason.LOADING)
    owner.send(UnloadModel(command_id="u"))
    owner.until(ModelUnloaded, command_id="u")
    assert owner.until(RequestFinished).reason is FinishReason.CANCELLED
    assert owner.until(ModelLoadFailed, command_id="load").error.code == "load_cancelled"
    gate.set()


def test_answers_to_a_cancelled_sibling_keep_their_seeds(handle, monkeypatch):
    gate = threading.Event()
    install_fake_loader(monkeypatch, gate)
    owner = Talk(handle.owner)
    three = submit("a")
    owner.send(LOAD, Submit(("a", "b", "c"), "c", three.messages, three.params), Cancel("a"))
    owner.until(RequestFinished, request_id="a")
    gate.set()
    seeds = [owner.until(RequestFinished, request_id=name).seed for name in "bc"]
    install_fake_loader(monkeypatch)
    owner.send(Submit(("d", "e", "f"), "c", three.messages, three.params))
    assert seeds == [owner.until(RequestFinished, request_id=name).seed for name in "ef"]


def test_engine_pause_is_told_to_those_that_wait_for_nothing_else(handle, owner):
    owner.send(PauseEngine(), submit("a"))
    owner.until(RequestWaiting, request_id="a", waits_for=WaitReason.ENGINE_PAUSED)
    owner.send(ResumeEngine())
    owner.until(RequestFinished, request_id="a")
    told = [e.waits_for for e in heard(owner, RequestWaiting)]
    assert told == [WaitReason.ENGINE_PAUSED, WaitReason.NONE]


def test_a_step_of_a_paused_engine_tells_the_true_reason(handle, monkeypatch):
    monkeypatch.setattr(ModelLoader, "_load", lambda loader: fake_engine(max_running_requests=1))
    owner = Talk(handle.owner)
    owner.send(LOAD)
    owner.until(ModelLoaded)
    owner.send(PauseEngine(), submit("a", max_tokens=30), submit("b"))
    owner.until(RequestWaiting, request_id="b", waits_for=WaitReason.ENGINE_PAUSED)
    owner.send(StepEngine())
    owner.until(RequestWaiting, request_id="b", waits_for=WaitReason.BATCH_FULL)
    settle(owner, "s")
    reasons = [e.waits_for for e in heard(owner, RequestWaiting) if e.request_id == "b"]
    assert reasons[-1] is WaitReason.BATCH_FULL
