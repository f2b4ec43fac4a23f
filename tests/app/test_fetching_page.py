"""The page on which models are fetched: fetching, pausing, stopping, and coming back to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from app.fetching import partial
from app.fetching.partial import SPARE_BYTES
from app.fetching.run import State
from app.widgets.fetching import service
from tests.helpers.fetching_page import CONTENT, GB, Stage, shown_page
from tests.helpers.hub_server import status

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    with shown_page(qtbot, tmp_path) as made:
        yield made


def test_a_fetched_model_is_told_and_can_be_loaded(stage: Stage) -> None:
    fetched: list[str] = []
    asked: list[str] = []
    stage.page.model_fetched.connect(fetched.append)
    stage.page.load_requested.connect(asked.append)
    stage.fetch()
    stage.wait(State.DONE)
    path = str(stage.models_dir / "org--tiny-GGUF" / "tiny-Q4_K_M.gguf")
    stage.qtbot.waitUntil(lambda: fetched == [path])
    assert stage.row.status.text() == "Fetched and checked · 205 KB · apache-2.0"
    stage.qtbot.mouseClick(stage.row.load_button, Qt.MouseButton.LeftButton)
    stage.qtbot.waitUntil(lambda: stage.view.button.text() == "Load")
    stage.qtbot.mouseClick(stage.view.button, Qt.MouseButton.LeftButton)
    assert asked == [path, path]
    stage.qtbot.mouseClick(stage.row.cancel_button, Qt.MouseButton.LeftButton)
    stage.qtbot.waitUntil(lambda: not stage.page.jobs.isVisible())
    assert Path(path).exists()


def test_pausing_and_going_on_by_the_buttons(stage: Stage) -> None:
    stage.pause_at(50_000)
    stage.wait(State.PAUSED)
    assert stage.row.status.text() == "Paused at 50 KB of 205 KB"
    assert stage.row.bar.value() == round(1000 * 50_000 / len(CONTENT))
    assert not stage.row.pause_button.isVisible()
    stage.qtbot.mouseClick(stage.row.resume_button, Qt.MouseButton.LeftButton)
    stage.wait(State.DONE)


def test_what_is_being_fetched_needs_its_room_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def free_bytes(_folder: Path) -> int:
        return SPARE_BYTES + len(CONTENT) * 3 // 2

    monkeypatch.setattr(partial, "free_bytes", free_bytes)
    monkeypatch.setattr(service, "free_bytes", free_bytes)
    stage.hub.stop_at = 50_000
    stage.hub.gate.clear()
    stage.fetch()
    stage.wait(State.FETCHING)
    stage.page.repository.refresh_choices()
    choice = stage.view.choice
    assert choice is not None
    assert choice.key == "Q4_K_M"
    assert stage.view.button.text() == "Being fetched"
    assert stage.view.fit.text().endswith(": fits.")
    assert {row.choice.key: row.fit for row in stage.view.model.rows()} == {
        "Q2_K": "fits",
        "Q4_K_M": "fits",
        # Beside what is being fetched.
        "Q8_0": "disk too small",
    }
    stage.hub.gate.set()
    stage.wait(State.DONE)


def test_a_fetch_goes_on_when_the_page_is_gone(stage: Stage) -> None:
    fetched: list[str] = []
    stage.service.model_fetched.connect(fetched.append)
    stage.hub.stop_at = 1000
    stage.hub.gate.clear()
    stage.fetch()
    stage.qtbot.waitUntil(lambda: bool(stage.parts()))
    stage.page.close()
    stage.page.deleteLater()
    stage.hub.gate.set()
    stage.qtbot.waitUntil(lambda: len(fetched) == 1)
    stage.show_page()
    assert stage.row.load_button.isVisible()


def test_a_hidden_page_has_no_work_and_is_right_when_it_is_shown_again(stage: Stage) -> None:
    stage.choose()
    stage.page.hide()
    looks: list[int] = []
    stage.service.free_memory = lambda: looks.append(1) or 12 * GB
    stage.qtbot.mouseClick(stage.view.button, Qt.MouseButton.LeftButton)
    stage.qtbot.waitUntil(lambda: [job.state for job in stage.service.jobs()] == [State.DONE])
    stage.qtbot.wait(50)
    assert stage.page.jobs.rows() == looks == []
    stage.page.show()
    assert stage.row.load_button.isVisible()
    assert stage.view.button.text() == "Load"


def test_a_page_made_anew_shows_the_same(stage: Stage) -> None:
    stage.choose()
    stage.page.close()
    stage.show_page()
    assert stage.page.model.rowCount() == 4
    assert stage.page.list.currentIndex().data() == "org/tiny-GGUF"
    assert stage.view.button.isVisible()


def test_after_a_restart_the_fetch_is_listed(stage: Stage) -> None:
    stage.pause_at(50_000)
    assert stage.service.close(5.0)
    stage.page.close()
    stage.open()
    assert stage.row.status.text() == "Paused at 50 KB of 205 KB"
    stage.qtbot.mouseClick(stage.row.resume_button, Qt.MouseButton.LeftButton)
    stage.wait(State.DONE)


def cancel_box(stage: Stage) -> QMessageBox:
    stage.qtbot.mouseClick(stage.row.cancel_button, Qt.MouseButton.LeftButton)
    return stage.page.window().findChild(QMessageBox)


def press(box: QMessageBox, text: str) -> None:
    next(button for button in box.buttons() if button.text() == text).click()


@pytest.mark.parametrize(
    ("answer", "num_parts", "num_jobs"),
    [("Keep the part", 1, 0), ("Delete the part", 0, 0), ("Go on fetching", 1, 1)],
)
def test_stopping_asks_what_to_do_with_the_part(
    stage: Stage, answer: str, num_parts: int, num_jobs: int
) -> None:
    stage.pause_at(50_000)
    stage.wait(State.PAUSED)
    box = cancel_box(stage)
    assert "50 KB of it are here" in box.informativeText()
    press(box, answer)
    stage.qtbot.waitUntil(lambda: len(stage.parts()) == num_parts)
    stage.qtbot.waitUntil(lambda: len(stage.page.jobs.rows()) == num_jobs)


def test_a_kept_part_is_offered_to_be_completed(stage: Stage) -> None:
    stage.pause_at(50_000)
    stage.wait(State.PAUSED)
    press(cancel_box(stage), "Keep the part")
    stage.qtbot.waitUntil(lambda: stage.view.button.text() == "Go on (155 KB left)")
    stage.qtbot.mouseClick(stage.view.button, Qt.MouseButton.LeftButton)
    stage.wait(State.DONE)
    assert stage.hub.content_requests()[-1].range == "bytes=50000-"


def test_what_runs_is_above_what_is_done_and_all_of_it_is_seen(stage: Stage) -> None:
    stage.fetch()
    stage.wait(State.DONE)
    stage.hub.stop_at = 1000
    stage.hub.gate.clear()
    stage.view.list.setCurrentIndex(stage.view.model.index(2))
    stage.qtbot.mouseClick(stage.view.button, Qt.MouseButton.LeftButton)
    stage.qtbot.waitUntil(lambda: len(stage.page.jobs.rows()) == 2)
    first, second = stage.page.jobs.rows()
    assert "Q8_0" in first.title.text()
    assert second.load_button.isVisible()
    stage.qtbot.waitUntil(lambda: not stage.page.jobs.area.verticalScrollBar().isVisible())
    assert second.geometry().bottom() <= stage.page.jobs.area.viewport().height()


def test_an_error_is_in_words_and_can_be_tried_again(stage: Stage) -> None:
    stage.hub.faults = [status(404)]
    stage.fetch()
    stage.wait(State.FAILED)
    assert stage.row.status.text().startswith("127.0.0.1 has no such model or file.")
    assert stage.row.status.property("tone") == "error"
    stage.qtbot.mouseClick(stage.row.resume_button, Qt.MouseButton.LeftButton)
    stage.wait(State.DONE)


def test_a_wait_counts_down_and_can_be_cut_short(stage: Stage) -> None:
    stage.hub.faults = [status(429, Retry_After="90")]
    stage.fetch()
    stage.wait(State.WAITING)
    first = stage.row.status.text()
    assert first.startswith("The hub asks to wait. Goes on in 1:")
    assert stage.page.jobs._timer.isActive()
    stage.qtbot.waitUntil(lambda: stage.row.status.text() != first, timeout=3000)
    stage.qtbot.mouseClick(stage.row.resume_button, Qt.MouseButton.LeftButton)
    stage.wait(State.DONE)
    stage.qtbot.waitUntil(lambda: not stage.page.jobs._timer.isActive())
