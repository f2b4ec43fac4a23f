"""HTML in titles, folders, prompts and search snippets is text wherever it is shown."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel, QWidget

from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("does not support")
EVIL = '<img src="file:///etc/hostname" onerror=alert(1)><b>title</b>'


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot, script=lambda _submit: f"needle {EVIL}") as made:
        qtbot.waitUntil(made.window.isActiveWindow)
        yield made


def rich_places(stage: Stage) -> list[str]:
    """Where a text with markup would be taken for rich text; and how often it was seen as text."""
    found, seen = [], 0
    for widget in QApplication.allWidgets():
        tip = widget.toolTip()
        if "<img" in tip or "<b>" in tip:
            found.append(f"tool tip of {type(widget).__name__}")
        if isinstance(widget, QLabel) and "<img" in widget.text():
            seen += 1
            if widget.textFormat() != Qt.TextFormat.PlainText:
                found.append(f"label in {type(widget.parentWidget()).__name__}")
    return found or ([] if seen else ["nothing was seen at all"])


def tips_of(model) -> list[str]:
    role = Qt.ItemDataRole.ToolTipRole
    return [str(model.index(n).data(role) or "") for n in range(model.rowCount())]


def test_everything_that_shows_a_title_shows_it_as_text(stage: Stage, qtbot) -> None:
    session, window = stage.session, stage.window
    (first,) = session.conversation_ids()
    session.send(first, EVIL)
    qtbot.waitUntil(lambda: not session.is_busy(first))
    session.rename(first, EVIL)
    session.set_folder([first], "<b>folder</b>")
    prompt = session.prompts.add(EVIL, EVIL)
    session.prompts.apply(prompt.prompt_id, [first])
    second = window.new_tab()
    window.tab_area.sides.show_beside(first)
    window.show_conversation(second)
    window.prompt_desk.open(prompt.prompt_id)
    library = window.prompt_desk.dialog
    library.duplicate()
    assert library.editor.name.text().startswith("<img")
    library.delete()
    window.side_bar.search.setText("needle")
    qtbot.waitUntil(lambda: window.side_bar.results.model.rowCount() > 0)
    session.delete_conversations([first])
    session.undo_delete_conversations()
    assert rich_places(stage) == []
    window.side_bar.search.clear()
    window.side_bar.model.reload()
    for model in (window.side_bar.model, window.side_bar.results.model, library.model):
        assert not any("<img" in tip or "<b>" in tip for tip in tips_of(model))
    tabs = window.tab_area.tabs
    assert not any("<img" in tabs.tabToolTip(n) for n in range(tabs.count()))


def test_a_snippet_is_painted_as_it_is_written(stage: Stage, qtbot) -> None:
    session, window = stage.session, stage.window
    (first,) = session.conversation_ids()
    session.send(first, "Question")
    qtbot.waitUntil(lambda: not session.is_busy(first))
    window.side_bar.search.setText("needle")
    results = window.side_bar.results
    qtbot.waitUntil(lambda: results.model.rowCount() == 1)
    hit = results.model.hit(results.model.index(0))
    assert "<img" in hit.snippet
    # Painted, not put into a label that might take it for more.
    assert results.list.viewport().findChildren(QWidget) == []
