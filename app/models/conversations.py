"""The list of the side bar: conversations under the headings of their groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from PySide6.QtCore import (
    QAbstractListModel,
    QMimeData,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
    QTimer,
    Signal,
)

from app.i18n import tr, tr_n
from app.models import groups
from app.models.groups import Ages, Group, group_title
from app.models.row_changes import runs_without, stay_in_order
from app.session import Session
from app.session_state import ConversationSummary
from app.widgets.buttons import plain_tip
from app.widgets.swatch import Activity, activity_words
from app.widgets.words import shown_title

Index = QModelIndex | QPersistentModelIndex
MIME = "application/x-quire-conversations"
_MAX_RUNS = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation. ``updated_at`` in seconds since the epoch; 0 while it is open."""

    conversation_id: str
    title: str
    number: int
    is_open: bool
    group: str
    updated_at: float = 0.0


Entry = Row | Group

ROW_ROLE = Qt.ItemDataRole.UserRole
ACTIVITY_ROLE = Qt.ItemDataRole.UserRole + 1


class ConversationListModel(QAbstractListModel):
    """Follows the session. ``set_filter`` keeps the titles that contain a text, without headings.

    Signals:
        rows_changed(): the list is another one; what stayed in it stays selected.
        dropped(list of ids, group): conversations were dragged onto a group.
        renamed(conversation_id, title), folder_renamed(folder, name): edited in place.
    """

    rows_changed = Signal()
    dropped = Signal(list, str)
    renamed = Signal(str, str)
    folder_renamed = Signal(str, str)

    def __init__(
        self, session: Session, collapsed: Iterable[str], parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._collapsed = set(collapsed)
        self._entries: list[Entry] = []
        self._places: dict[str, int] | None = None
        self._stored: dict[str, list[Row]] = {}
        self._ages = Ages(date.today())
        self._known: dict[str, tuple[ConversationSummary, Row]] = {}
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
        session.conversation_changed.connect(self._update_entries)
        session.order_changed.connect(self._update_entries)

    @property
    def collapsed(self) -> frozenset[str]:
        """Keys of the groups whose conversations are not shown."""
        return frozenset(self._collapsed)

    def reload(self) -> None:
        """Reads the session anew."""
        if self._ages.today != date.today():
            self._ages = Ages(date.today())
            self._known.clear()
        stored: dict[str, list[Row]] = {}
        for s in self._session.closed_conversations():
            row = self._stored_row(s)
            stored.setdefault(row.group, []).append(row)
        for s in self._session.deleted_conversations():
            stored.setdefault(groups.DELETED, []).append(_row_of(s, groups.DELETED))
        self._stored = stored
        self._update_entries()

    def _stored_row(self, s: ConversationSummary) -> Row:
        """The same row as last time, for a conversation of which nothing changed."""
        known = self._known.get(s.conversation_id)
        if known is None or known[0] is not s:
            key = _group_of(s) or self._ages.group_of(s.updated_at)
            known = self._known[s.conversation_id] = (s, _row_of(s, key))
        return known[1]

    def set_filter(self, text: str) -> None:
        """Keeps the titles that contain ``text``, whatever its case."""
        self._filter = text.strip()
        self._update_entries()

    def set_collapsed(self, key: str, collapsed: bool) -> None:
        """Shows or hides the conversations of a group."""
        if collapsed != (key in self._collapsed):
            self._collapsed.symmetric_difference_update({key})
            self._update_entries()

    def set_activity(self, conversation_id: str, activity: Activity) -> None:
        """What an open conversation's answer is doing."""
        self._activities[conversation_id] = activity
        index = self.index_of(conversation_id)
        if index.isValid():
            self.dataChanged.emit(index, index, [ACTIVITY_ROLE])

    def entry(self, index: Index) -> Entry | None:
        """The conversation or heading at an index."""
        return self._entries[index.row()] if index.isValid() else None

    def row(self, index: Index) -> Row | None:
        """The conversation at an index; None for a heading."""
        entry = self.entry(index)
        return entry if isinstance(entry, Row) else None

    def rows(self, indexes: Iterable[Index]) -> list[Row]:
        """The conversations at these indexes, from top to bottom."""
        found = (self.row(index) for index in sorted(indexes, key=lambda index: index.row()))
        return [row for row in found if row is not None]

    def index_of(self, conversation_id: str) -> QModelIndex:
        """Where a conversation is; invalid if it is not in the list."""
        if self._places is None:
            rows = enumerate(self._entries)
            self._places = {e.conversation_id: n for n, e in rows if isinstance(e, Row)}
        place = self._places.get(conversation_id)
        return QModelIndex() if place is None else self.index(place)

    def index_of_group(self, key: str) -> QModelIndex:
        """Where a heading is; invalid if there is none."""
        for place, entry in enumerate(self._entries):
            if isinstance(entry, Group) and entry.key == key:
                return self.index(place)
        return QModelIndex()

    # --- building ---

    def _update_entries(self) -> None:
        opened: dict[str, list[Row]] = {}
        open_ids = self._session.conversation_ids()
        # One that has just been opened is among the stored ones until they are read again.
        by_group = _without(self._stored, set(open_ids))
        for conversation_id in open_ids:
            c = self._session.conversation(conversation_id)
            folder = groups.FOLDER + c.folder if c.folder else ""
            key = groups.PINNED if c.pinned else folder or groups.OPEN
            row = Row(conversation_id, shown_title(c.title), c.number, True, key)
            opened.setdefault(key, []).append(row)
        for key, rows in opened.items():
            by_group[key] = rows + by_group.get(key, [])
        keys = sorted(by_group, key=groups.sort_key)
        if self._filter:
            wanted = self._filter.casefold()
            kept = (row for key in keys if key != groups.DELETED for row in by_group[key])
            self._replace([row for row in kept if wanted in row.title.casefold()])
            return
        entries: list[Entry] = []
        for key in keys:
            is_collapsed = key in self._collapsed
            entries.append(Group(key, len(by_group[key]), is_collapsed))
            if not is_collapsed:
                entries += by_group[key]
        self._replace(entries)

    def _replace(self, entries: list[Entry]) -> None:
        """Tells the view of what differs only, so that selection and place stay."""
        if entries == self._entries:
            return
        kept = stay_in_order(_keys(self._entries), _keys(entries))
        gone = runs_without(_keys(self._entries), kept)
        come = runs_without(_keys(entries), kept)
        if len(gone) + len(come) > _MAX_RUNS:
            self.beginResetModel()
            self._take(entries)
            self.endResetModel()
        else:
            self._replace_runs(entries, gone, come)
        self.rows_changed.emit()

    def _replace_runs(
        self, entries: list[Entry], gone: list[tuple[int, int]], come: list[tuple[int, int]]
    ) -> None:
        now = list(self._entries)
        for first, last in reversed(gone):
            self.beginRemoveRows(QModelIndex(), first, last)
            del now[first : last + 1]
            self._take(list(now))
            self.endRemoveRows()
        for first, last in come:
            self.beginInsertRows(QModelIndex(), first, last)
            now[first:first] = entries[first : last + 1]
            self._take(list(now))
            self.endInsertRows()
        pairs = zip(now, entries, strict=True)
        changed = [place for place, (before, after) in enumerate(pairs) if before != after]
        self._take(entries)
        if changed:
            self.dataChanged.emit(self.index(changed[0]), self.index(changed[-1]))

    def _take(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._places = None

    # --- what the view asks ---

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._entries)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        entry = self.entry(index)
        if entry is None:
            return None
        if role == ROW_ROLE:
            return entry
        if isinstance(entry, Group):
            return _group_data(entry, role)
        activity = self._activities.get(entry.conversation_id, Activity.IDLE)
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return entry.title
        if role == ACTIVITY_ROLE:
            return activity
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tip(entry.title)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            state = activity_words(activity) if entry.is_open else tr("closed")
            return f"{entry.title}, {state}" if state else entry.title
        return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        entry = self.entry(index)
        if entry is None or role != Qt.ItemDataRole.EditRole:
            return False
        # Later: the view still holds the editor whose row may go now.
        if isinstance(entry, Row):
            if value != entry.title:
                self.renamed.emit(entry.conversation_id, str(value))
        elif entry.folder and value != entry.folder:
            self.folder_renamed.emit(entry.folder, str(value))
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        flag, entry = Qt.ItemFlag, self.entry(index)
        if entry is None:
            return flag.NoItemFlags
        flags = flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemNeverHasChildren
        if isinstance(entry, Group):
            flags |= flag.ItemIsEditable if entry.folder else flag.NoItemFlags
            return flags | flag.ItemIsDropEnabled
        if entry.group == groups.DELETED:
            return flags | flag.ItemIsDragEnabled
        return flags | flag.ItemIsEditable | flag.ItemIsDragEnabled | flag.ItemIsDropEnabled

    # --- dragging ---

    def mimeTypes(self) -> list[str]:
        return [MIME]

    def supportedDropActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        data = QMimeData()
        ids = [row.conversation_id for row in self.rows(indexes)]
        data.setData(MIME, " ".join(ids).encode("ascii"))
        return data

    def canDropMimeData(
        self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index
    ) -> bool:
        return data.hasFormat(MIME) and self.entry(parent) is not None

    def dropMimeData(
        self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index
    ) -> bool:
        entry = self.entry(parent)
        if entry is None or not data.hasFormat(MIME):
            return False
        ids = bytes(data.data(MIME).data()).decode("ascii").split()
        self.dropped.emit(ids, entry.key if isinstance(entry, Group) else entry.group)
        # False: the view must not take the rows out; the session tells where they are now.
        return False


def _without(stored: Mapping[str, list[Row]], open_ids: set[str]) -> dict[str, list[Row]]:
    kept = {
        key: [row for row in rows if row.conversation_id not in open_ids]
        for key, rows in stored.items()
    }
    return {key: rows for key, rows in kept.items() if rows}


def _group_of(summary: ConversationSummary) -> str:
    """The group of a stored conversation; empty if only its age says."""
    if summary.archived:
        return groups.ARCHIVED
    if summary.pinned:
        return groups.PINNED
    return groups.FOLDER + summary.folder if summary.folder else ""


def _row_of(s: ConversationSummary, key: str) -> Row:
    return Row(s.conversation_id, shown_title(s.title), s.number, False, key, s.updated_at)


def _group_data(group: Group, role: int) -> Any:
    if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
        return group_title(group.key)
    if role == Qt.ItemDataRole.AccessibleTextRole:
        count = tr_n("{n} conversation", "{n} conversations", group.count)
        state = tr("collapsed") if group.is_collapsed else tr("expanded")
        return f"{group_title(group.key)}, {count}, {state}"
    return None


def _keys(entries: Sequence[Entry]) -> list[str]:
    return [e.conversation_id if isinstance(e, Row) else e.key for e in entries]
