"""Leaving the program by hand is asked about in mid-answer, the end of the session is not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from PySide6.QtCore import SIGNAL, Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.application import QuireApplication
from app.command_line import Options
from app.conversation import MessageStatus
from app.paths import Profile
from app.settings import Settings
from app.store import Store
from tests.helpers.fake_engine import FakeEngine
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support")

LONG = "word " * 2000


@pytest.fixture
def stage(qtbot: QtBot) -> Iterator[Stage]:
    with window_stage(qtbot, script=lambda _submit: LONG, tokens_per_s=200.0) as stage:
        yield stage


def begin_answer(stage: Stage, qtbot: QtBot) -> str:
    conversation_id = stage.session.active_conversation_id
    assert stage.window.submit_text(conversation_id, "Tell me.")
    qtbot.waitUntil(lambda: len(answer(stage).content) > 10)
    return conversation_id


def answer(stage: Stage):
    return stage.session.conversation(stage.session.active_conversation_id).path()[-1]


def button(stage: Stage, text: str):
    box = stage.window.quit_guard.box
    assert box is not None
    return next(b for b in box.buttons() if b.text() == text)


def test_an_idle_window_closes_at_once(stage: Stage) -> None:
    assert stage.window.close()
    assert stage.window.quit_guard.box is None


def test_what_is_being_typed_into_the_prompt_library_is_stored(
    qtbot: QtBot, tmp_path: Path
) -> None:
    with window_stage(qtbot, profile=tmp_path) as stage:
        stage.window.prompt_desk.open()
        editor = stage.window.prompt_desk.dialog.editor
        prompt_id = editor.prompt.prompt_id
        editor.edit.setPlainText("Typed just now.")
        assert stage.window.close()
    with closing(Store(Profile(tmp_path))) as store:
        assert store.prompts.get(prompt_id).text == "Typed just now."


@pytest.mark.parametrize("how", ["x", "action"])
def test_in_mid_answer_it_is_asked_and_staying_goes_on(
    stage: Stage, qtbot: QtBot, how: str
) -> None:
    conversation_id = begin_answer(stage, qtbot)
    if how == "x":
        assert not stage.window.close()
    else:
        stage.window.actions_registry["quit"].trigger()
    box = stage.window.quit_guard.box
    assert box is not None
    assert box.text() == "1 answer is still being written."
    assert box.isVisible()
    # Neither Enter nor Esc leaves.
    assert box.defaultButton() is box.escapeButton()
    qtbot.keyClick(box, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: stage.window.quit_guard.box is None)
    assert stage.window.isVisible()
    before = len(answer(stage).content)
    qtbot.waitUntil(lambda: len(answer(stage).content) > before)
    assert stage.session.is_busy(conversation_id)


def test_several_answers_to_one_question_are_counted(stage: Stage, qtbot: QtBot) -> None:
    conversation_id = stage.session.active_conversation_id
    assert stage.session.send(conversation_id, "Tell me.", num_answers=3)
    qtbot.waitUntil(lambda: stage.session.is_busy(conversation_id))
    assert not stage.window.close()
    box = stage.window.quit_guard.box
    assert box is not None
    assert box.text() == "3 answers are still being written."


def test_asking_twice_shows_one_question(stage: Stage, qtbot: QtBot) -> None:
    begin_answer(stage, qtbot)
    assert not stage.window.close()
    box = stage.window.quit_guard.box
    assert not stage.window.close()
    assert stage.window.quit_guard.box is box


def test_in_the_middle_of_an_export_it_is_asked(stage: Stage, qtbot: QtBot, tmp_path) -> None:
    ids = [stage.window.new_tab() for _ in range(3)]
    target = tmp_path / "all.json"
    assert stage.window.transfers.write(ids, "json", target)
    assert not stage.window.close()
    box = stage.window.quit_guard.box
    assert box is not None
    assert box.text() == "A file is still being written or read."
    box.reject()
    qtbot.waitUntil(target.exists)
    qtbot.waitUntil(lambda: not stage.window.transfers.is_busy)
    assert stage.window.close()


def test_quit_anyway_keeps_what_has_come(stage: Stage, qtbot: QtBot) -> None:
    begin_answer(stage, qtbot)
    assert not stage.window.close()
    qtbot.mouseClick(button(stage, "Quit anyway"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not stage.window.isVisible())
    assert answer(stage).status is MessageStatus.INTERRUPTED
    assert len(answer(stage).content) > 10


def test_the_end_of_the_session_is_not_asked_about(stage: Stage, qtbot: QtBot) -> None:
    begin_answer(stage, qtbot)
    stage.window.quit_guard.session_ends()
    assert stage.window.close()
    assert stage.window.quit_guard.box is None


@pytest.fixture
def application(qtbot: QtBot, tmp_path) -> Iterator[QuireApplication]:
    store = Store(Profile(tmp_path / "profile"))
    engine = FakeEngine(tokens_per_s=200.0, script=lambda _submit: LONG)
    application = QuireApplication(Options(), Settings(None), store, lambda: engine)
    application.show()
    qtbot.waitUntil(lambda: application.bridge.is_started)
    yield application
    application.close()


def test_when_the_session_ends_everything_is_on_disk_and_may_go_on(
    application: QuireApplication, qtbot: QtBot
) -> None:
    gui = QGuiApplication.instance()
    assert gui.receivers(SIGNAL("commitDataRequest(QSessionManager&)")) > 0
    session, window = application.session, application.window
    conversation_id = session.active_conversation_id
    qtbot.waitUntil(lambda: session.model_state.info is not None)
    assert window.submit_text(conversation_id, "Tell me.")
    path = session.conversation(conversation_id).path()
    qtbot.waitUntil(lambda: len(path[-1].content) > 10)
    window.tab_area.page(conversation_id).composer.edit.setPlainText("half a thought")
    application.on_session_end()
    stored = application._store.load_conversation(conversation_id)
    assert stored is not None
    assert stored.draft == "half a thought"
    assert path[-1].content.startswith(stored.path()[-1].content)
    assert len(stored.path()[-1].content) > 10
    with closing(sqlite3.connect(application._store.profile.database)) as database:
        names = {row[0] for row in database.execute("SELECT name FROM state")}
    assert {"window.geometry", "window.docks"} <= names
    # Called off by somebody else: the answer goes on.
    before = len(path[-1].content)
    qtbot.waitUntil(lambda: len(path[-1].content) > before)
