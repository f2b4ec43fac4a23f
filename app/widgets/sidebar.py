"""All conversations: open ones with their swatch, stored ones below; and the search in them."""

from __future__ import annotations

import json
from dataclasses import replace

from PySide6.QtCore import QEvent, Qt
from PySide6.QtCore import Signal as QtSignal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app import theme as themes_module
from app.actions import Actions
from app.conversation import storable
from app.i18n import tr
from app.models.conversations import ConversationListModel
from app.models.groups import COLLAPSED_AT_FIRST
from app.session import Session
from app.store_search import SearchResult
from app.theme import ThemeManager
from app.widgets.buttons import button_for
from app.widgets.conversation_list import ConversationList
from app.widgets.conversation_rows import ROW_HEIGHT
from app.widgets.search_results import SearchResults
from app.widgets.undo_bar import UndoBar

MIN_WIDTH, MAX_WIDTH = 220, 280
_MAX_TITLES = 5
_COLLAPSED_STATE = "collapsed_groups"
_NO_LIMIT = 16_777_215
"""Qt's own greatest height."""


class SearchField(QLineEdit):
    """Escape empties it before it means anything else; Down goes on to what was found."""

    left_downwards = QtSignal()

    def event(self, event: QEvent) -> bool:
        if (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.ShortcutOverride
            and event.key() == Qt.Key.Key_Escape
            and self.text()
        ):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        elif event.key() == Qt.Key.Key_Down:
            self.left_downwards.emit()
        else:
            super().keyPressEvent(event)


class SideBar(QWidget):
    """Conversations in groups, and while something is searched for those with it in their title and
    below them the messages that say it.

    Signals:
        conversation_chosen(conversation_id): clicked or chosen by keyboard.
        hit_chosen(conversation_id, message_id)
    """

    conversation_chosen = QtSignal(str)
    hit_chosen = QtSignal(str, str)

    def __init__(
        self,
        session: Session,
        themes: ThemeManager,
        actions: Actions,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setMinimumWidth(MIN_WIDTH)
        self.setMaximumWidth(MAX_WIDTH)
        self._session = session
        self.model = ConversationListModel(session, _read_collapsed(session), self)
        self.search = SearchField()
        self.search.setPlaceholderText(tr("Find in titles and messages"))
        self.search.setAccessibleName(tr("Find in titles and messages"))
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self._on_search_text_changed)
        self.search.returnPressed.connect(self._on_search_return_pressed)
        self.search.left_downwards.connect(self._on_search_left_downwards)
        self.results = SearchResults(themes)
        self.results.hit_chosen.connect(self.hit_chosen)
        self.results.hide()
        self._found: SearchResult | None = None
        session.search_finished.connect(self._on_session_search_finished)
        session.conversations_deleted.connect(self._on_session_conversations_deleted)
        self.list = ConversationList(self.model, themes)
        self.list.chosen.connect(self.conversation_chosen)
        self.undo_bar = UndoBar(themes)
        self.model.rows_changed.connect(self._on_model_rows_changed)
        self._lay_out(actions)
        self.model.reload()

    def _lay_out(self, actions: Actions) -> None:
        row = QHBoxLayout()
        row.setContentsMargins(8, 8, 8, 4)
        row.setSpacing(4)
        row.addWidget(self.search, 1)
        row.addWidget(button_for(actions["new_tab"]))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 4)
        column.setSpacing(0)
        column.addLayout(row)
        column.addWidget(self.list, 1)
        column.addWidget(self.results, 3)
        bottom = QHBoxLayout()
        bottom.setContentsMargins(8, 4, 8, 4)
        bottom.addWidget(self.undo_bar)
        column.addLayout(bottom)

    def start_search(self) -> None:
        """Puts the keyboard into the search field."""
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def focus_list(self) -> None:
        """Puts the keyboard into the list."""
        if not self.list.currentIndex().isValid() and self.model.rowCount():
            self.list.setCurrentIndex(self.model.index(0))
        self.list.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def set_current(self, conversation_id: str) -> None:
        """Marks the conversation in front."""
        self.list.mark(conversation_id)

    def _on_model_rows_changed(self) -> None:
        collapsed = json.dumps(sorted(self.model.collapsed))
        if collapsed != self._session.window_state(_COLLAPSED_STATE):
            self._session.set_window_state(_COLLAPSED_STATE, collapsed)
        self._fit_list()

    # --- searching ---

    def _on_search_text_changed(self, text: str) -> None:
        self.model.set_filter(text)
        if text.strip():
            self._session.search(text)
        else:
            self.results.hide()
        self._fit_list()

    def _on_session_conversations_deleted(self) -> None:
        # Not searched again: the messages may be read before the deletion is written.
        self._show_hits()

    def _on_session_search_finished(self, result: SearchResult) -> None:
        # The field may have been emptied or changed since.
        if result.query == storable(self.search.text()) and result.query.strip():
            self._found = result
            self._show_hits()
            self.results.show()
            self._fit_list()

    def _show_hits(self) -> None:
        """Shows what was found, without the hits in conversations that are deleted now."""
        if self._found is not None:
            listed = {s.conversation_id for s in self._session.closed_conversations()}
            listed.update(self._session.conversation_ids())
            hits = tuple(hit for hit in self._found.hits if hit.conversation_id in listed)
            self.results.show_result(replace(self._found, hits=hits))

    def _fit_list(self) -> None:
        """While results are shown the titles take the room of a few rows, or of none."""
        rows = self.model.rowCount()
        is_searching = not self.results.isHidden()
        self.list.setVisible(not is_searching or rows > 0)
        height = min(rows, _MAX_TITLES) * themes_module.row_height(ROW_HEIGHT) + 2
        self.list.setMaximumHeight(height if is_searching else _NO_LIMIT)
        self.list.setMinimumHeight(height if is_searching else 0)

    def _on_search_return_pressed(self) -> None:
        if not self.search.text().strip() or self.results.choose_first():
            return
        row = self.model.row(self.model.index(0)) if self.model.rowCount() else None
        if row is not None:
            self.conversation_chosen.emit(row.conversation_id)

    def _on_search_left_downwards(self) -> None:
        has_hits = not self.results.isHidden() and self.results.model.rowCount() > 0
        view, model = (
            (self.list, self.model)
            if not has_hits
            else (
                self.results.list,
                self.results.model,
            )
        )
        if model.rowCount():
            if not view.currentIndex().isValid() or has_hits:
                view.setCurrentIndex(model.index(0))
            view.setFocus(Qt.FocusReason.TabFocusReason)


def _read_collapsed(session: Session) -> set[str]:
    try:
        return {str(key) for key in json.loads(session.window_state(_COLLAPSED_STATE))}
    except (ValueError, TypeError):
        return set(COLLAPSED_AT_FIRST)
