"""Two conversations side by side: choosing them, naming them, finding them again at the start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QObject
from PySide6.QtGui import QAction

from app.session import Session
from app.theme import ThemeManager
from app.widgets.conversation_page import ConversationPage
from app.widgets.swatch import mark_pixmap
from app.widgets.words import shown_title

if TYPE_CHECKING:
    from app.widgets.tab_area import TabArea

_STATE = "split"


class Sides(QObject):
    """Keeps the split view of a tab area in step with its tabs; the tab in front is the side with
    the keyboard.
    """

    def __init__(
        self, session: Session, themes: ThemeManager, area: TabArea, action: QAction
    ) -> None:
        """``action``: checked while there are two."""
        super().__init__(area)
        self._session = session
        self._themes = themes
        self._area = area
        self._view = area.split
        self._action = action
        self._view.page_activated.connect(self._on_page_activated)
        themes.changed.connect(self.update_headings)

    def show_beside(self, conversation_id: str) -> None:
        """Shows an open or stored conversation on the other side of the one in front."""
        tabs = self._area.tabs
        front = tabs.current_id()
        if self._session.reopen_conversation(conversation_id):
            # One that was stored came to the front as it was opened.
            self._area.show_conversation(front)
            self._view.show_beside(self._area.page(conversation_id))
            tabs.setCurrentIndex(tabs.index_of(conversation_id))
            self._area.show_conversation(conversation_id)

    def toggle(self) -> None:
        """Two conversations side by side, or only the one in front again."""
        if self._view.is_split:
            self._view.unsplit()
        else:
            ids = self._area.tabs.ids()
            front = self._area.tabs.current_id()
            following = ids[(ids.index(front) + 1) % len(ids)]
            if following == front:
                following = self._session.new_conversation()
                self._area.show_conversation(front)
            self.show_beside(following)
        self._action.setChecked(self._view.is_split)

    def focus_other(self) -> None:
        """The keyboard goes to the other side, if there is one."""
        other = self._view.other_page
        if isinstance(other, ConversationPage):
            self._area.show_conversation(other.conversation_id)

    def update_headings(self) -> None:
        """Number, activity and title above each side."""
        for page in self._view.shown if self._view.is_split else ():
            if isinstance(page, ConversationPage):
                conversation = page.conversation
                mark = mark_pixmap(
                    self._themes.theme,
                    conversation.number,
                    self._area.activity(page.conversation_id),
                    self._view.devicePixelRatioF(),
                )
                self._view.set_heading(page, mark, shown_title(conversation.title))

    def save(self) -> None:
        """Keeps what is side by side, and how wide."""
        ids = [p.conversation_id for p in self._view.shown if isinstance(p, ConversationPage)]
        sizes = bytes(self._view.splitter.saveState().toBase64().data()).decode("ascii")
        state = json.dumps({"ids": ids, "sizes": sizes}) if self._view.is_split else ""
        if state != self._session.window_state(_STATE):
            self._session.set_window_state(_STATE, state)

    def restore(self) -> None:
        """Shows side by side what was so at the end, if it is open; keeps changes from now on."""
        left, right, sizes = _read(self._session.window_state(_STATE))
        tabs = self._area.tabs
        front = tabs.current_id()
        if left != right and front in (left, right) and {left, right} <= set(tabs.ids()):
            self._area.show_conversation(left)
            self.show_beside(right)
            self._view.splitter.restoreState(sizes)
            self._area.show_conversation(front)
        self._on_split_changed()
        self._view.split_changed.connect(self._on_split_changed)

    def _on_page_activated(self, page: ConversationPage) -> None:
        tabs = self._area.tabs
        tabs.setCurrentIndex(tabs.index_of(page.conversation_id))

    def _on_split_changed(self) -> None:
        self._action.setChecked(self._view.is_split)
        self.update_headings()
        self.save()


def _read(stored: str) -> tuple[str, str, QByteArray]:
    """(left, right, sizes); empty ids if there is nothing that can be read."""
    try:
        state = json.loads(stored)
        left, right = (str(conversation_id) for conversation_id in state["ids"])
        return left, right, QByteArray.fromBase64(str(state["sizes"]).encode("ascii"))
    except (ValueError, TypeError, KeyError):
        return "", "", QByteArray()
