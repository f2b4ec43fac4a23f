"""Exporting and importing from the window: files written whole, read on a thread, faults told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog

from app.conversation import ASSISTANT, USER, Conversation, Message
from app.error_text import describe_error
from app.exporting import to_json
from app.exporting_import import Imported, LeftOut, read_file
from app.session_state import Notice, Severity
from app.store_search import SearchResult
from app.widgets.transfers import JSON, MARKDOWN, left_out_words
from tests.helpers.listed import listed
from tests.helpers.window_stage import SHORT, Stage, import_indexed, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

TEXT = {"content_type": "text", "parts": ["A question"]}


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


def wait_written(stage: Stage, qtbot) -> None:
    qtbot.waitUntil(lambda: not stage.window.transfers.is_busy)


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
    wait_written(stage, qtbot)
    (read,) = read_file(target).conversations
    assert [m.content for m in read.path()] == ["What is a block?", SHORT]
    assert read.path()[1].params == conversation.path()[1].params
    assert [p.name for p in target.parent.iterdir()] == ["out.json"]


def test_a_stored_conversation_is_exported_from_the_side_bar(
    stage: Stage, qtbot, tmp_path: Path
) -> None:
    stored = [made("One"), made("Two")]
    import_indexed(stage, stored)
    stage.window.transfers.export([stored[1].conversation_id], MARKDOWN)
    (dialog,) = stage.window.findChildren(QFileDialog)
    dialog.fileSelected.emit(str(tmp_path / "two.md"))
    dialog.reject()
    wait_written(stage, qtbot)
    text = (tmp_path / "two.md").read_text(encoding="utf-8")
    assert text.startswith("# Two\n")
    assert "question of Two" in text
    assert stage.session.conversation_ids() != [stored[1].conversation_id]


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    stage: Stage, qtbot, notices: list[Notice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(stage, qtbot)
    ids = stage.session.conversation_ids()
    target = tmp_path / "out.json"
    target.write_text("old")

    def refuse(_source: object, _target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.exporting_files.replace_file", refuse)
    assert stage.window.transfers.write(ids, JSON, target)
    wait_written(stage, qtbot)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]
    cause, action = describe_error(notices[-1].error)
    assert "out.json cannot be written: No space left on device" in cause
    assert "disk space" in action
    monkeypatch.undo()
    # A folder that is not there.
    notices.clear()
    stage.window.transfers.write(ids, JSON, tmp_path / "none" / "out.json")
    wait_written(stage, qtbot)
    assert notices[-1].error.code == "export_file"


def stored_ids(stage: Stage, *titles: str) -> list[str]:
    conversations = [made(title) for title in titles]
    import_indexed(stage, conversations)
    return [conversation.conversation_id for conversation in conversations]


def test_several_go_into_one_json_file_and_come_back(stage: Stage, qtbot, tmp_path: Path) -> None:
    ids = stored_ids(stage, "One", "Two", "Three")
    stage.window.transfers.export(ids[:2], JSON)
    (dialog,) = stage.window.findChildren(QFileDialog)
    dialog.fileSelected.emit(str(tmp_path / "some.json"))
    dialog.reject()
    wait_written(stage, qtbot)
    titles = [c.title for c in read_file(tmp_path / "some.json").conversations]
    assert titles == ["One", "Two"]


def test_several_go_into_a_folder_with_a_markdown_file_each(
    stage: Stage, qtbot, tmp_path: Path
) -> None:
    ids = stored_ids(stage, "Same", "Same", "<b>/..")
    (tmp_path / "Same.md").write_text("of the user")
    stage.window.transfers.export(ids, MARKDOWN)
    (dialog,) = stage.window.findChildren(QFileDialog)
    assert dialog.fileMode() == QFileDialog.FileMode.Directory
    dialog.fileSelected.emit(str(tmp_path))
    dialog.reject()
    wait_written(stage, qtbot)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["Same (2).md", "Same (3).md", "Same.md", "b.md"]
    assert (tmp_path / "Same.md").read_text() == "of the user"


def test_all_are_exported_but_those_deleted(stage: Stage, qtbot, tmp_path: Path) -> None:
    answered(stage, qtbot)
    ids = stored_ids(stage, "One", "Two")
    stage.session.delete_conversations(ids[:1])
    stage.window.actions_registry["export_all"].trigger()
    (dialog,) = stage.window.findChildren(QFileDialog)
    dialog.fileSelected.emit(str(tmp_path / "all.json"))
    dialog.reject()
    wait_written(stage, qtbot)
    titles = [c.title for c in read_file(tmp_path / "all.json").conversations]
    assert titles == ["What is a block?", "Two"]


def test_an_export_is_written_in_slices_and_leaves_nothing_when_cancelled(
    stage: Stage, qtbot, tmp_path: Path
) -> None:
    ids = stored_ids(stage, *(f"Number {n}" for n in range(400)))
    transfers = stage.window.transfers
    transfers.bar._patience.setInterval(0)
    transfers.write(ids, JSON, tmp_path / "many.json")
    assert not list(tmp_path.iterdir())
    qtbot.waitUntil(lambda: transfers.bar.isVisible() and transfers.bar.progress.value() > 0)
    assert transfers.is_busy
    QTest.mouseClick(transfers.bar.button, Qt.MouseButton.LeftButton)
    assert not transfers.is_busy
    assert not list(tmp_path.iterdir())
    assert transfers.bar.isHidden()


def test_an_import_is_stopped_before_anything_is_stored(
    stage: Stage, qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.json").write_text(to_json([made("One")]), encoding="utf-8")
    goes_on = threading.Event()

    def read_slowly(path: Path, told: Callable[[float], None]) -> Imported:
        told(0.5)
        goes_on.wait(5.0)
        told(0.75)
        return read_file(path)

    monkeypatch.setattr("app.widgets.transfers.read_file", read_slowly)
    transfers = stage.window.transfers
    transfers.bar._patience.setInterval(0)
    before = len(stage.session.closed_conversations())
    transfers.read(tmp_path / "one.json")
    qtbot.waitUntil(lambda: transfers.bar.progress.value() == 500)
    assert transfers.bar.isVisible()
    transfers.bar.button.click()
    goes_on.set()
    qtbot.waitUntil(lambda: not transfers.is_busy and transfers.bar.isHidden())
    assert len(stage.session.closed_conversations()) == before


def test_two_at_once_are_refused_with_a_notice(
    stage: Stage, qtbot, notices: list[Notice], tmp_path: Path
) -> None:
    ids = stored_ids(stage, "One")
    assert stage.window.transfers.write(ids, JSON, tmp_path / "a.json")
    assert not stage.window.transfers.write(ids, JSON, tmp_path / "b.json")
    assert notices[-1].error.code == "transfer_running"
    wait_written(stage, qtbot)
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_what_was_left_out_of_an_import_is_told(
    stage: Stage, qtbot, notices: list[Notice], tmp_path: Path
) -> None:
    good = {"parent": None, "message": {"author": {"role": "user"}, "content": TEXT}}
    entries = [{"mapping": {"q": good}}, {"mapping": {"q": good | {"parent": "gone"}}}]
    (tmp_path / "chats.json").write_text(json.dumps(entries), encoding="utf-8")
    stage.window.transfers.read(tmp_path / "chats.json")
    qtbot.waitUntil(lambda: bool(notices))
    assert notices[-1].severity is Severity.WARNING
    assert "1 conversation was imported" in notices[-1].error.message
    assert "the node gone is missing" in notices[-1].error.message


def test_those_left_out_are_named_as_far_as_there_is_room() -> None:
    faults = [LeftOut(n, "" if n == 2 else f"Plan {n}", "a reason") for n in (1, 2, 3, 4)]
    assert left_out_words(faults[:1]) == "1 could not be read: “Plan 1” (a reason)"
    assert left_out_words(faults) == (
        "4 could not be read: “Plan 1” (a reason), number 2 (a reason), “Plan 3” (a reason), …"
    )


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
    qtbot.waitUntil(lambda: len(listed(model)) == 31)
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
    assert "bad.json: Conversation 2 is" in cause
    assert "the role 'narrator' is unknown" in cause
    assert "ChatGPT" in action
    assert [s.conversation_id for s in stage.session.closed_conversations()] == before
    assert stage.session.conversation_ids() == opened


def test_what_the_store_refuses_is_not_said_to_be_imported(
    stage: Stage,
    qtbot,
    notices: list[Notice],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = made("Bad")
    bad.append(Message("narrator", "no such role"))
    monkeypatch.setattr(
        "app.widgets.transfers.read_file", lambda _path, _told: Imported([made("Good"), bad])
    )
    stage.window.transfers.read(tmp_path / "x.json")
    qtbot.waitUntil(lambda: len(notices) > 1)
    assert {notice.error.code for notice in notices} == {"store_write", "import_file"}
    assert stage.session.closed_conversations() == []


def test_importing_asks_for_a_file(stage: Stage, qtbot, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(to_json([made("One")]), encoding="utf-8")
    stage.window.actions_registry["import"].trigger()
    (dialog,) = stage.window.findChildren(QFileDialog)
    with qtbot.waitSignal(stage.session.conversation_added):
        dialog.fileSelected.emit(str(tmp_path / "one.json"))
    dialog.reject()
    assert stage.page.conversation.title == "One"


def test_what_is_no_longer_stored_cannot_be_exported(stage: Stage, notices: list[Notice]) -> None:
    assert stage.window.transfers.export(["gone"], JSON) is None
    assert [n.error.code for n in notices] == ["conversation_not_found"]
