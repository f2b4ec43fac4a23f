"""Exporting and importing from the window: files written whole, read on a thread, faults told."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog

from app.conversation import ASSISTANT, USER, Conversation, Message
from app.error_text import describe_error
from app.exporting import to_json
from app.exporting_import import read_file
from app.session_state import Notice, Severity
from app.store_search import SearchResult
from app.widgets.transfers import JSON, MARKDOWN
from tests.helpers.window_stage import SHORT, Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


@pytest.fixture
def notices(stage: Stage) -> list[Notice]:
    found: list[Notice] = []
    stage.session.notice_raised.connect(found.append)
    return found


def answered(stage: Stage, qtbot) -> Conversation:
    """The open conversation, with one turn."""
    (conversation_id,) = stage.session.conversation_ids()
    stage.session.send(conversation_id, "What is a block?")
    qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
    return stage.session.conversation(conversation_id)


def add(stage: Stage, conversations: list[Conversation]) -> None:
    """Stores conversations as an import does, and waits until they are indexed."""
    ids = [conversation.conversation_id for conversation in conversations]
    for conversation in conversations:
        conversation.is_open = False
    assert stage.session.store_imported(conversations)
    stage.session.show_imported(ids)
    results: list[SearchResult] = []
    stage.session.search_finished.connect(results.append)
    deadline = time.monotonic() + 10.0
    while not results or not results[-1].is_complete:
        assert time.monotonic() < deadline
        stage.session.search("zzz")
        QTest.qWait(10)
    stage.session.search_finished.disconnect(results.append)


def made(title: str) -> Conversation:
    conversation = Conversation(title=title, title_is_automatic=False)
    conversation.append(Message(USER, f"question of {title}"))
    conversation.append(Message(ASSISTANT, "answer"))
    return conversation


def test_the_conversation_in_front_is_exported(stage: Stage, qtbot, tmp_path: Path) -> None:
    conversation = answered(stage, qtbot)
    stage.window.actions_registry["export_json"].trigger()
    (dialog,) = stage.window.findChildren(QFileDialog)
    assert dialog.selectedFiles()[0].endswith("What is a block.json")
    target = tmp_path / "張 庭 é's dir" / "out.json"
    target.parent.mkdir()
    dialog.fileSelected.emit(str(target))
    dialog.reject()
    (read,) = read_file(target)
    assert [m.content for m in read.path()] == ["What is a block?", SHORT]
    assert read.path()[1].params == conversation.path()[1].params
    assert [p.name for p in target.parent.iterdir()] == ["out.json"]


def test_a_stored_conversation_is_exported_from_the_side_bar(
    stage: Stage, qtbot, tmp_path: Path
) -> None:
    stored = [made("One"), made("Two")]
    add(stage, stored)
    stage.window.side_bar.export_requested.emit(stored[1].conversation_id, MARKDOWN)
    (dialog,) = stage.window.findChildren(QFileDialog)
    dialog.fileSelected.emit(str(tmp_path / "two.md"))
    dialog.reject()
    text = (tmp_path / "two.md").read_text(encoding="utf-8")
    assert text.startswith("# Two\n")
    assert "question of Two" in text
    assert stage.session.conversation_ids() != [stored[1].conversation_id]


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    stage: Stage, notices: list[Notice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")

    def refuse(_source: object, _target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.widgets.transfers.os.replace", refuse)
    assert not stage.window.transfers.write(made("One"), JSON, target)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]
    cause, action = describe_error(notices[-1].error)
    assert "out.json cannot be written: No space left on device" in cause
    assert "disk space" in action
    monkeypatch.undo()
    # A folder that is not there.
    assert not stage.window.transfers.write(made("One"), JSON, tmp_path / "none" / "out.json")


def test_one_imported_conversation_is_opened(
    stage: Stage, qtbot, notices: list[Notice], tmp_path: Path
) -> None:
    (tmp_path / "one.json").write_text(to_json([made("One")]), encoding="utf-8")
    with qtbot.waitSignal(stage.session.conversation_added):
        stage.window.transfers.read(tmp_path / "one.json")
    assert stage.page.conversation.title == "One"
    qtbot.waitUntil(lambda: bool(notices))
    assert notices[-1].severity is Severity.INFO
    assert notices[-1].error.message == "1 conversation was imported from one.json."


def test_many_are_stored_and_listed_and_found(stage: Stage, qtbot, tmp_path: Path) -> None:
    many = [made(f"Number {n}") for n in range(30)]
    (tmp_path / "many.json").write_text(to_json(many), encoding="utf-8")
    model = stage.window.side_bar.model
    with qtbot.waitSignal(stage.session.stored_changed):
        stage.window.transfers.read(tmp_path / "many.json")
    qtbot.waitUntil(lambda: model.rowCount() == 31)
    assert len(stage.session.conversation_ids()) == 1
    results: list[SearchResult] = []
    stage.session.search_finished.connect(results.append)

    def is_found() -> bool:
        # Indexed a little later.
        stage.session.search("question of Number 17")
        return bool(results) and len(results[-1].hits) == 1

    qtbot.waitUntil(is_found)
    (hit,) = results[-1].hits
    stage.window.side_bar.hit_chosen.emit(hit.conversation_id, hit.message_id)
    assert stage.page.conversation.title == "Number 17"


def test_a_malformed_file_changes_nothing_and_says_why(
    stage: Stage, qtbot, notices: list[Notice], tmp_path: Path
) -> None:
    document = json.loads(to_json([made("One"), made("Two")]))
    document["conversations"][1]["messages"][0]["role"] = "narrator"
    (tmp_path / "bad.json").write_text(json.dumps(document), encoding="utf-8")
    before = [s.conversation_id for s in stage.session.closed_conversations()]
    opened = stage.session.conversation_ids()
    stage.window.transfers.read(tmp_path / "bad.json")
    qtbot.waitUntil(lambda: bool(notices))
    cause, action = describe_error(notices[0].error)
    assert action.startswith("Nothing was changed.")
    assert "bad.json: Conversation 2 of 2" in cause
    assert "the role 'narrator' is unknown" in cause
    assert "ChatGPT" in action
    assert [s.conversation_id for s in stage.session.closed_conversations()] == before
    assert stage.session.conversation_ids() == opened


def test_importing_asks_for_a_file(stage: Stage, qtbot, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(to_json([made("One")]), encoding="utf-8")
    stage.window.actions_registry["import"].trigger()
    (dialog,) = stage.window.findChildren(QFileDialog)
    with qtbot.waitSignal(stage.session.conversation_added):
        dialog.fileSelected.emit(str(tmp_path / "one.json"))
    dialog.reject()
    assert stage.page.conversation.title == "One"


def test_what_is_no_longer_stored_cannot_be_exported(stage: Stage, notices: list[Notice]) -> None:
    assert stage.window.transfers.export("gone", JSON) is None
    assert [n.error.code for n in notices] == ["conversation_not_found"]
