"""A transcript by itself, and what it costs: characters parsed and lexed, documents made."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication

from app import markdown
from app.theme import ThemeManager
from app.widgets.transcript import boxes
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.documents import SafeDocument
from app.widgets.transcript.message import MessageView
from app.widgets.transcript.view import Transcript


def question(number: int, text: str = "A question?") -> MessageView:
    return MessageView(f"q{number}", True, text)


def answer(number: int, text: str, is_open: bool = False, **more) -> MessageView:
    return MessageView(f"a{number}", False, text, is_open=is_open, **more)


def light_theme() -> ThemeManager:
    """The light theme, applied."""
    themes = ThemeManager("light")
    themes.apply()
    return themes


def shown_transcript(
    qtbot, themes: ThemeManager | None = None, width: int = 700, height: int = 500
) -> Transcript:
    """A transcript in a window of its own, in the light theme if no other is given."""
    view = Transcript(themes or light_theme())
    qtbot.addWidget(view)
    view.resize(width, height)
    view.show()
    qtbot.waitExposed(view)
    return view


def refresh(view: Transcript) -> None:
    """What the timer would do."""
    view._on_refresh_timeout()


def wheel(view: Transcript, clicks: int) -> None:
    """Turns the mouse wheel; up is positive."""
    point = QPointF(200, 200)
    event = QWheelEvent(
        point,
        view.viewport().mapToGlobal(point),
        QPoint(),
        QPoint(0, clicks * 120),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(view.viewport(), event)


def live_documents(view: Transcript) -> int:
    return sum(box.document is not None for item in view.items for box in item.boxes)


def text_at_top(view: Transcript) -> str:
    """The line of text that the top edge of the viewport goes through, or the one below it."""
    y = view.verticalScrollBar().value() + 0.5
    item, box = view.page.box_at(y)
    place = view.page.box_left(item) + box.text_x, item.top + box.y + box.text_y
    hit = view._input.position_at(QPointF(place[0], max(0.0, place[1] - y) + 0.5))
    assert box.document is not None
    block = box.document.findBlock(hit.char)
    line = block.layout().lineForTextPosition(hit.char - block.position())
    return block.text()[line.textStart() : line.textStart() + line.textLength()]


@dataclass
class Work:
    """``parsed``: characters of each call of the parser. ``lexed``: characters in all.
    ``documents``: how many were made. ``laid_out``: boxes whose layout was asked for.
    """

    parsed: list[int]
    lexed: int = 0
    documents: int = 0
    laid_out: int = 0


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Counts what transcripts do from now on."""
    work = Work([])

    def parse(real: Callable[..., object], text: str, *rest: object) -> object:
        work.parsed.append(len(text))
        return real(text, *rest)

    def lex(real: Callable[..., object], code: str, *rest: object) -> object:
        work.lexed += len(code)
        return real(code, *rest)

    def make(real: Callable[..., None], self: SafeDocument, *rest: object) -> None:
        work.documents += 1
        real(self, *rest)

    def lay_out(real: Callable[..., float], self: BlockBox, *rest: object) -> float:
        work.laid_out += 1
        return real(self, *rest)

    from app.widgets.transcript import code

    with monkeypatch.context() as patch:
        for module, name, wrapper in (
            (markdown, "parse_units", parse),
            (boxes, "lex", lex),
            (code, "lex", lex),
        ):
            patch.setattr(module, name, functools.partial(wrapper, getattr(module, name)))
        patch.setattr(
            SafeDocument, "__init__", functools.partialmethod(_swapped(make), SafeDocument.__init__)
        )
        patch.setattr(
            BlockBox, "lay_out", functools.partialmethod(_swapped(lay_out), BlockBox.lay_out)
        )
        yield work


def _swapped(wrapper: Callable[..., object]) -> Callable[..., object]:
    """For ``partialmethod``, which puts the instance first."""

    def method(self: object, real: Callable[..., object], *rest: object) -> object:
        return wrapper(real, self, *rest)

    return method
