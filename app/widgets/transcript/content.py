"""What a transcript's documents are made with: theme, zoom, and the pictures of formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.markdown_math import Formula
from app.theme import ThemeManager
from app.widgets.transcript.documents import DocumentFactory
from app.widgets.transcript.find_bar import FindBar
from app.widgets.transcript.finder import Finder
from app.widgets.transcript.formulas import Formulas
from app.widgets.transcript.insides import fill_menu
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.painter import TranscriptPainter
from app.widgets.transcript.thought_buttons import ThoughtButtons
from app.zoom import stepped

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

_NOTCH = 120


class Content(QObject):
    """Makes factories and painters, and has the view made anew when one of these changes."""

    def __init__(self, view: Transcript, themes: ThemeManager) -> None:
        super().__init__(view)
        self._view = view
        self._themes = themes
        self._wheel = 0
        self.formulas = Formulas(self)
        self.thought_buttons = ThoughtButtons(view)
        self.finder = Finder(view)
        self.find_bar = FindBar(view, self.finder, themes)
        self.folds: dict[str, dict[int, bool]] = {}
        self.formulas.drawn.connect(self._on_formulas_drawn)
        view.menu_opened.connect(lambda menu, message_id: fill_menu(view, menu, message_id))
        themes.changed.connect(self._restyle)
        themes.zoom_changed.connect(self._restyle)

    def factory(self) -> DocumentFactory:
        """For documents as they look now."""
        return DocumentFactory(self._themes.theme, self.formulas, self._themes.zoom)

    def painter(self) -> TranscriptPainter:
        """For painting as things look now."""
        return TranscriptPainter(self._themes.theme, self._themes.zoom, self.finder.marks)

    @property
    def is_drawing(self) -> bool:
        """True while sources of formulas stand where pictures will."""
        return self.formulas.is_busy

    def take(self, item: MessageItem) -> MessageItem:
        """A message that comes on the page: what the user unfolded in it stays unfolded."""
        item.thoughts.folds = self.folds.setdefault(item.view.message_id, {})
        return item

    def fold_as(self, folds: Mapping[str, Mapping[int, bool]]) -> None:
        """What another transcript had folded and unfolded is so here."""
        for message_id, chosen in folds.items():
            self.folds.setdefault(message_id, {}).update(chosen)
            item = self._view.item(message_id)
            for thought, is_folded in chosen.items():
                if item is not None:
                    item.fold(thought, is_folded)

    def place(self) -> None:
        """What is in sight has moved."""
        self.thought_buttons.place()
        self.find_bar.place()

    def zoom_by_wheel(self, angle: int) -> None:
        """A notch of the wheel (120) is a step; a touch pad adds up to one."""
        self._wheel += angle
        while abs(self._wheel) >= _NOTCH:
            by = 1 if self._wheel > 0 else -1
            self._wheel -= by * _NOTCH
            self._themes.set_zoom(stepped(self._themes.zoom, by))

    def _restyle(self) -> None:
        self._view.restyle(self.factory(), self.painter())

    def _on_formulas_drawn(self, drawn: set[Formula]) -> None:
        """Puts pictures in the place of sources, in what is laid out; the rest finds them there."""
        self._view.refresh_boxes(lambda box: not drawn.isdisjoint(box.block.formulas))
