"""Nothing that a model or a user writes runs, loads or is read: DESKTOP.md, cases 7, 13 and 14."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QModelIndex, Qt, QUrl
from PySide6.QtGui import QImage, QPainter, QPdfWriter, QTextDocument
from PySide6.QtWidgets import QAbstractItemView, QApplication, QLabel, QTabBar, QWidget

from app.theme import load_theme
from app.widgets.dialogs import confirm_link
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.copying import html
from app.widgets.transcript.documents import DocumentFactory, SafeDocument
from app.widgets.transcript.message import MessageItem, MessageView
from app.widgets.transcript.printing import Printout, paper
from tests.helpers.transcript_stage import light_theme, shown_transcript
from tests.helpers.trap import Canary, TrapServer
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the canary is watched by inotify")


@pytest.fixture
def server() -> Iterator[TrapServer]:
    with TrapServer().running() as trap:
        yield trap


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    made = Canary(tmp_path / "canary.png")
    yield made
    made.close()


def hostile(server: TrapServer, canary: Canary) -> str:
    """Every way to have something loaded that Markdown and HTML know."""
    web, file = f"{server.address}/x.png", canary.path.as_uri()
    unc = f"\\\\127.0.0.1\\share\\{canary.path.name}"
    sources = [web, file, str(canary.path), unc, f"//127.0.0.1{canary.path}", "data:image/png,x"]
    parts = [f"![alt]({source})" for source in sources]
    parts += [f"[![alt]({source})]({source})" for source in sources]
    parts += [f'<img src="{source}" onerror="alert(1)">' for source in sources]
    parts += [
        f'<link rel="stylesheet" href="{web}">',
        f"<style>@import url({web}); p {{ background: url({file}) }}</style>",
        f'<p style="background-image:url({file})">x</p>',
        f'<table background="{file}"><tr><td>x</td></tr></table>',
        f'<object data="{web}"></object><iframe src="{file}"></iframe>',
        "<script>alert(1)</script>",
        f"$\\href{{{web}}}{{x}}$ and $\\includegraphics{{{canary.path}}}$",
        f"[ref]\n\n[ref]: {web}",
        f"```html\n<img src={file}>\n```",
        f"| ![a]({file}) |\n|---|\n| <img src={web}> |",
        f"> ![a]({file})\n\n- ![a]({web})\n\n# <img src={file}>",
    ]
    return "\n\n".join(parts)


def assert_nothing_happened(server: TrapServer, canary: Canary) -> None:
    QApplication.processEvents()
    assert server.requests == []
    assert not canary.was_opened()


def test_the_traps_work(server: TrapServer, canary: Canary, qtbot) -> None:
    urllib.request.urlopen(f"{server.address}/hello").close()
    assert server.requests == ["/hello"]
    document = QTextDocument()
    document.setHtml(f'<img src="{canary.path.as_uri()}">')
    image = QImage(50, 50, QImage.Format.Format_RGB32)
    painter = QPainter(image)
    document.drawContents(painter)
    painter.end()
    assert canary.was_opened()
    assert not canary.was_opened()


# --- case 14 ---


def test_a_document_loads_nothing_even_if_it_is_asked_to(
    server: TrapServer, canary: Canary, qtbot
) -> None:
    document = SafeDocument(DocumentFactory(load_theme("light")).body_font)
    document.setHtml(f'<img src="{canary.path.as_uri()}"><img src="{server.address}/x.png">')
    image = QImage(50, 50, QImage.Format.Format_RGB32)
    painter = QPainter(image)
    document.drawContents(painter)
    painter.end()
    for url in ("file://127.0.0.1/share/x.png", canary.path.as_uri(), "qrc:/x.png"):
        for kind in QTextDocument.ResourceType:
            loaded = document.resource(kind.value, QUrl(url))
            is_nothing = loaded is None or loaded.pixelColor(0, 0).alpha() == 0
            assert is_nothing
    assert_nothing_happened(server, canary)


@pytest.mark.parametrize("is_user", [False, True])
def test_a_transcript_loads_nothing(
    server: TrapServer, canary: Canary, qtbot, is_user: bool
) -> None:
    themes = light_theme()
    view = shown_transcript(qtbot, themes, height=900)
    text = hostile(server, canary)
    view.set_messages([MessageView("m", is_user, "", is_open=not is_user)])
    for start in range(0, len(text), 97):
        view.append_text("m", text[start : start + 97])
        view._on_refresh_timeout()
    view.update_message(MessageView("m", is_user, text))
    qtbot.waitUntil(lambda: not view.content.is_drawing, timeout=20_000)
    for _ in range(12):
        view.scroll_by(-400.0)
        view.grab()
    view.selection.select_all()
    assert "<img" not in html(view.selection)
    themes.set_mode("dark")
    view.grab()
    assert_nothing_happened(server, canary)


def test_paper_loads_nothing(server: TrapServer, canary: Canary, qtbot, tmp_path) -> None:
    message = MessageItem(MessageView("m", False, hostile(server, canary)))
    writer = QPdfWriter(str(tmp_path / "x.pdf"))
    writer.setPageLayout(paper())
    for _done in Printout([message], "T").run(writer):
        QApplication.processEvents()
    assert_nothing_happened(server, canary)


OFFSCREEN_SAYS = [r"This plugin does not support"]


@pytest.mark.qt_log_ignore(*OFFSCREEN_SAYS)
def test_a_link_is_only_opened_after_its_true_host_was_shown(qtbot, qapp) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    box = confirm_link("https://example.org@evil.example/\u202emoc", parent)
    assert box is not None
    assert "evil.example" in box.text()
    assert "example.org" not in box.text()
    assert "\u202e" not in box.informativeText()
    assert box.textFormat() is Qt.TextFormat.PlainText
    assert box.defaultButton() is not None
    assert confirm_link("file:///etc/passwd", parent) is None
    box.close()


# --- case 13 ---


def texts_that_may_run(root: QWidget, mark: str) -> list[str]:
    """Texts with ``mark`` in them that Qt would take for HTML."""
    found = []
    for widget in root.findChildren(QWidget):
        tip = widget.toolTip()
        if f"<{mark}" in tip and Qt.mightBeRichText(tip):
            found.append(f"tool tip of {type(widget).__name__}: {tip}")
        is_rich = isinstance(widget, QLabel) and widget.textFormat() != Qt.TextFormat.PlainText
        if is_rich and f"<{mark}" in widget.text():
            found.append(f"label {widget.text()}")
        if isinstance(widget, QTabBar):
            tips = [widget.tabToolTip(n) for n in range(widget.count())]
            found += [tip for tip in tips if f"<{mark}" in tip]
        if isinstance(widget, QAbstractItemView) and widget.model() is not None:
            model = widget.model()
            for row in range(model.rowCount(QModelIndex())):
                tip = model.index(row, 0).data(Qt.ItemDataRole.ToolTipRole)
                if tip and f"<{mark}" in str(tip):
                    found.append(f"tool tip of a row: {tip}")
    return found


@pytest.mark.qt_log_ignore(*OFFSCREEN_SAYS)
def test_html_in_titles_prompts_and_messages_is_text_everywhere(
    server: TrapServer, canary: Canary, qtbot
) -> None:
    evil = f"<img src='{canary.path.as_uri()}' onerror='alert(1)'>"
    with window_stage(qtbot, script=lambda _submit: evil) as stage:
        session, page = stage.session, stage.page
        session.set_system_prompt(page.conversation_id, evil)
        page.submit(f"{evil} canary")
        qtbot.waitUntil(lambda: not session.is_busy(page.conversation_id), timeout=8000)
        session.rename(page.conversation_id, f"{evil} title")
        session.new_conversation()
        stage.window.actions_registry["search"].trigger()
        with qtbot.waitSignal(session.search_finished):
            stage.window.side_bar.search.setText("onerror")
        qtbot.waitUntil(lambda: stage.window.side_bar.results.model.rowCount() > 0)
        for action_id in ("help", "message_facts", "tab_list", "settings"):
            stage.window.actions_registry[action_id].trigger()
            QApplication.processEvents()
        for window in QApplication.topLevelWidgets():
            window.grab()
            assert texts_that_may_run(window, "img") == []
        assert_nothing_happened(server, canary)
        close_all(stage)


def close_all(stage: Stage) -> None:
    for window in QApplication.topLevelWidgets():
        if window is not stage.window:
            window.close()


# --- case 7 ---

CORPUS = (
    "<think>\nLet $x^2$ be.\n\n- a\n</think>\n\n# Title\n\nText *em* $\\frac{a}{b}$ end.\n\n"
    "| a | b |\n|---|---|\n| 1 | $y$ |\n\n```py\nx = 1\n\ny\n```\n\n- one\n  - two\n\n"
    "$$\n\\int_0^1 x\n$$\n\n> quote\n\nLast."
)


def test_no_block_that_was_shown_becomes_another_kind(qtbot, qapp) -> None:
    view = shown_transcript(qtbot, height=900)
    view.set_messages([MessageView("m", False, "", is_open=True)])
    kinds: dict[BlockBox, str] = {}
    closed: set[BlockBox] = set()
    for char in CORPUS:
        view.append_text("m", char)
        view._on_refresh_timeout()
        boxes = view.items[0].boxes
        for box in closed:
            assert box in boxes, "a block that was closed has gone"
            assert box.block.kind == kinds[box]
        kinds = {box: box.block.kind for box in boxes}
        # The last block of each part may still change; all above it may not.
        closed = set(boxes[:-2])
    assert len(kinds) > 10


def test_a_formula_stays_a_picture_while_the_text_around_it_grows(qtbot, qapp) -> None:
    view = shown_transcript(qtbot)
    view.set_messages([MessageView("m", False, "Let $x^2$", is_open=True)])
    view._on_refresh_timeout()

    def shown() -> str:
        document = view.items[0].boxes[0].document
        assert document is not None
        return document.toPlainText()

    qtbot.waitUntil(lambda: shown() == "Let \ufffc", timeout=20_000)
    for char in " and $y$ be numbers, and more text":
        view.append_text("m", char)
        view._on_refresh_timeout()
        assert shown().startswith("Let \ufffc")


def test_an_open_formula_is_its_source_until_it_ends(qtbot, qapp) -> None:
    view = shown_transcript(qtbot)
    view.set_messages([MessageView("m", False, "$$\n- a\n* b", is_open=True)])
    assert [box.plain_text() for box in view.items[0].boxes] == ["$$\n- a\n* b"]
    view.append_text("m", "\n$$\n")
    view._on_refresh_timeout()
    assert [box.block.kind for box in view.items[0].boxes] == ["formula"]
