"""The engine thread from outside: commands in, events out, in every state."""

import threading
import time

import pytest

from engine.api.client import QueueClient, start_engine
from engine.api.commands import (
    BlockText,
    Cancel,
    Command,
    CountTokens,
    Forecast,
    LoadModel,
    PauseEngine,
    ResumeEngine,
    SetRate,
    StepEngine,
    Submit,
    SubscribePool,
    UnloadModel,
    UnsubscribePool,
)
from engine.api.errors import UnsupportedModelError
from engine.api.events import (
    BlockEvents,
    BlockTextReady,
    CommandFailed,
    EngineStats,
    EngineStatus,
    EngineStatusChanged,
    FinishReason,
    ForecastReady,
    ModelLoaded,
    ModelLoadFailed,
    ModelUnloaded,
    RequestFinished,
    RequestQueued,
    RequestWaiting,
    TokensCounted,
    WaitReason,
)
from engine.api.params import ChatMessage
from engine.model_loader import ModelLoader
from engine.worker import Worker
from tests.helpers.fake_loaded import install_fake_loader
from tests.helpers.hash_runner import reference_output
from tests.helpers.talk import Talk, submit

LOAD = LoadModel(models_dir="")


def test_answer_through_the_thread(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    talk.send(submit("a"))
    done = talk.until(RequestFinished, request_id="a")
    assert done.reason is FinishReason.LENGTH
    assert talk.text("a") == reference_output([ord(char) for char in "hello engine"], 4)
    assert talk.until(RequestQueued).prompt_tokens == 12


def test_request_during_loading_waits_and_is_then_answered(talk, monkeypatch):
    gate = threading.Event()
    install_fake_loader(monkeypatch, gate)
    talk.send(LOAD, submit("a"))
    talk.until(RequestWaiting, waits_for=WaitReason.LOADING)
    gate.set()
    talk.until(RequestFinished, reason=FinishReason.LENGTH)


def test_cancel_while_loading(talk, monkeypatch):
    gate = threading.Event()
    install_fake_loader(monkeypatch, gate)
    talk.send(LOAD, submit("a"), submit("b"))
    talk.until(RequestWaiting, request_id="b")
    talk.send(Cancel("a"))
    talk.until(RequestFinished, request_id="a", reason=FinishReason.CANCELLED)
    gate.set()
    talk.until(RequestFinished, request_id="b", reason=FinishReason.LENGTH)


def test_second_use_of_an_id_while_loading_is_refused_and_the_first_is_answered(talk, monkeypatch):
    gate = threading.Event()
    install_fake_loader(monkeypatch, gate)
    talk.send(LOAD, submit("a"), submit("a", command_id="again"))
    assert talk.until(CommandFailed, command_id="again").error.code == "duplicate_id"
    gate.set()
    talk.until(RequestFinished, request_id="a", reason=FinishReason.LENGTH)
    talk.send(submit("b"))
    talk.until(RequestFinished, request_id="b", reason=FinishReason.LENGTH)


def test_failed_load_says_why_and_ends_waiting_requests(talk, monkeypatch):
    gate = threading.Event()
    install_fake_loader(monkeypatch, gate, UnsupportedModelError("no such architecture"))
    talk.send(LoadModel(models_dir="", command_id="load-1"), submit("a"))
    talk.until(RequestWaiting)
    gate.set()
    assert talk.until(ModelLoadFailed, command_id="load-1").error.code == "unsupported_model"
    assert talk.until(RequestFinished).error.code == "unsupported_model"
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)


def test_second_load_replaces_the_first(talk, monkeypatch):
    gate = threading.Event()
    install_fake_loader(monkeypatch, gate)
    talk.send(LoadModel(models_dir="", command_id="one"))
    talk.send(LoadModel(models_dir="", command_id="two"))
    gate.set()
    talk.until(ModelLoaded, command_id="two")
    assert not any(isinstance(e, ModelLoaded) and e.command_id == "one" for e in talk.events)


def test_unloading_ends_requests_and_says_so(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    talk.send(PauseEngine(), submit("a"), UnloadModel(command_id="u"))
    talk.until(RequestFinished, request_id="a", reason=FinishReason.CANCELLED)
    talk.until(ModelUnloaded, command_id="u")
    talk.send(submit("b"))
    assert talk.until(RequestFinished, request_id="b").error.code == "no_model"


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ((), "empty_message"),
        ((ChatMessage("user", "  \n"),), "empty_message"),
        ((ChatMessage("user", "x" * 600),), "prompt_exceeds_pool"),
        ((ChatMessage("user", "x" * 10_001),), "prompt_too_long"),
    ],
)
def test_refused_prompt_ends_with_the_reason_and_the_next_one_works(
    talk, monkeypatch, messages, code
):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    talk.send(Submit(("a",), "c", messages), submit("b"))
    assert talk.until(RequestFinished, request_id="a").error.code == code
    talk.until(RequestFinished, request_id="b", reason=FinishReason.LENGTH)


def test_second_use_of_an_id_leaves_the_first_alone(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    talk.send(submit("a", max_tokens=50), submit("a", command_id="again"))
    assert talk.until(CommandFailed, command_id="again").error.code == "duplicate_id"
    done = talk.until(RequestFinished, request_id="a")
    assert done.usage.output_tokens == 50


def test_paused_engine_serves_commands_and_single_steps(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    talk.send(PauseEngine(), submit("a", max_tokens=3))
    talk.until(RequestQueued)
    talk.send(CountTokens("four", command_id="q"))
    assert talk.until(TokensCounted, command_id="q").num_tokens == 4
    assert talk.text("a") == []
    talk.send(StepEngine(2))
    time.sleep(0.1)
    talk.send(CountTokens("", command_id="after"))
    talk.until(TokensCounted, command_id="after")
    assert len(talk.text("a")) == 2
    talk.send(ResumeEngine())
    talk.until(RequestFinished, request_id="a")


def test_counters_are_true_while_the_engine_stands_still(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    talk.send(PauseEngine(), submit("a", "a question of some words"))
    talk.until(EngineStats, num_waiting=1, used_blocks=0)
    # Too soon after that for the counters' usual rate.
    talk.send(StepEngine(1))
    assert talk.until(EngineStats, num_running=1).used_blocks > 0
    told = sum(isinstance(event, EngineStats) for event in talk.events)
    for number in range(3):
        talk.send(CountTokens("", command_id=f"q{number}"))
        talk.until(TokensCounted, command_id=f"q{number}")
    assert sum(isinstance(event, EngineStats) for event in talk.events) == told


def test_cancel_is_served_while_paused(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    talk.send(PauseEngine(), submit("a"))
    talk.until(RequestQueued)
    talk.send(Cancel("a"))
    talk.until(RequestFinished, reason=FinishReason.CANCELLED)


def test_slow_motion_spaces_the_steps(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD, SetRate(50.0))
    talk.until(ModelLoaded)
    started = time.monotonic()
    talk.send(submit("a", max_tokens=10))
    talk.until(RequestFinished)
    assert time.monotonic() - started > 9 / 50.0


@pytest.mark.parametrize(
    "command",
    [SetRate(0.0), SetRate(1e-12), StepEngine(0), SubscribePool(0.0), SubscribePool(1e-12)],
)
def test_impossible_values_are_refused_by_name(talk, command):
    talk.send(command)
    failed = talk.until(CommandFailed, command=type(command).__name__)
    assert failed.error.code == "invalid_value"


def test_command_that_is_not_there_yet_says_so(talk):
    talk.send(Command(command_id="i"))
    assert talk.until(CommandFailed, command_id="i").error.code == "not_supported_yet"


def test_subscriber_gets_one_snapshot_then_gap_free_events(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD, SubscribePool(200.0))
    talk.until(ModelLoaded)
    talk.send(submit("a", "x" * 30, max_tokens=20))
    talk.until(RequestFinished)
    talk.send(UnsubscribePool(), CountTokens("", command_id="end"))
    talk.until(TokensCounted, command_id="end")
    assert next(e for e in talk.events if isinstance(e, BlockEvents)).events == ()
    seqs = [e.seq for batch in talk.events if isinstance(batch, BlockEvents) for e in batch.events]
    assert seqs == list(range(1, len(seqs) + 1))
    snapshot = talk.client.latest_snapshot()
    assert snapshot.num_blocks == 64
    assert snapshot.invariant_violations == 0


def test_nobody_subscribed_means_no_pool_traffic(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    talk.send(submit("a"))
    talk.until(RequestFinished)
    assert not any(isinstance(event, BlockEvents) for event in talk.events)
    assert talk.client.latest_snapshot() is None


def test_invariants_are_checked_when_idle(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    talk.send(submit("a"))
    talk.until(RequestFinished)
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        talk.events.extend(talk.client.poll_events())
        stats = [event for event in talk.events if isinstance(event, EngineStats)]
        if stats and stats[-1].num_running == 0 and stats[-1].step > 0:
            break
        time.sleep(0.01)
    assert stats[-1].invariant_violations == 0
    assert stats[-1].used_blocks == 0


def test_queries(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    talk.send(submit("a", "abcdefgh" * 3))
    talk.until(RequestFinished)
    messages = (ChatMessage("user", "abcdefgh" * 3),)
    talk.send(Forecast("c", messages, max_tokens=8, command_id="f"))
    forecast = talk.until(ForecastReady, command_id="f")
    assert (forecast.prompt_tokens, forecast.cached_tokens) == (24, 16)
    assert (forecast.blocks_needed, forecast.blocks_shared, forecast.blocks_short) == (4, 2, 0)
    talk.send(BlockText(0, command_id="b"))
    assert talk.until(BlockTextReady, command_id="b").text == "abcdefgh"
    talk.send(BlockText(64, command_id="none"))
    assert talk.until(CommandFailed, command_id="none").error.code == "invalid_value"


def test_wake_up_comes_once_until_the_next_poll(talk, monkeypatch):
    calls: list[str] = []
    talk.until(EngineStatusChanged)
    talk.client.set_wakeup(lambda: calls.append(threading.current_thread().name))
    install_fake_loader(monkeypatch)
    talk.send(LOAD, submit("a"))
    deadline = time.monotonic() + 10.0
    while not calls and time.monotonic() < deadline:
        time.sleep(0.002)
    # Loading and the answer have more to tell, but nobody has looked yet.
    time.sleep(0.3)
    assert calls == ["quire-engine"]
    talk.until(RequestFinished)
    calls.clear()
    talk.send(submit("b"))
    talk.until(RequestFinished, request_id="b")
    assert calls


def test_wake_up_that_is_set_late_is_not_missed():
    """An event that came before, and was fetched, leaves nothing pending."""
    client = QueueClient()
    client.post(EngineStatusChanged(EngineStatus.NO_MODEL))
    client.poll_events()
    client.post(EngineStatusChanged(EngineStatus.NO_MODEL))
    calls: list[int] = []
    # As if the poll had taken the event just before it was marked as told.
    client._events.clear()
    client.set_wakeup(lambda: calls.append(1))
    client.post(EngineStatusChanged(EngineStatus.NO_MODEL))
    assert calls == [1]
    client.post(EngineStatusChanged(EngineStatus.NO_MODEL))
    assert calls == [1]


def test_broken_command_does_not_end_the_engine(talk, monkeypatch):
    def broken(worker: Worker, *rest: object) -> None:
        raise RuntimeError("planted")

    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    monkeypatch.setattr("engine.submissions.Submissions._add", broken)
    talk.send(submit("a"))
    assert "planted" in talk.until(RequestFinished, request_id="a").error.message
    monkeypatch.undo()
    talk.send(submit("b"))
    talk.until(RequestFinished, request_id="b", reason=FinishReason.LENGTH)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_engine_that_dies_says_why(monkeypatch):
    client = start_engine()
    talk = Talk(client)
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    monkeypatch.setattr("engine.core.EngineCore.step", lambda core: 1 // 0)
    talk.send(submit("a"))
    failed = talk.until(EngineStatusChanged, status=EngineStatus.FAILED)
    assert "ZeroDivisionError" in failed.error.message
    talk.until(RequestFinished, request_id="a")
    assert client.close(5.0)


def test_close_in_mid_load(monkeypatch):
    gate = threading.Event()
    install_fake_loader(monkeypatch, gate)
    client = start_engine()
    client.send(LOAD)
    time.sleep(0.05)
    assert client.close(5.0)
    deadline = time.monotonic() + 5.0
    while any(t.name == "quire-loader" for t in threading.enumerate()):
        assert time.monotonic() < deadline, "the loader went on"
        time.sleep(0.01)


def test_commands_from_many_threads(talk, monkeypatch):
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)
    names = [f"r{i}" for i in range(40)]
    threads = [
        threading.Thread(target=lambda part=names[i::4]: [talk.send(submit(n)) for n in part])
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        talk.until(RequestFinished, request_id=name, reason=FinishReason.LENGTH)


def test_starter_model_that_is_missing_is_told(talk, tmp_path):
    talk.send(LoadModel(models_dir=str(tmp_path)))
    assert talk.until(ModelLoadFailed).error.code == "starter_model_missing"


def test_loader_turns_any_failure_into_words(monkeypatch):
    def broken(loader: ModelLoader) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(ModelLoader, "_load", broken)
    loader = ModelLoader(LOAD, lambda: None)
    assert loader.join(5.0)
    (outcome,) = loader.outcomes
    assert outcome.code == "internal"
    assert "KeyError" in outcome.message
