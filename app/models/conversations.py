"""The list of the side bar: open conversations in the order of their tabs, then the stored ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt, QTimer

from app.i18n import tr
from app.session import Session
from app.widgets.swatch import Activity, activity_words
from app.widgets.words import shown_title

Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation. ``updated_at`` in seconds since the epoch; 0 while it is open."""

    conversation_id: str
    title: str
    number: int
    is_open: bool
    updated_at: float = 0.0


ROW_ROLE = Qt.ItemDataRole.UserRole
ACTIVITY_ROLE = Qt.ItemDataRole.UserRole + 1


class ConversationListModel(QAbstractListModel):
    """Follows the session. ``set_filter`` keeps the titles that contain a text."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._session = session
        self._rows: list[Row] = []
        self._stored: list[Row] = []
        self._activities: dict[str, Activity] = {}
        self._filter = ""
        self._reload_timer = QTimer(self)
        self._reload_timer.setSingleShot(True)
        self._reload_timer.setInterval(0)
        self._reload_timer.timeout.connect(self.reload)
        for signal in (session.conversation_added, session.conversation_closed):
            signal.connect(self._reload_timer.start)
        session.stored_changed.connect(self._reload_timer.start)
        # Only open conversations change: no need to read thousands of stored ones for a new title.
        session.conversation_changed.connect(self._on_conversation_changed)

    def reload(self) -> None:
        """Reads the session anew."""
        self._stored = [
            Row(s.conversation_id, shown_title(s.title), s.number, False, s.updated_at)
            for s in self._session.closed_conversations()
        ]
        self._update_rows()

    def _on_conversation_changed(self, _conversation_id: str) -> None:
        self._update_rows()

    def _update_rows(self) -> None:
        rows = []
        for conversation_id in self._session.conversation_ids():
            conversation = self._session.conversation(conversation_id)
            title = shown_title(conversation.title)
            rows.append(Row(conversation_id, title, conversation.number, True))
        rows.extend(self._stored)
        wanted = self._filter.casefold()
        rows = [row for row in rows if wanted in row.title.casefold()]
        if rows != self._rows:
            self.beginResetModel()
            self._rows = rows
            self.endResetModel()

    def set_filter(self, text: str) -> None:
        """Keeps the titles that contain ``text``, whatever its case."""
        self._filter = text.strip()
        self._update_rows()

    def set_activity(self, conversation_id: str, activity: Activity) -> None:
        """What an open conversation's answer is doing."""
        self._activities[conversation_id] = activity
        index = self.index_of(conversation_id)
        if index.isValid():
            self.dataChanged.emit(index, index, [ACTIVITY_ROLE])

    def row(self, index: Index) -> Row | None:
        """The conversation at an index."""
        return self._rows[index.row()] if index.isValid() else None

    def index_of(self, conversation_id: str) -> QModelIndex:
        """Where a conversation is; invalid if it is not in the list."""
        for number, row in enumerate(self._rows):
            if row.conversation_id == conversation_id:
                return self.index(number)
        return QModelIndex()

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self.row(index)
        if row is None:
            return None
        activity = self._activities.get(row.conversation_id, Activity.IDLE)
        if role == Qt.ItemDataRole.DisplayRole:
            return row.title
        if role == ROW_ROLE:
            return row
        if role == ACTIVITY_ROLE:
            return activity
        if role == Qt.ItemDataRole.AccessibleTextRole:
            state = activity_words(activity) if row.is_open else tr("closed")
            return f"{row.title}, {state}" if state else row.title
        return None
