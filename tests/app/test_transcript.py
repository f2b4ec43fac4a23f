"""The transcript: follows, stays, selects, and lays out only what is near."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QTextDocument
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.theme import ThemeManager
from app.widgets.transcript.message import MessageView
from app.widgets.transcript.page import Page
from app.widgets.transcript.view import Transcript
from tests.helpers.transcript_stage import answer as plain_answer
from tests.helpers.transcript_stage import (
    light_theme,
    live_documents,
    question,
    refresh,
    shown_transcript,
    wheel,
)

MANY = "\n\n".join(f"Paragraph {n} with some words in it." for n in range(60))
LEFT = Qt.MouseButton.LeftButton


def answer(number: int, text: str, is_open: bool = False, **more) -> MessageView:
    more = {"offers": ("copy_message", "regenerate", "fork_message"), **more}
    return plain_answer(number, text, is_open, **more)


@pytest.fixture
def themes(qapp: QApplication) -> ThemeManager:
    return light_theme()


@pytest.fixture
def transcript(qtbot, themes: ThemeManager) -> Transcript:
    return shown_transcript(qtbot, themes)


def point_in(view: Transcript, message: int, box: int, char: int) -> QPoint:
    """Viewport point of a character."""
    item = view.items[message]
    found = item.boxes[box]
    assert found.document is not None
    layout = found.document.documentLayout()
    block = found.document.findBlock(char)
    line = block.layout().lineForTextPosition(char - block.position())
    x, _ = line.cursorToX(char - block.position())
    top = layout.blockBoundingRect(block).y() + line.y() + line.height() / 2
    y = item.top + found.y + found.text_y + top - view.verticalScrollBar().value()
    return QPointF(view.page.box_left(item) + found.text_x + x + 1, y).toPoint()


# --- following ---


def test_streaming_follows_at_the_end(transcript: Transcript) -> None:
    transcript.set_messages([question(1), answer(1, "", True)])
    for n in range(80):
        transcript.append_text("a1", f"Line {n}.\n\n")
        refresh(transcript)
    bar = transcript.verticalScrollBar()
    assert bar.maximum() > 0
    assert bar.value() == bar.maximum()
    assert not transcript.jump_button.isVisible()


def test_an_error_while_laying_out_does_not_hold_the_page_still(
    transcript: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript.set_messages([question(1)])

    def fail(*_place: object) -> float:
        raise RuntimeError("once")

    with monkeypatch.context() as patch:
        patch.setattr(Page, "settle", fail)
        with pytest.raises(RuntimeError, match="once"):
            transcript.add_message(answer(1, MANY))
    refresh(transcript)
    bar = transcript.verticalScrollBar()
    assert bar.maximum() > 0
    assert bar.value() == bar.maximum()


def test_one_wheel_notch_up_stays_while_text_comes(transcript: Transcript) -> None:
    transcript.set_messages([question(1), answer(1, MANY, True)])
    wheel(transcript, 1)
    value = transcript.verticalScrollBar().value()
    assert value < transcript.verticalScrollBar().maximum()
    for n in range(30):
        transcript.append_text("a1", f"\n\nMore {n}.")
        refresh(transcript)
    assert transcript.verticalScrollBar().value() == value
    assert transcript.jump_button.isVisible()


def test_jump_to_latest_follows_again(transcript: Transcript) -> None:
    transcript.set_messages([question(1), answer(1, MANY, True)])
    wheel(transcript, 3)
    QTest.mouseClick(transcript.jump_button, LEFT)
    transcript.append_text("a1", "\n\nMore.\n\nAnd more.")
    refresh(transcript)
    bar = transcript.verticalScrollBar()
    assert bar.value() == bar.maximum()
    assert not transcript.jump_button.isVisible()


def test_scrolling_down_to_the_end_follows_again(transcript: Transcript) -> None:
    transcript.set_messages([question(1), answer(1, MANY, True)])
    wheel(transcript, 2)
    assert not transcript.follows
    wheel(transcript, -40)
    assert transcript.follows


def test_what_is_read_stays_when_heights_above_become_exact(transcript: Transcript) -> None:
    long_line = "word " * 150
    text = "\n\n".join(f"{n} {long_line}" for n in range(60))
    transcript.set_messages([question(1), answer(1, text)])
    for _ in range(25):
        bar = transcript.verticalScrollBar()
        anchor = transcript.page.anchor_at(bar.value() + 100.0)
        assert anchor is not None
        before = transcript.page.anchor_y(anchor) - bar.value()
        wheel(transcript, 1)
        if bar.value() == 0:
            break
        after = transcript.page.anchor_y(anchor) - bar.value()
        assert after - before == pytest.approx(80, abs=3)


def test_resizing_keeps_the_text_at_the_top(transcript: Transcript, qtbot) -> None:
    transcript.set_messages([question(1), answer(1, MANY)])
    wheel(transcript, 12)
    anchor = transcript.page.anchor_at(float(transcript.verticalScrollBar().value()))
    assert anchor is not None
    transcript.resize(420, 500)
    qtbot.wait(10)
    offset = transcript.page.anchor_y(anchor) - transcript.verticalScrollBar().value()
    assert abs(offset) < 30


# --- what is laid out ---


def test_only_blocks_near_the_viewport_have_documents(transcript: Transcript) -> None:
    views = []
    for n in range(250):
        views += [question(n), answer(n, f"{MANY[:600]}")]
    transcript.set_messages(views)
    assert len(transcript.items) == 500
    assert 0 < live_documents(transcript) < 120
    for _ in range(40):
        wheel(transcript, 20)
    assert live_documents(transcript) < 120


def test_a_hidden_transcript_lays_nothing_out(qtbot, themes: ThemeManager) -> None:
    view = Transcript(themes)
    qtbot.addWidget(view)
    view.resize(700, 500)
    view.set_messages([question(1), answer(1, "", True)])
    for n in range(50):
        view.append_text("a1", f"Line {n}.\n\n")
    qtbot.wait(120)
    assert live_documents(view) == 0
    assert all(not item.boxes for item in view.items)
    view.show()
    qtbot.waitExposed(view)
    assert live_documents(view) > 0
    assert view.items[1].boxes[-1].plain_text() == "Line 49."


def test_closed_blocks_keep_their_documents_while_streaming(transcript: Transcript) -> None:
    transcript.set_messages([question(1), answer(1, "First.\n\nSecond.\n\nThi", True)])
    documents = [box.document for box in transcript.items[1].boxes]
    transcript.append_text("a1", "rd.\n\nFourth")
    refresh(transcript)
    after = [box.document for box in transcript.items[1].boxes]
    assert after[:3] == documents
    assert len(after) == 4


def test_theme_change_repaints_in_other_colours(
    transcript: Transcript, themes: ThemeManager
) -> None:
    transcript.set_messages([question(1), answer(1, "Some text")])
    light = transcript.grab().toImage()
    themes.set_mode("dark")
    dark = transcript.grab().toImage()
    themes.set_mode("light")
    assert light.pixelColor(5, 5).lightness() > 200
    assert dark.pixelColor(5, 5).lightness() < 60


# --- selection ---


def test_selection_spans_messages_and_is_copied(transcript: Transcript) -> None:
    transcript.set_messages([question(1, "My question"), answer(1, "First **part**.\n\nSecond.")])
    viewport = transcript.viewport()
    QTest.mousePress(viewport, LEFT, pos=point_in(transcript, 0, 0, 3))
    QTest.mouseMove(viewport, point_in(transcript, 1, 1, 6))
    QTest.mouseRelease(viewport, LEFT, pos=point_in(transcript, 1, 1, 6))
    assert transcript.copy_selection() == "question\n\nFirst part.\nSecond"
    QTest.keyClick(transcript, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "question\n\nFirst part.\nSecond"


def test_selection_survives_streaming(transcript: Transcript) -> None:
    transcript.set_messages([question(1, "My question"), answer(1, "First.\n\nOpe", True)])
    QTest.mouseDClick(transcript.viewport(), LEFT, pos=point_in(transcript, 1, 0, 2))
    assert transcript.copy_selection() == "First"
    transcript.append_text("a1", "n end.\n\nMore.")
    refresh(transcript)
    assert transcript.copy_selection() == "First"


def test_select_all_takes_far_messages_too(transcript: Transcript) -> None:
    views = [view for n in range(40) for view in (question(n, f"Q{n}"), answer(n, MANY))]
    transcript.set_messages(views)
    QTest.keyClick(transcript, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    text = transcript.copy_selection()
    assert text.startswith("Q0\n\nParagraph 0")
    assert text.count("Paragraph 59 with some words in it.") == 40


def test_list_markers_are_copied(transcript: Transcript) -> None:
    transcript.set_messages([answer(1, "1. one\n2. two")])
    QTest.keyClick(transcript, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert transcript.copy_selection() == "1. one\n2. two"


# --- links, code, loading ---


def test_a_click_on_a_link_only_tells(transcript: Transcript, qtbot) -> None:
    transcript.set_messages([answer(1, "see [here](https://example.org/x)")])
    with qtbot.waitSignal(transcript.link_activated) as told:
        QTest.mouseClick(transcript.viewport(), LEFT, pos=point_in(transcript, 0, 0, 6))
    assert told.args == ["https://example.org/x"]


def test_an_unsafe_link_is_dead(transcript: Transcript, qtbot) -> None:
    transcript.set_messages([answer(1, "see [here](javascript:alert(1))")])
    with qtbot.assertNotEmitted(transcript.link_activated):
        QTest.mouseClick(transcript.viewport(), LEFT, pos=point_in(transcript, 0, 0, 6))


def test_documents_load_nothing(transcript: Transcript, tmp_path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"canary")
    transcript.set_messages([answer(1, f"![x](file://{secret}) <img src='file://{secret}'>")])
    document = transcript.items[0].boxes[0].document
    assert document is not None
    kind = QTextDocument.ResourceType.ImageResource.value
    assert document.loadResource(kind, QUrl.fromLocalFile(str(secret))).width() == 1
    assert "\ufffc" not in document.toPlainText()


def test_user_text_is_shown_as_typed(transcript: Transcript) -> None:
    typed = "# not a title\n<b>x</b>  two  spaces\n- no list"
    transcript.set_messages([question(1, typed)])
    document = transcript.items[0].boxes[0].document
    assert document is not None
    assert document.toPlainText() == typed


def test_code_button_copies_the_whole_fence(transcript: Transcript) -> None:
    code = "\n".join(f"line_{n} = {n}" for n in range(100))
    transcript.set_messages([answer(1, f"```python\n{code}\n```")])
    transcript._input.copy_code(transcript.items[0].boxes[0])
    assert QGuiApplication.clipboard().text() == code


def test_the_code_button_is_where_it_is_painted(transcript: Transcript) -> None:
    transcript.set_messages([answer(1, "```python\nx = 1\n```")])
    item = transcript.items[0]
    box = item.boxes[0]
    right = transcript.page.left + transcript.page.column
    point = QPointF(right - 20, item.top + box.y + 14).toPoint()
    QGuiApplication.clipboard().clear()
    QTest.mouseClick(transcript.viewport(), LEFT, pos=point)
    assert QGuiApplication.clipboard().text() == "x = 1"


# --- buttons of a message ---


def test_hovering_an_answer_shows_its_buttons(transcript: Transcript, qtbot) -> None:
    transcript.set_messages([question(1), answer(1, "Text", version=2, num_versions=2)])
    assert not transcript.buttons.isVisible()
    QTest.mouseMove(transcript.viewport(), QPoint(3, 3))
    QTest.mouseMove(transcript.viewport(), point_in(transcript, 1, 0, 1))
    assert transcript.buttons.isVisible()
    for button, action_id in (
        (transcript.buttons.regenerate, "regenerate"),
        (transcript.buttons.fork, "fork_message"),
        (transcript.buttons.previous, "previous_version"),
    ):
        with qtbot.waitSignal(transcript.action_requested) as told:
            QTest.mouseClick(button, LEFT)
        assert told.args == [action_id, "a1"]
    assert not transcript.buttons.next.isEnabled()
    QTest.mouseClick(transcript.buttons.copy, LEFT)
    assert QGuiApplication.clipboard().text() == "Text"


def test_a_streaming_answer_can_only_be_stopped(transcript: Transcript) -> None:
    transcript.set_messages([question(1), answer(1, "Text", True, offers=("stop_message",))])
    QTest.mouseMove(transcript.viewport(), QPoint(3, 3))
    QTest.mouseMove(transcript.viewport(), point_in(transcript, 1, 0, 1))
    buttons = transcript.buttons
    assert buttons.stop.isVisible()
    assert not any(b.isVisible() for b in (buttons.copy, buttons.regenerate, buttons.previous))
    transcript.update_message(answer(1, "Text"))
    assert buttons.copy.isVisible()
    assert not buttons.stop.isVisible()


def test_final_text_replaces_a_different_streamed_one(transcript: Transcript) -> None:
    transcript.set_messages([answer(1, "Some wrong", True)])
    transcript.update_message(answer(1, "Right."))
    refresh(transcript)
    assert [box.plain_text() for box in transcript.items[0].boxes] == ["Right."]


def test_removing_a_message_takes_it_off_the_page(transcript: Transcript) -> None:
    transcript.set_messages([question(1), answer(1, "Text")])
    height = transcript.page.height
    transcript.remove_message("a1")
    transcript.remove_message("unknown")
    assert [item.view.message_id for item in transcript.items] == ["q1"]
    assert transcript.page.height < height


def colours(view: Transcript, message: int, box: int) -> list[tuple[str, str]]:
    """(character, colour) of a code box."""
    document = view.items[message].boxes[box].document
    assert document is not None
    found = []
    block = document.begin()
    while block.isValid():
        iterator = block.begin()
        while not iterator.atEnd():
            fragment = iterator.fragment()
            color = fragment.charFormat().foreground().color().name()
            found += [(char, color) for char in fragment.text()]
            iterator += 1
        block = block.next()
    return found


@pytest.mark.parametrize("step", [1, 3, 7])
def test_streamed_code_has_the_colours_of_whole_code(transcript: Transcript, step: int) -> None:
    code = 'def f(a):\n    """doc 😀\n\n    more"""\n    return a + 1  # end\n'
    other = "/* one\n   two */\nint x = 1;\n"
    for language, source in (("python", code), ("c", other)):
        text = f"```{language}\n{source}```\n\nafter"
        transcript.set_messages([answer(1, "", True)])
        for start in range(0, len(text), step):
            transcript.append_text("a1", text[start : start + step])
            refresh(transcript)
        transcript.update_message(answer(1, text))
        refresh(transcript)
        streamed = colours(transcript, 0, 0)
        transcript.set_messages([answer(1, text)])
        assert streamed == colours(transcript, 0, 0)
        assert "".join(char for char, _color in streamed) == source.replace("\n", "")


def test_no_seam_is_seen_in_a_long_fence(transcript: Transcript) -> None:
    code = "\n".join(f"value_{n} = {n}" for n in range(130))
    transcript.set_messages([question(1), answer(1, f"text\n\n```python\n{code}\n```\nafter")])
    transcript.scroll_by(-100_000)
    transcript.scroll_by(500)
    image = transcript.viewport().grab().toImage()
    x = round(transcript.page.left + transcript.page.column) - 60
    assert len({image.pixelColor(x, y).name() for y in range(image.height())}) == 1
