"""Files that take long to read belong to the draft from the moment they were chosen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.conversation import Attachment
from app.i18n import Language
from app.session_state import Notice
from app.text_files import read_text_file
from app.widgets import file_reader
from app.widgets.words import error_words
from engine.api.commands import Submit
from tests.helpers.window_stage import Stage, send, window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

SLOW_MS = 30_000
NOTES = Attachment("notes.txt", "what was noted")
SENT = "notes.txt\n```\nwhat was noted\n```\n\nWhat is in it?"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Nothing is read before it is set."""
    ready = threading.Event()

    def read(path: Path) -> Attachment:
        ready.wait(60.0)
        return read_text_file(path)

    monkeypatch.setattr(file_reader, "read_text_file", read)
    yield ready
    ready.set()


@pytest.fixture
def stage(qtbot, disk: threading.Event) -> Iterator[Stage]:
    language = Language("en")
    language.install()
    with window_stage(qtbot, language=language) as made:
        yield made
        disk.set()
    language.remove()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text(NOTES.text, "utf-8")
    return path


def wait(qtbot, condition: Callable[[], bool]) -> None:
    qtbot.waitUntil(condition, timeout=SLOW_MS)


def submits(stage: Stage) -> list[Submit]:
    return [c for c in stage.engine.commands if isinstance(c, Submit)]


def is_all_read(stage: Stage) -> bool:
    return not stage.page.drafting.files.unread


def test_enter_waits_for_the_files(stage: Stage, disk, notes: Path, qtbot) -> None:
    page = stage.page
    page.drafting.files.read([notes, notes])
    send(stage, "What is in it?")
    wait(qtbot, page.composer.reading.isVisible)
    assert page.composer.typed_text() == "What is in it?"
    assert not page.conversation.messages
    disk.set()
    wait(qtbot, lambda: len(submits(stage)) == 1)
    assert submits(stage)[0].messages[-1].content == f"{SENT.partition('What is')[0]}{SENT}"
    assert page.composer.text() == ""
    assert page.conversation.attachments == ()


def test_so_do_several_answers(stage: Stage, disk, notes: Path, qtbot) -> None:
    page = stage.page
    page.drafting.files.read([notes])
    QTest.keyClicks(page.composer.edit, "What is in it?")
    page.message_actions.ask_several(2)
    assert not page.conversation.messages
    disk.set()
    wait(qtbot, lambda: len(submits(stage)) == 1)
    assert submits(stage)[0].messages[-1].content == SENT
    assert len(submits(stage)[0].request_ids) == 2


def test_what_is_written_after_enter_is_not_sent_by_it(
    stage: Stage, disk, notes: Path, qtbot
) -> None:
    page = stage.page
    page.drafting.files.read([notes])
    send(stage, "What is in it?")
    QTest.keyClicks(page.composer.edit, " And")
    disk.set()
    wait(qtbot, lambda: is_all_read(stage))
    assert page.composer.attachments.items == (NOTES,)
    assert page.composer.typed_text() == "What is in it? And"
    assert not page.conversation.messages
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    wait(qtbot, lambda: len(submits(stage)) == 1)


def test_nothing_is_sent_without_a_file_that_was_refused(
    stage: Stage, disk, notes: Path, qtbot
) -> None:
    page = stage.page
    page.drafting.files.read([notes.with_name("none.txt"), notes])
    send(stage, "What is in it?")
    disk.set()
    wait(qtbot, lambda: is_all_read(stage))
    assert [bar.notice.error.code for bar in page.notices.bars] == ["attachment_unreadable"]
    assert page.composer.attachments.items == (NOTES,)
    assert page.composer.typed_text() == "What is in it?"
    assert not page.conversation.messages


def test_a_tab_that_was_closed_meanwhile_has_them_when_it_is_opened_again(
    stage: Stage, disk, notes: Path, qtbot
) -> None:
    stage.page.drafting.files.read([notes])
    conversation_id = send(stage, "What is in it?")
    stage.window.tab_area.close_conversation(conversation_id)
    disk.set()
    qtbot.wait(50)
    stage.window.tab_area.reopen_last()
    assert stage.page.conversation_id == conversation_id
    wait(qtbot, lambda: is_all_read(stage))
    assert stage.page.composer.attachments.items == (NOTES,)
    assert stage.page.conversation.attachments == (NOTES,)
    assert stage.page.composer.typed_text() == "What is in it?"
    assert not stage.page.conversation.messages
    # Once only.
    stage.window.tab_area.close_conversation(conversation_id)
    stage.window.tab_area.reopen_last()
    assert is_all_read(stage)


def test_another_language_waits_for_them(stage: Stage, disk, notes: Path, qtbot) -> None:
    before = stage.window.tab_area
    stage.page.drafting.files.read([notes])
    stage.window.rebuilder.request()
    qtbot.wait(50)
    assert stage.window.tab_area is before
    disk.set()
    wait(qtbot, lambda: stage.window.tab_area is not before)
    assert stage.page.composer.attachments.items == (NOTES,)


def test_leaving_meanwhile_is_asked_about(stage: Stage, disk, notes: Path, qtbot) -> None:
    stage.page.drafting.files.read([notes])
    assert not stage.window.close()
    stage.window.quit_guard.box.reject()
    disk.set()
    wait(qtbot, lambda: is_all_read(stage))
    assert stage.page.composer.attachments.items == (NOTES,)
    assert stage.window.close()


def test_files_that_are_too_many_are_not_left_out_in_silence(
    stage: Stage, disk, notes: Path, qtbot
) -> None:
    notices: list[Notice] = []
    stage.session.notice_raised.connect(notices.append)
    disk.set()
    stage.page.drafting.files.read([notes] * 22)
    wait(qtbot, lambda: is_all_read(stage))
    assert len(stage.page.composer.attachments.items) == 20
    words = "20 of 22 files are attached. Attach the others afterwards."
    assert [error_words(notice.error) for notice in notices] == [words]
