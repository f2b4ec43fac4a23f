"""What is written: kept with its attachments, measured, given back when it was refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import (
    QDragEnterEvent,
    QDropEvent,
    QImage,
    QInputMethodEvent,
    QTextCursor,
)
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget

from app.conversation import Attachment
from app.gauges import Gauge
from app.widgets.composer import LARGE_PASTE
from app.widgets.token_gauge import gauge_lines, gauge_sentences
from app.widgets.words import error_words
from engine.api.commands import Forecast, Submit
from engine.api.events import RequestUsage
from tests.helpers.session_stage import session_stage
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with window_stage(qtbot) as made:
        yield made


def paste(stage: Stage, text: str) -> None:
    data = QMimeData()
    data.setText(text)
    stage.page.composer.edit.insertFromMimeData(data)


def submits(stage: Stage) -> list[str]:
    return [c.messages[-1].content for c in stage.engine.commands if isinstance(c, Submit)]


# --- from elsewhere on the page ---


def test_what_is_typed_on_the_transcript_goes_into_the_composer(stage: Stage, qtbot) -> None:
    conversation_id = stage.page.conversation_id
    stage.window.submit_text(conversation_id, "One")
    qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
    view, edit = stage.page.transcript, stage.page.composer.edit
    edit.setPlainText("And ")
    edit.moveCursor(QTextCursor.MoveOperation.End)
    view.setFocus()
    for key in (Qt.Key.Key_Space, Qt.Key.Key_Delete, Qt.Key.Key_Backspace, Qt.Key.Key_Up):
        QTest.keyClick(view, key)
    assert view.hasFocus()
    QTest.keyClicks(view, "T")
    assert edit.hasFocus()
    QTest.keyClicks(edit, "wo")
    assert edit.toPlainText() == "And Two"
    view.setFocus()
    QApplication.clipboard().setText(" pasted")
    QTest.keyClick(view, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    assert edit.toPlainText() == "And Two pasted"


def test_no_break_spaces_are_sent_as_they_were_pasted(stage: Stage) -> None:
    edit = stage.page.composer.edit
    edit.setFocus()
    QApplication.clipboard().setText("x\u00a0=\u00a01")
    QTest.keyClick(edit, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClicks(edit, "Why?")
    assert stage.page.conversation.draft == "x\u00a0=\u00a01\nWhy?"
    QTest.keyClick(edit, Qt.Key.Key_Return)
    assert stage.shown_texts[0] == "x\u00a0=\u00a01\nWhy?"


# --- attachments ---


def test_attachments_and_draft_come_back_after_a_restart(tmp_path: Path, qtbot) -> None:
    with session_stage(tmp_path, qtbot) as stage:
        conversation_id = stage.session.new_conversation()
        parts = (Attachment("", "p" * 70_000), Attachment("a.py", "x = 1"))
        stage.session.set_attachments(conversation_id, parts)
        stage.session.set_draft(conversation_id, "what is this?")
        stage.restart()
        conversation = stage.session.conversation(conversation_id)
        assert conversation.attachments == parts
        assert conversation.draft == "what is this?"


def test_closing_a_tab_keeps_its_attachments(stage: Stage) -> None:
    conversation_id = stage.page.conversation_id
    stage.page.composer.attachments.add_item(Attachment("a.txt", "text"))
    stage.window.tab_area.close_conversation(conversation_id)
    stage.window.actions_registry["reopen_tab"].trigger()
    assert stage.page.conversation_id == conversation_id
    assert stage.page.composer.attachments.items == (Attachment("a.txt", "text"),)


def test_lone_surrogates_in_a_paste_do_no_harm(tmp_path: Path, qtbot) -> None:
    with session_stage(tmp_path, qtbot) as stage:
        conversation_id = stage.session.new_conversation()
        stage.session.set_attachments(conversation_id, (Attachment("", "a\ud800b"),))
        stage.restart()
        assert stage.session.conversation(conversation_id).attachments[0].text == "a?b"
        assert stage.codes() == []


def test_a_removed_attachment_can_be_put_back_where_it_was(stage: Stage) -> None:
    composer = stage.page.composer
    parts = tuple(Attachment(name, "text") for name in ("a.txt", "b.txt", "c.txt"))
    composer.set_parts(parts, "")
    remove = next(
        b
        for b in composer.attachments.findChildren(QAbstractButton)
        if b.accessibleName() == "Remove b.txt"
    )
    remove.click()
    assert composer.attachments.items == (parts[0], parts[2])
    assert stage.page.undo_bar.label.text() == "b.txt was removed."
    stage.page.undo_bar.undo_button.click()
    assert composer.attachments.items == parts
    assert stage.page.conversation.attachments == parts


def test_what_is_sent_holds_files_and_text_and_the_composer_is_empty(stage: Stage, qtbot) -> None:
    stage.page.composer.attachments.add_item(Attachment("a.py", "x = 1\n"))
    stage.page.composer.edit.setPlainText("Explain.")
    QTest.keyClick(stage.page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(submits(stage)) == 1)
    assert submits(stage) == ["a.py\n```\nx = 1\n```\n\nExplain."]
    assert stage.page.composer.text() == ""
    assert stage.session.conversation(stage.page.conversation_id).attachments == ()


def drop(target: QWidget, *paths: Path) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    button, modifier = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    copy = Qt.DropAction.CopyAction
    entered = QDragEnterEvent(QPoint(5, 5), copy, data, button, modifier)
    QApplication.sendEvent(target, entered)
    assert entered.isAccepted()
    dropped = QDropEvent(QPointF(5, 5), copy, data, button, modifier, QEvent.Type.Drop)
    QApplication.sendEvent(target, dropped)


def test_files_dropped_on_the_page_become_chips(stage: Stage, tmp_path: Path, qtbot) -> None:
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(f"text of {name}", "utf-8")
    drop(stage.page, tmp_path / "one.txt", tmp_path / "two.txt")
    items = stage.page.composer.attachments
    qtbot.waitUntil(lambda: [i.name for i in items.items] == ["one.txt", "two.txt"])
    assert items.items[0].text == "text of one.txt"


def test_pasted_files_become_chips_too(stage: Stage, tmp_path: Path, qtbot) -> None:
    (tmp_path / "one.txt").write_text("text", "utf-8")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "one.txt"))])
    stage.page.composer.edit.insertFromMimeData(data)
    qtbot.waitUntil(lambda: len(stage.page.composer.attachments.items) == 1)
    assert stage.page.composer.typed_text() == ""


def test_a_pasted_picture_is_refused_in_words(stage: Stage) -> None:
    data = QMimeData()
    data.setImageData(QImage(4, 4, QImage.Format.Format_RGB32))
    edit = stage.page.composer.edit
    assert edit.canInsertFromMimeData(data)
    edit.insertFromMimeData(data)
    assert notice_words(stage) == (
        "The picture is not a text file. Attach text files; of other documents paste the text."
    )
    # A table of a spreadsheet comes as a picture too.
    data.setText("a\tb")
    edit.insertFromMimeData(data)
    assert edit.toPlainText() == "a\tb"


def notice_words(stage: Stage) -> str:
    (bar,) = stage.page.notices.bars
    return error_words(bar.notice.error)


def test_a_refused_file_says_why_and_the_others_come(stage: Stage, tmp_path: Path, qtbot) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0")
    (tmp_path / "ok.txt").write_text("text", "utf-8")
    drop(stage.page, tmp_path / "picture.png", tmp_path / "ok.txt")
    qtbot.waitUntil(lambda: len(stage.page.composer.attachments.items) == 1)
    words = [bar.label.text() for bar in stage.page.notices.bars]
    assert words == [
        "picture.png is not a text file. Attach text files; of other documents paste the text."
    ]


def test_the_text_of_a_chip_can_be_read(stage: Stage, qtbot) -> None:
    stage.page.composer.attachments.add_item(Attachment("a.py", "x = 1\n"))
    chips = stage.page.composer.attachments
    button = next(b for b in chips.findChildren(QWidget) if b.property("kind") == "chip")
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    preview = chips.findChild(QWidget, "attachment preview")
    assert preview is not None
    assert not preview.isModal()
    assert preview.edit.toPlainText() == "x = 1\n"
    preview.close()


# --- a paste beyond the context (DESKTOP.md, case 11) ---


@pytest.mark.parametrize("typed", ["Summarise this.", ""])
def test_a_paste_beyond_the_context_stays_with_the_numbers_and_the_next_send_works(
    stage: Stage, qtbot, typed: str
) -> None:
    page = stage.page
    large = "word " * (LARGE_PASTE // 4)
    paste(stage, large)
    QTest.keyClicks(page.composer.edit, typed)
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not stage.session.is_busy(page.conversation_id))
    qtbot.waitUntil(lambda: page.composer.text() != "")
    assert page.composer.typed_text() == typed
    assert page.composer.attachments.items == (Attachment("", large),)
    qtbot.waitUntil(lambda: page.context_notice.isVisible() or bool(page.notices.bars))
    said = page.context_notice.label.text() + "".join(b.label.text() for b in page.notices.bars)
    assert "2,048" in said
    assert stage.session.conversation(page.conversation_id).messages == {}
    page.composer.attachments.clear()
    page.composer.edit.setPlainText("short")
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(stage.session.conversation(page.conversation_id).path()) == 2)


def test_over_the_limit_the_policy_is_offered_where_the_numbers_are(stage: Stage, qtbot) -> None:
    page = stage.page
    page.submit("one " * 600)
    qtbot.waitUntil(lambda: not stage.session.is_busy(page.conversation_id))
    page.composer.edit.setPlainText("two " * 1600)
    qtbot.waitUntil(page.context_notice.isVisible)
    assert page.context_notice.drop_button.isVisible()
    assert page.composer.typed_text() == "two " * 1600


# --- input methods (case 10) ---


def test_enter_while_composing_sends_nothing_in_the_window(stage: Stage, qtbot) -> None:
    edit = stage.page.composer.edit
    edit.setPlainText("typed before")
    QApplication.sendEvent(edit, QInputMethodEvent("nihao", []))
    QTest.keyClick(edit, Qt.Key.Key_Return)
    control = Qt.KeyboardModifier.ControlModifier
    QTest.keyClick(stage.window, Qt.Key.Key_Return, control)
    assert submits(stage) == []
    assert not stage.session.conversation(stage.page.conversation_id).messages
    commit = QInputMethodEvent("", [])
    commit.setCommitString("你好")
    QApplication.sendEvent(edit, commit)
    QTest.keyClick(edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(submits(stage)) == 1)
    assert "你好" in submits(stage)[0]


def test_text_that_begins_in_arabic_stands_at_the_right(stage: Stage) -> None:
    edit = stage.page.composer.edit
    edit.setPlainText("مرحبا بالعالم")
    line = edit.document().firstBlock().layout().lineAt(0)
    assert line.naturalTextRect().left() > edit.viewport().width() / 2
    edit.setPlainText("Hello")
    assert edit.document().firstBlock().layout().lineAt(0).naturalTextRect().left() < 20


# --- the gauge ---


def test_the_gauge_tells_draft_context_and_cache(stage: Stage, qtbot) -> None:
    page = stage.page
    page.submit("Question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(page.conversation_id))
    assert "of 2,048 tokens" in page.composer.gauge.text
    page.composer.edit.setPlainText("one two three four")
    qtbot.waitUntil(lambda: "Draft 4" in page.composer.gauge.text)
    qtbot.waitUntil(lambda: "cached" in page.composer.gauge.text)
    page.composer.gauge.button.click()
    assert page.composer.details.isVisible()
    assert "This message: 4 tokens." in page.composer.details.label.text()
    page.composer.edit.clear()
    assert "Draft" not in page.composer.gauge.text
    assert not page.composer.details.isVisible()


def test_the_engine_is_asked_once_typing_pauses(stage: Stage, qtbot) -> None:
    asked = lambda: [c for c in stage.engine.commands if isinstance(c, Forecast)]  # noqa: E731
    QTest.keyClicks(stage.page.composer.edit, "many keys in a row")
    qtbot.waitUntil(lambda: len(asked()) == 1)
    assert asked()[0].messages[-1].content == "many keys in a row"


def test_a_draft_in_a_hidden_tab_asks_when_it_is_shown(stage: Stage, qtbot) -> None:
    first = stage.page
    second = stage.window.new_tab()
    first.composer.edit.setPlainText("hidden draft")
    qtbot.wait(500)
    assert not [c for c in stage.engine.commands if isinstance(c, Forecast)]
    assert stage.page.conversation_id == second
    stage.window.show_conversation(first.conversation_id)
    qtbot.waitUntil(lambda: "Draft" in first.composer.gauge.text)


GAUGE = Gauge("text", 2048, 12, 1200, 960, 90, 60, 4, 0, ("a", "b", "a"))


def test_figures_from_short_to_long() -> None:
    assert gauge_lines(GAUGE, None, 2048) == [
        "1,200 / 2,048",
        "1,200 of 2,048 tokens",
        "Draft 12 · 1,200 of 2,048 tokens",
        "Draft 12 · 1,200 of 2,048 tokens · 960 cached",
    ]
    usage = RequestUsage(prompt_tokens=100, output_tokens=20)
    assert gauge_lines(None, usage, 2048) == ["120 / 2,048", "120 of 2,048 tokens"]
    assert gauge_lines(None, None, 2048) == []


def test_sentences_name_blocks_and_whose_would_go() -> None:
    assert gauge_sentences(GAUGE, lambda owner: f"Tab {owner}") == [
        "This message: 12 tokens.",
        "With it the model reads 1,200 of 2,048 tokens.",
        "960 of them are cached, 240 are computed.",
        "Blocks for it and the longest answer: 90, of which 60 are there.",
        "4 cached blocks go for it. They were of “Tab a”, “Tab b”.",
    ]


def test_sentences_of_a_draft_that_would_wait_or_not_fit() -> None:
    short = Gauge("t", 2048, 1, 100, blocks_short=1)
    assert gauge_sentences(short, str)[-1].startswith("The pool is 1 block short")
    over = Gauge("t", 2048, 3000, 3100)
    assert gauge_sentences(over, str)[-1] == (
        "With it the model would read 3,100 tokens; the limit is 2,048."
    )


def test_a_narrow_gauge_shows_the_short_form_and_names_the_long_one(stage: Stage) -> None:
    gauge = stage.page.composer.gauge
    gauge.show_figures(gauge_lines(GAUGE, None, 2048), 960, 1200, 2048)
    gauge.resize(150, gauge.height())
    assert gauge.text == "1,200 / 2,048"
    assert gauge.button.accessibleName() == "Tokens: Draft 12 · 1,200 of 2,048 tokens · 960 cached"


def test_in_a_low_window_the_composer_keeps_its_room(stage: Stage, qtbot) -> None:
    page = stage.page
    stage.window.resize(stage.window.minimumSize())
    page.composer.attachments.add_item(Attachment("a.txt", "text"))
    page.composer.edit.setPlainText("A draft")
    qtbot.waitUntil(lambda: "Draft" in page.composer.gauge.button.accessibleName())
    page.composer.gauge.button.click()
    label = page.composer.details.label
    qtbot.waitUntil(lambda: label.height() >= label.heightForWidth(label.width()) > 0)
    qtbot.waitUntil(lambda: page.composer.height() >= page.composer.minimumSizeHint().height())
    top = page.composer.mapTo(page, QPoint(0, 0)).y()
    assert page.stack.geometry().bottom() < top


def test_a_long_name_of_a_file_shows_both_its_ends(stage: Stage) -> None:
    name = f"report {'on and on ' * 40}final.txt"
    chips = stage.page.composer.attachments
    chips.add_item(Attachment(name, "x" * 3000))
    button = next(b for b in chips.findChildren(QWidget) if b.property("kind") == "chip")
    button.resize(300, button.height())
    assert button.text().startswith("report on")
    assert button.text().endswith("final.txt, 3 KB")
    assert button.accessibleName() == f"{name}, 3 KB"
