"""The guided tour: every step waits for its event, and nothing of the user's is touched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.cache_panel.pool_grid import PoolGrid
from app.paths import models_dir
from app.theme import ThemeManager
from app.tour import lesson as lessons
from app.tour.lesson import lesson
from app.tour.rig import Rig
from app.tour.window import TourWindow
from app.widgets.panel_tools import TOUR_ENGINE, PanelTools
from engine.api.client import QueueClient, start_engine
from engine.api.commands import Cancel, Command, Configure, LoadModel, PauseEngine, Submit
from engine.api.errors import ErrorInfo, StarterModelMissingError
from engine.api.events import (
    BlockChanged,
    BlockEventKind,
    BlockEvents,
    BlockState,
    BlockView,
    Event,
    ModelLoaded,
    ModelLoadFailed,
    PoolEvent,
    PrefillProgress,
    RequestPreempted,
    TableChanged,
    TokensGenerated,
)
from engine.api.params import EngineConfig
from tests.helpers.fake_loaded import INFO
from tests.helpers.starter import starter_gguf

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints", r"does not support raise")

VIEW = BlockView(BlockState.USED, 1, b"", "", 0)
FREE = BlockView(BlockState.FREE, 0, b"", "", 0)
NEXT, SKIP, BACK = "next_button", "skip_button", "back_button"


class ScriptedClient(QueueClient):
    """An engine that does nothing by itself; ``sent`` is what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Command] = []
        self.attach(self._note, lambda _timeout_s: True)

    def _note(self) -> None:
        self.sent += self.take_commands()

    def submits(self) -> list[Submit]:
        return [command for command in self.sent if isinstance(command, Submit)]


class Tour:
    """A tour whose engine is the test; ``tell`` makes things happen."""

    def __init__(self, qtbot: QtBot) -> None:
        self.qtbot = qtbot
        self.client = ScriptedClient()
        self.window = TourWindow(lambda: self.client, "models", ThemeManager("light"))
        self.window.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
        qtbot.addWidget(self.window)
        self.window.show()
        self.seq = 0

    def ready(self) -> None:
        self.client.post(ModelLoaded("", INFO, 0.1))
        self.qtbot.waitUntil(lambda: self.window.next_button.isEnabled())

    def tell(self, *events: Event | PoolEvent) -> None:
        """Tells these in order and waits until the window has heard them."""
        heard: list[object] = []
        self.window.rig.happened.connect(heard.append)
        for event in events:
            is_pool = isinstance(event, BlockChanged | TableChanged)
            self.client.post(BlockEvents((event,)) if is_pool else event)
        self.qtbot.waitUntil(lambda: len(heard) >= len(events))
        self.window.rig.happened.disconnect(heard.append)

    def press(self, name: str) -> None:
        QTest.mouseClick(getattr(self.window, name), Qt.MouseButton.LeftButton)

    def block(self, kind: BlockEventKind, cause: str, request_id: str) -> BlockChanged:
        self.seq += 1
        is_gone = kind is BlockEventKind.REMOVED and cause != "error"
        after = FREE if is_gone else VIEW
        return BlockChanged(self.seq, 1, kind, cause, 3, request_id, "c", VIEW, after, 2)

    def table(self, request_id: str, start: int, *added: int) -> TableChanged:
        self.seq += 1
        return TableChanged(self.seq, 1, "grow", request_id, "c", start, (), added)

    @property
    def last_requests(self) -> tuple[str, ...]:
        return self.client.submits()[-1].request_ids


@pytest.fixture
def tour(qtbot: QtBot) -> Iterator[Tour]:
    made = Tour(qtbot)
    yield made
    made.window.hide()


def words(request_id: str) -> TokensGenerated:
    return TokensGenerated(request_id, "c", (7,), "word ")


def test_the_first_page_waits_for_the_model_only(tour: Tour) -> None:
    assert not tour.window.next_button.isEnabled()
    loads = [c for c in tour.client.sent if isinstance(c, LoadModel)]
    assert [c.fetch_starter for c in loads] == [False]
    assert loads[0].config.num_blocks == 40
    tour.ready()
    assert tour.window.index == 0


def test_a_step_goes_on_only_after_its_event(tour: Tour) -> None:
    tour.ready()
    tour.press(NEXT)
    (name,) = tour.last_requests
    assert not tour.window.next_button.isEnabled()
    # Time, words, other requests and the first table are not what it waits for.
    tour.tell(
        words(name),
        tour.table(name, 0, 5, 6),
        tour.table("another", 0, 1),
        tour.table("another", 1, 2),
        tour.block(BlockEventKind.FILLED, "computed", name),
    )
    assert not tour.window.next_button.isEnabled()
    assert tour.window.state.text().startswith("Waiting until the answer has filled")
    tour.press(NEXT)
    assert tour.window.index == 1
    tour.tell(tour.table(name, 2, 9))
    assert tour.window.next_button.isEnabled()
    assert "took block 9" in tour.window.state.text()
    assert "5, 6, 9" in tour.window.state.text()
    assert isinstance(tour.client.sent[-1], PauseEngine)


@pytest.mark.parametrize("missing", ["hits", "words"])
def test_sharing_needs_blocks_found_and_an_answer(tour: Tour, missing: str) -> None:
    tour.ready()
    tour.window.go_to(2)
    (first,) = tour.last_requests
    tour.tell(words(first))
    (second,) = tour.last_requests
    assert second != first
    cached = 0 if missing == "hits" else 80
    tour.tell(PrefillProgress(second, "c", 103, 103, cached))
    if missing != "words":
        tour.tell(words(second))
    assert not tour.window.next_button.isEnabled()
    tour.tell(PrefillProgress(second, "c", 103, 103, 80), words(second))
    assert tour.window.next_button.isEnabled()
    assert "80 of them were found ready" in tour.window.state.text()
    assert "only 23 tokens had to be computed" in tour.window.state.text()


def test_two_answers_wait_for_the_copy_of_their_block(tour: Tour) -> None:
    tour.ready()
    tour.window.go_to(3)
    first, second = tour.last_requests
    tour.tell(
        tour.block(BlockEventKind.HIT, "fork", second),
        words(first),
        words(second),
        tour.block(BlockEventKind.COPIED, "copy", "another"),
    )
    assert not tour.window.step.is_done
    tour.tell(tour.block(BlockEventKind.COPIED, "copy", second))
    assert "Block 2 was copied to block 3" in tour.window.state.text()
    assert tour.window.panel.view.grid._highlight == {2, 3}
    tour.press(NEXT)
    assert tour.window.panel.view.grid._highlight == frozenset()


def test_preemption_and_return_wait_for_the_engine(tour: Tour) -> None:
    tour.ready()
    tour.window.go_to(6)
    names = [submit.request_ids[0] for submit in tour.client.submits()[-3:]]
    tour.tell(*(words(name) for name in names))
    assert not tour.window.step.is_done
    tour.tell(RequestPreempted(names[2], "c", "pool", 11))
    assert "Conversation 3 was preempted and gave up 11 blocks." in tour.window.state.text()
    tour.press(NEXT)
    assert not tour.window.next_button.isEnabled()
    taken = [tour.block(BlockEventKind.REMOVED, "grow", names[0]) for _ in range(3)]
    tour.tell(words(names[1]), *taken[:2])
    assert not [c for c in tour.client.sent if c == Cancel(names[0])]
    tour.tell(taken[2])
    assert Cancel(names[0]) in tour.client.sent
    tour.tell(words(names[2]))
    assert not tour.window.step.is_done
    tour.tell(tour.block(BlockEventKind.HIT, "prefix", names[2]))
    assert tour.window.step.is_done
    assert "computed again (3 blocks)" in tour.window.state.text()
    # From now on the others take what is not its.
    tour.tell(tour.block(BlockEventKind.REMOVED, "grow", names[1]))
    assert "computed again (3 blocks)" in tour.window.state.text()


def test_a_block_that_an_answer_failed_on_is_not_told_as_evicted(tour: Tour) -> None:
    tour.ready()
    tour.window.go_to(5)
    (name,) = tour.last_requests
    tour.tell(tour.block(BlockEventKind.REMOVED, "error", name))
    assert not tour.window.step.is_done
    tour.tell(tour.block(BlockEventKind.REMOVED, "prompt", name))
    assert tour.window.state.text().startswith("1 block evicted so far.")


def test_skip_and_back_begin_a_step_anew(tour: Tour) -> None:
    tour.ready()
    assert not tour.window.back_button.isEnabled()
    tour.press(NEXT)
    (first,) = tour.last_requests
    tour.press(SKIP)
    assert tour.window.index == 2
    tour.press(BACK)
    assert tour.window.index == 1
    (again,) = tour.last_requests
    assert again != first
    tour.tell(tour.table(first, 0, 1), tour.table(first, 1, 2))
    assert not tour.window.step.is_done
    salts = [c.config.cache_salt for c in tour.client.sent if isinstance(c, Configure)]
    assert len(salts) == len(set(salts)) == 3


def test_the_panel_part_is_pointed_at(tour: Tour) -> None:
    tour.ready()
    assert tour.window.pointer.target is None
    tour.window.go_to(3)
    assert isinstance(tour.window.pointer.target, PoolGrid)
    assert tour.window.pointer.isVisible()


def test_a_missing_model_is_told_and_fetched_when_asked(tour: Tour) -> None:
    tour.client.post(ModelLoadFailed("", StarterModelMissingError("It is not there.").info()))
    tour.qtbot.waitUntil(tour.window.fetch_button.isVisible)
    assert tour.window.state_heading.text() == "This did not work"
    tour.press("fetch_button")
    assert tour.client.sent[-1].fetch_starter


def test_a_failure_of_the_engine_is_told(tour: Tour) -> None:
    tour.ready()
    tour.window.rig.failed.emit(ErrorInfo("internal", "Something broke.", "Leave the tour."))
    assert "Something broke" in tour.window.state.text()


def test_leaving_ends_the_engine_and_nothing_else(qtbot: QtBot) -> None:
    window = TourWindow(
        partial(start_engine, TOUR_ENGINE), "nowhere", ThemeManager("light")
    )  # fmt: skip
    window.show()
    assert any(thread.name == TOUR_ENGINE for thread in threading.enumerate())
    QTest.mouseClick(window.leave_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not any(t.name == TOUR_ENGINE for t in threading.enumerate()))


def test_every_step_has_words(qtbot: QtBot) -> None:
    rig = Rig(ScriptedClient, "models")
    steps = lesson(rig)
    assert len({step.title for step in steps}) == len(steps) == 9
    for step in steps[1:-1]:
        assert step.look
        assert step.waiting.startswith("Waiting until")


def test_the_tools_open_one_tour_and_end_it_with_the_window(qtbot: QtBot) -> None:
    from tests.helpers.window_stage import window_stage

    with window_stage(qtbot) as stage:
        clients: list[ScriptedClient] = []

        def start() -> ScriptedClient:
            clients.append(ScriptedClient())
            return clients[-1]

        stage.window.panel_tools._tour_engine = start
        stage.engine.commands.clear()
        stage.window.actions_registry["guided_tour"].trigger()
        stage.window.actions_registry["guided_tour"].trigger()
        assert len(clients) == 1
        assert isinstance(stage.window.panel_tools, PanelTools)
        tour = stage.window.panel_tools.tour
        assert tour is not None
        assert tour.isVisible()
        clients[0].post(ModelLoaded("", INFO, 0.1))
        qtbot.waitUntil(lambda: tour.next_button.isEnabled())
        tour.go_to(1)
        # The window's own engine and conversations have heard nothing of it.
        of_the_tour = (Submit, Configure, LoadModel, PauseEngine)
        assert not [c for c in stage.engine.commands if isinstance(c, of_the_tour)]
        assert len(stage.session.conversation_ids()) == 1


@pytest.mark.slow
def test_the_whole_tour_runs_on_the_starter_model(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    starter_gguf()
    # At full speed: nobody reads here.
    for step in vars(lessons).values():
        if isinstance(step, type) and issubclass(step, lessons.Step):
            monkeypatch.setattr(step, "steps_per_s", None)
    monkeypatch.setattr(
        "app.tour.rig.CONFIG", EngineConfig(num_blocks=40, device="cpu", watermark=0.0)
    )
    client = start_engine(TOUR_ENGINE)
    window = TourWindow(lambda: client, str(models_dir()), ThemeManager("light"))
    window.show()
    for index in range(len(window.steps)):
        qtbot.waitUntil(lambda i=index: window.index == i, timeout=1000)
        qtbot.waitUntil(lambda: window.next_button.isEnabled(), timeout=90_000)
        assert not window._failure
        if index not in (0, len(window.steps) - 1):
            assert window.state.text() == window.step.outcome()
        QTest.mouseClick(window.next_button, Qt.MouseButton.LeftButton)
    assert client.close(10.0)
