"""Recording from the panel: the real engine thread, a writer thread, a full disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.bridge import Bridge
from app.cache_panel.pace_bar import PaceBar
from app.cache_panel.panel import CachePanel
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.recorder import Recorder
from app.cache_panel.trace_player import TracePlayer
from app.session_state import ModelState, ModelStatus
from app.theme import ThemeManager
from engine.api.client import EngineClient, QueueClient, start_engine
from engine.api.commands import (
    Cancel,
    Fork,
    LoadModel,
    PauseEngine,
    ResumeEngine,
    SetRate,
    StepEngine,
    Submit,
    SubscribePool,
)
from engine.api.events import BlockEvents, Event, ModelLoaded, PrefillProgress, RequestFinished
from engine.api.params import ChatMessage, SamplingParams
from engine.api.snapshot import Snapshot
from tests.helpers.fake_loaded import install_fake_loader
from tests.helpers.panel_stage import PanelStage, TitledConversations, panel_stage, shown
from tests.helpers.recorded_run import state_of, truth_of

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")
PROMPT = "You answer in plain words and in full sentences. "


class Stage:
    """A panel on an engine thread; ``truths``: every snapshot that the engine published."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.truths: dict[int, Snapshot] = {}
        self.bridge = Bridge(self._start)
        self.bridge.engine_event.connect(self.events.append)
        self.session = TitledConversations(["One", "Two", "Three", "Four", "Five"])
        self.panel = CachePanel(self.bridge, self.session, ThemeManager("light"))  # type: ignore[arg-type]

    def _start(self) -> EngineClient:
        client = start_engine()
        assert isinstance(client, QueueClient)
        publish = client.publish

        def keep(snapshot: Snapshot) -> None:
            self.truths[snapshot.last_seq] = snapshot
            publish(snapshot)

        client.publish = keep  # type: ignore[method-assign]
        return client

    def ask(self, name: str, conversation: int, text: str, max_tokens: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, seed=0)
        message = ChatMessage("user", PROMPT + text)
        self.bridge.send(Submit((name,), f"c{conversation}", (message,), params))

    def names_of(self, kind: type[Event]) -> set[str]:
        return {e.request_id for e in self.events if isinstance(e, kind)}  # type: ignore[attr-defined]

    def stop_in_the_middle_of_a_block(self, qtbot: QtBot, name: str) -> None:
        """Pauses the engine where a fork of that request has to copy a block."""
        self.bridge.send(PauseEngine())
        qtbot.waitUntil(lambda: self.pace.is_paused)
        for _ in range(self.model.block_size):
            newest = self.bridge.latest_snapshot()
            assert newest is not None
            qtbot.waitUntil(lambda seq=newest.last_seq: self.model.last_seq >= seq)
            last_block = self.model.tables[name].blocks[-1]
            if 0 < self.model.fill[last_block] < self.model.block_size - 1:
                return
            before = self.model.last_seq
            self.bridge.send(StepEngine())
            qtbot.waitUntil(lambda seq=before: self.model.last_seq > seq)
        raise AssertionError(f"{name} never stood in the middle of a block")

    @property
    def model(self) -> PoolModel:
        assert self.panel.model is not None
        return self.panel.model

    @property
    def pace(self) -> PaceBar:
        assert self.panel.live is not None
        return self.panel.live.pace

    @property
    def recorder(self) -> Recorder:
        assert self.panel.live is not None
        return self.panel.live.recorder


@pytest.fixture
def stage(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    install_fake_loader(monkeypatch)
    stage = Stage()
    qtbot.addWidget(stage.panel)
    stage.bridge.start()
    stage.panel.resize(380, 860)
    stage.panel.show()
    stage.bridge.send(LoadModel(models_dir=""))
    qtbot.waitUntil(lambda: bool([e for e in stage.events if isinstance(e, ModelLoaded)]))
    stage.session.model_state_changed.emit()
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    yield stage
    stage.panel.hide()
    stage.recorder.stop()
    assert stage.bridge.close()


def test_a_recorded_run_replays_as_the_engine_was(
    qtbot: QtBot, stage: Stage, tmp_path: Path
) -> None:
    path = tmp_path / "張 庭 é's run.ndjson"
    # So fast that every step has a delivery, and with it a snapshot of the engine's own making.
    stage.bridge.send(SubscribePool(1000.0))
    stage.bridge.send(SetRate(250.0))
    assert stage.panel.live is not None
    stage.panel.live.pace.record_to(str(path))
    for number in (1, 2, 3, 4):
        stage.ask(f"r{number}", number, f"Question {number}?", 120)
    qtbot.waitUntil(lambda: len(stage.names_of(PrefillProgress)) == 4)
    stage.stop_in_the_middle_of_a_block(qtbot, "r1")
    stage.bridge.send(Fork("r1", "r5", "c5"))
    stage.bridge.send(ResumeEngine())
    qtbot.wait(50)
    stage.bridge.send(Cancel("r3"))
    # Hidden it goes on.
    stage.panel.hide()
    qtbot.waitUntil(lambda: len(stage.names_of(RequestFinished)) == 5, timeout=20_000)
    stage.ask("r6", 2, "Question 2, edited?", 20)
    qtbot.waitUntil(lambda: "r6" in stage.names_of(RequestFinished))
    qtbot.wait(60)
    stage.panel.show()
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    stage.recorder.stop()
    assert stage.recorder.trouble == ""
    player = TracePlayer(path)
    assert player.load(60.0)
    assert player.trouble == ""
    assert stage.recorder.num_events == len(player.events) > 500
    causes = {event.cause for event in player.events}
    assert {"fork", "copy", "preempt", "cancel", "finish", "prefix", "grow"} <= causes
    first = player.model.last_seq
    places = [seq for seq in sorted(stage.truths) if seq >= first]
    assert places[-1] == player.events[-1].seq
    assert len(places) > 0.8 * player.num_steps
    for seq in [*places, *reversed(places)]:
        player.seek(seq - first)
        assert state_of(player.model) == truth_of(stage.truths[seq]), seq
    assert stage.panel.model is not None
    player.seek(len(player.events))
    assert state_of(stage.panel.model)[0] == state_of(player.model)[0]


def test_a_new_model_ends_the_recording(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    assert stage.panel.live is not None
    stage.panel.live.pace.record_to(str(tmp_path / "a.ndjson"))
    assert stage.recorder.is_recording
    stage.session.model_state = ModelState(ModelStatus.LOADING)
    stage.session.model_state_changed.emit()
    assert not stage.recorder.is_recording
    assert TracePlayer(tmp_path / "a.ndjson").load(5.0)


@pytest.fixture
def scripted(qtbot: QtBot) -> PanelStage:
    return shown(qtbot, panel_stage(qtbot))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_and_ends_the_recording(qtbot: QtBot, scripted: PanelStage) -> None:
    live = scripted.panel.live
    assert live is not None
    live.pace.record_to("/dev/full")
    qtbot.waitUntil(lambda: not live.recorder.is_recording)
    assert "The disk is full" in live.recorder.trouble
    assert live.pace.note.text() == live.recorder.trouble
    assert live.pace.note.isVisible()
    assert scripted.subscriptions == 1
    assert live.pace.record_button.isEnabled()


def test_a_folder_that_is_not_there_is_told(
    qtbot: QtBot, scripted: PanelStage, tmp_path: Path
) -> None:
    live = scripted.panel.live
    assert live is not None
    live.pace.record_to(str(tmp_path / "nowhere" / "x.ndjson"))
    qtbot.waitUntil(lambda: not live.recorder.is_recording)
    assert "x.ndjson cannot be written" in live.recorder.trouble


def test_a_gap_ends_the_recording_with_a_word(
    qtbot: QtBot, scripted: PanelStage, tmp_path: Path
) -> None:
    live = scripted.panel.live
    assert live is not None
    scripted.publish()
    live.pace.record_to(str(tmp_path / "gap.ndjson"))
    scripted.scripted.append("r1", 1)
    events = scripted.scripted.drain()
    scripted.client.post(BlockEvents(events))
    scripted.scripted.append("r1", 2)
    scripted.scripted.drain()
    scripted.scripted.append("r1", 3)
    scripted.deliver()
    qtbot.waitUntil(lambda: not live.recorder.is_recording)
    assert "gap" in live.recorder.trouble
    player = TracePlayer(tmp_path / "gap.ndjson")
    assert player.load(5.0)
    assert len(player.events) == len(events)


def test_the_file_is_written_by_another_thread(
    qtbot: QtBot, scripted: PanelStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[threading.Thread] = []
    real = Path.open
    monkeypatch.setattr(
        Path, "open", lambda *a, **k: (writers.append(threading.current_thread()), real(*a, **k))[1]
    )
    live = scripted.panel.live
    assert live is not None
    live.pace.record_to(str(tmp_path / "x.ndjson"))
    live.recorder.stop()
    assert len(writers) == 1
    assert writers[0] is not threading.main_thread()
    assert not writers[0].is_alive()
