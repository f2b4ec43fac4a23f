"""The lines that fold reasoning, as buttons: for the mouse, the keyboard and screen readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QToolButton

from app.i18n import tr
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.thoughts import headers

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript


class ThoughtButtons(QObject):
    """Buttons without a face over the lines that the painter draws; only on lines in sight."""

    def __init__(self, view: Transcript) -> None:
        super().__init__(view)
        self._view = view
        self._buttons: dict[tuple[str, int], QToolButton] = {}

    def place(self) -> None:
        """Brings the buttons in line with what is in sight."""
        view = self._view
        y = view.verticalScrollBar().value()
        wanted: set[tuple[str, int]] = set()
        for item, boxes in view.page.visible(y, y + view.viewport().height()):
            for box in headers(boxes):
                key = (item.view.message_id, box.block.level)
                wanted.add(key)
                self._place(self._button(key), item, box, y)
        for key in self._buttons.keys() - wanted:
            if not self._buttons[key].hasFocus():
                button = self._buttons.pop(key)
                button.hide()
                button.deleteLater()

    def toggle(self, item: MessageItem, thought: int) -> None:
        """Folds or unfolds; the line itself stays where it is."""
        view = self._view
        followed = view.follows
        place = view.page.anchor_at(float(view.verticalScrollBar().value()))
        is_folded = not item.thoughts.is_folded(thought)
        item.fold(thought, is_folded)
        view.page.place()
        if place is not None:
            view.go_to(place)
        if followed and is_folded:
            view.scroll_by(0.0)

    def _place(self, button: QToolButton, item: MessageItem, box: BlockBox, scroll: int) -> None:
        left = round(self._view.page.box_left(item))
        top = round(item.top + box.y) - scroll
        button.setGeometry(left - 4, top, round(box.width) + 8, round(box.height))
        button.setAccessibleName(item.thoughts.words(box.block.level, item.view.thought_s))
        button.setChecked(not item.thoughts.is_folded(box.block.level))

    def _button(self, key: tuple[str, int]) -> QToolButton:
        button = self._buttons.get(key)
        if button is None:
            button = QToolButton(self._view.viewport())
            button.setProperty("kind", "line")
            button.setCheckable(True)
            button.setCursor(Qt.CursorShape.PointingHandCursor)
            button.setAccessibleDescription(tr("Shows or hides the reasoning"))
            button.clicked.connect(lambda: self._on_clicked(key))
            self._buttons[key] = button
            button.show()
        return button

    def _on_clicked(self, key: tuple[str, int]) -> None:
        item = self._view.item(key[0])
        if item is not None:
            self.toggle(item, key[1])
