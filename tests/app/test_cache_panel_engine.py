"""The panel on the real engine thread: snapshots and events as the worker really sends them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.bridge import Bridge
from app.cache_panel.block_tables import BlockTables
from app.cache_panel.panel import CachePanel
from app.cache_panel.pool_model import PoolModel
from app.session_state import ModelState, ModelStatus
from app.theme import ThemeManager
from engine.api.client import start_engine
from engine.api.commands import Cancel, LoadModel, PauseEngine, SetRate, Submit, UnloadModel
from engine.api.events import Event, ModelLoaded, ModelUnloaded, RequestFinished
from engine.api.params import ChatMessage, SamplingParams
from engine.api.snapshot import Snapshot
from tests.helpers.fake_loaded import install_fake_loader
from tests.helpers.panel_stage import TitledConversations

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")

PROMPT = "You answer in plain words and in full sentences. "
STEPS_PER_S = 60.0
"""So slow that a panel that looks twice a second sees each turn."""


class Stage:
    """A panel, a bridge and an engine thread."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.bridge = Bridge(start_engine)
        self.bridge.engine_event.connect(self.events.append)
        self.session = TitledConversations(["One", "Two", "Three", "Four"])
        self.panel = CachePanel(self.bridge, self.session, ThemeManager("light"))  # type: ignore[arg-type]

    def ask(self, number: int, max_tokens: int = 60) -> str:
        """Sends a question of conversation ``number``; returns the request's id."""
        message = ChatMessage("user", f"{PROMPT}Question {number}?")
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, seed=0)
        name = f"r{number}.{len(self.events)}"
        self.bridge.send(Submit((name,), f"c{number}", (message,), params))
        return name

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    @property
    def model(self) -> PoolModel:
        assert self.panel.model is not None
        return self.panel.model

    def truth_at_rest(self, qtbot: QtBot) -> PoolModel:
        """The engine's own newest snapshot, once the panel shows a pool at rest as new as that.

        Looked at together: a snapshot fetched before is soon older than what the panel shows.
        """
        taken: list[Snapshot] = []

        def shown() -> None:
            newest = self.bridge.latest_snapshot()
            assert newest is not None
            assert not self.model.inconsistency
            assert not newest.requests
            assert not self.model.tables
            assert self.model.last_seq == newest.last_seq
            taken.append(newest)

        qtbot.waitUntil(shown)
        return PoolModel.from_snapshot(taken[-1])


@pytest.fixture
def stage(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    install_fake_loader(monkeypatch)
    stage = Stage()
    qtbot.addWidget(stage.panel)
    stage.bridge.start()
    yield stage
    stage.panel.hide()
    assert stage.bridge.close()


def test_panel_equals_the_engine_while_conversations_come_and_go(
    qtbot: QtBot, stage: Stage
) -> None:
    stage.panel.resize(380, 800)
    stage.panel.show()
    stage.bridge.send(LoadModel(models_dir=""))
    stage.bridge.send(SetRate(STEPS_PER_S))
    qtbot.waitUntil(lambda: stage.count(ModelLoaded) == 1)
    stage.session.model_state_changed.emit()
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    first = stage.model
    for turn in range(3):
        names = [stage.ask(number) for number in (1, 2, 3, 4)]
        qtbot.waitUntil(lambda n=names: len(stage.model.tables.keys() & set(n)) > 1)
        if turn == 1:
            stage.bridge.send(Cancel(names[3]))
        qtbot.waitUntil(lambda t=turn: stage.count(RequestFinished) == 4 * (t + 1))
    truth = stage.truth_at_rest(qtbot)
    assert stage.model is first
    assert stage.panel.live is not None
    assert stage.panel.live.restarts == 0
    blocks = range(truth.num_blocks)
    assert [first.view(b) for b in blocks] == [truth.view(b) for b in blocks]
    assert first.counts == truth.counts
    assert first.counts.cached > 0
    tables = stage.panel.findChild(BlockTables)
    assert tables is not None
    qtbot.waitUntil(lambda: [strip.number for strip in tables.strips] == [1, 2, 3, 4])
    shared = {strip.blocks[: len(PROMPT) // 8] for strip in tables.strips}
    assert len(shared) == 1


def test_panel_shown_in_the_middle_catches_up(qtbot: QtBot, stage: Stage) -> None:
    stage.bridge.send(LoadModel(models_dir=""))
    stage.bridge.send(SetRate(STEPS_PER_S))
    qtbot.waitUntil(lambda: stage.count(ModelLoaded) == 1)
    for round_number in range(3):
        for number in (1, 2):
            stage.ask(number)
        stage.panel.show()
        qtbot.waitUntil(lambda: stage.panel.model is not None)
        stage.panel.hide()
        qtbot.waitUntil(lambda r=round_number: stage.count(RequestFinished) == 2 * (r + 1))
    stage.panel.show()
    truth = stage.truth_at_rest(qtbot)
    blocks = range(truth.num_blocks)
    assert [stage.model.view(b) for b in blocks] == [truth.view(b) for b in blocks]
    assert stage.panel.live is not None
    assert stage.panel.live.restarts == 0


def test_a_request_that_waits_in_a_paused_engine_is_shown(qtbot: QtBot, stage: Stage) -> None:
    stage.panel.resize(380, 800)
    stage.panel.show()
    stage.bridge.send(LoadModel(models_dir=""))
    qtbot.waitUntil(lambda: stage.count(ModelLoaded) == 1)
    stage.session.model_state_changed.emit()
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    assert stage.panel.live is not None
    lane = stage.panel.live.view.lane
    stage.panel.live.view.pages.reveal(lane)
    stage.bridge.send(PauseEngine())
    name = stage.ask(1)
    # It holds no block yet: nothing of this is an event of the pool.
    qtbot.waitUntil(lambda: [row.request_id for row in lane.model.rows] == [name])
    assert str(lane.model.index(0).data()) == "The engine is paused."
    stage.bridge.send(Cancel(name))
    qtbot.waitUntil(lambda: not lane.model.rows)


def test_a_panel_that_takes_the_place_of_another_shows_an_idle_pool(
    qtbot: QtBot, stage: Stage
) -> None:
    stage.panel.show()
    stage.bridge.send(LoadModel(models_dir=""))
    qtbot.waitUntil(lambda: stage.count(ModelLoaded) == 1)
    stage.ask(1)
    qtbot.waitUntil(lambda: stage.count(RequestFinished) == 1)
    qtbot.waitUntil(lambda: stage.panel.model is not None and stage.model.counts.cached > 0)
    # Nothing happens any more, so that no newer snapshot comes by itself.
    newest = stage.bridge.latest_snapshot()
    qtbot.wait(300)
    assert stage.bridge.latest_snapshot() is newest
    second = CachePanel(stage.bridge, stage.session, ThemeManager("light"))  # type: ignore[arg-type]
    qtbot.addWidget(second)
    second.remember(stage.panel.model)
    second.show()
    qtbot.waitUntil(lambda: second.live is not None)
    stage.panel.hide()
    qtbot.waitUntil(lambda: second.model is not None)
    assert second.model.counts == stage.model.counts
    # Of which conversation they are: a snapshot alone does not say it of cached blocks.
    tables = second.findChild(BlockTables)
    assert tables is not None
    qtbot.waitUntil(lambda: [strip.number for strip in tables.strips] == [1])
    second.hide()


def test_pool_that_is_let_go_while_answers_run_is_shown_no_longer(
    qtbot: QtBot, stage: Stage
) -> None:
    def turn(status: ModelStatus) -> None:
        stage.session.model_state = ModelState(status)
        stage.session.model_state_changed.emit()

    def told(event: Event) -> None:
        """As the session does: before the next event is told."""
        if isinstance(event, ModelLoaded):
            turn(ModelStatus.READY)

    stage.bridge.engine_event.connect(told)
    stage.panel.show()
    for loads in (1, 2):
        turn(ModelStatus.LOADING)
        stage.bridge.send(LoadModel(models_dir=""))
        stage.bridge.send(SetRate(STEPS_PER_S))
        qtbot.waitUntil(lambda n=loads: stage.count(ModelLoaded) == n)
        qtbot.waitUntil(lambda: stage.panel.model is not None)
        names = {stage.ask(number, 300) for number in (1, 2)}
        qtbot.waitUntil(lambda n=names: n <= stage.model.tables.keys())
        live = stage.panel.live
        assert live is not None
        # In the middle of a delivery that the panel has not looked at.
        qtbot.waitUntil(lambda p=live: stage.bridge.latest_snapshot() is not p._feed.newest)
        stage.bridge.send(UnloadModel())
        turn(ModelStatus.NO_MODEL)
        assert stage.panel.model is None
        qtbot.waitUntil(lambda n=loads: stage.count(ModelUnloaded) == n)
        live.refresh()
        assert stage.panel.model is None
        assert live.view.model is None
        assert live.restarts == 0
