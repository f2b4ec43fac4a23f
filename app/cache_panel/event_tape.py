"""The event tape: the latest things that happened to blocks, newest first, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from PySide6.QtCore import (
    QAbstractListModel,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
    QRect,
    QSize,
    Qt,
    QTimer,
)
from PySide6.QtGui import QGuiApplication, QHideEvent, QPainter, QPalette, QShowEvent
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.cache_panel import tape_words, words
from app.cache_panel.names import Names
from app.cache_panel.parts import as_tool_tip, fitting
from app.cache_panel.tape_rows import TapeRow, TapeRows
from app.i18n import tr
from engine.api.events import PoolEvent

SHOW_MS = 250
LINES = 3
TALLER = 3
"""Pixels by which a line of a fallback font, Chinese most of all, is higher than the font says."""
Index = QModelIndex | QPersistentModelIndex
HEAD = Qt.ItemDataRole.UserRole


class TapeModel(QAbstractListModel):
    """Rows newest first; words are made only for rows that are looked at."""

    def __init__(self, names: Names, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names = names
        self._shown: list[TapeRow] = []

    def show_rows(self, rows: list[TapeRow]) -> None:
        """Shows these, newest first."""
        self.beginResetModel()
        self._shown = rows
        self.endResetModel()

    def row_at(self, row: int) -> TapeRow:
        return self._shown[row]

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's signature
        return 0 if parent.isValid() else len(self._shown)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row = self._shown[index.row()]
        if role == HEAD:
            whose = tape_words.whose(row, self._names)
            return " · ".join(part for part in (tape_words.steps(row), whose) if part)
        if role == Qt.ItemDataRole.DisplayRole:
            return tape_words.sentence(row, self._names)
        if role in (Qt.ItemDataRole.AccessibleTextRole, Qt.ItemDataRole.ToolTipRole):
            text = f"{self.data(index, HEAD)}\n{tape_words.sentence(row, self._names)}"
            return as_tool_tip(text) if role == Qt.ItemDataRole.ToolTipRole else text
        return None


class _TwoLines(QStyledItemDelegate):
    """A muted line for when and who, then the sentence; all rows alike, so that none is measured
    in advance.
    """

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(100, LINES * (option.fontMetrics.lineSpacing() + TALLER) + 8)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        style = option.widget.style() if option.widget else QApplication.style()
        style.drawPrimitive(
            QStyle.PrimitiveElement.PE_PanelItemViewItem, option, painter, option.widget
        )
        rect = option.rect.adjusted(8, 4, -8, -4)
        line = option.fontMetrics.lineSpacing() + TALLER
        painter.save()
        # The application's: a style sheet fades the view's own below what can be read.
        painter.setPen(QGuiApplication.palette().color(QPalette.ColorRole.PlaceholderText))
        head = option.fontMetrics.elidedText(
            str(index.data(HEAD)), Qt.TextElideMode.ElideRight, rect.width()
        )
        top = QRect(rect.left(), rect.top(), rect.width(), line)
        middle = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(top, int(middle), head)
        painter.setPen(option.palette.color(QPalette.ColorRole.Text))
        flags = int(Qt.AlignmentFlag.AlignLeft) | int(Qt.TextFlag.TextWordWrap)
        text = fitting(str(index.data()), option.font, rect.width(), LINES - 1)
        painter.drawText(rect.adjusted(0, line, 0, 0), flags, text)
        painter.restore()


class EventTape(QWidget):
    """A virtual list of at most ``MAX_ROWS`` rows, filtered by conversation.

    Taking events costs a look at each; the list is made anew ``1000 / SHOW_MS`` times a second at
    most, and not while it cannot be seen.
    """

    def __init__(self, names: Names, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names = names
        self._rows = TapeRows()
        self._is_stale = False
        self.model = TapeModel(names, self)
        self.filter_box = QComboBox()
        self.filter_box.setAccessibleName(tr("Events of"))
        self.filter_box.view().setAccessibleName(tr("Events of"))
        self.filter_box.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.filter_box.addItem(tr("All conversations"), "")
        self.filter_box.currentIndexChanged.connect(self._on_filter_changed)
        self.list = QListView()
        self.list.setModel(self.model)
        self.list.setItemDelegate(_TwoLines(self.list))
        self.list.setUniformItemSizes(True)
        self.list.setAccessibleName(tr("Events"))
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._show)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.filter_box)
        layout.addWidget(self.list, 1)

    def sizeHint(self) -> QSize:
        return QSize(340, 150)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, 40)

    @property
    def rows(self) -> list[TapeRow]:
        """Everything that is kept, oldest first."""
        return list(self._rows.rows)

    def add(self, events: Iterable[PoolEvent]) -> None:
        """Takes events in order."""
        self._rows.add(events)
        self._show_soon()

    def replace(self, events: Iterable[PoolEvent]) -> None:
        """Takes these instead of all before."""
        self._rows.clear()
        self.add(events)

    def clear(self) -> None:
        """Forgets everything."""
        self._rows.clear()
        self._show_soon()

    def forget_names(self) -> None:
        """Titles or numbers have changed."""
        self._show_soon()

    def show_now(self) -> None:
        """Without waiting for the next time."""
        self._show()

    def _show_soon(self) -> None:
        self._is_stale = True
        if self.isVisible() and not self._timer.isActive():
            self._timer.start(SHOW_MS)

    def _show(self) -> None:
        self._timer.stop()
        self._is_stale = False
        self._fill_filter()
        wanted = self.filter_box.currentData() or ""
        rows = [row for row in reversed(self._rows.rows) if not wanted or row.concerns(wanted)]
        current = self.list.currentIndex()
        held = self.model.row_at(current.row()) if current.isValid() else None
        top = self._top_row()
        self.model.show_rows(rows)
        if held is not None and held in rows:
            # The selection stays with what happened, not with a place in the list.
            selection = self.list.selectionModel()
            flag = QItemSelectionModel.SelectionFlag.ClearAndSelect
            selection.setCurrentIndex(self.model.index(rows.index(held)), flag)
        if top in rows:
            index = self.model.index(rows.index(top))
            self.list.scrollTo(index, QListView.ScrollHint.PositionAtTop)
        else:
            self.list.scrollToTop()

    def _top_row(self) -> TapeRow | None:
        """What the user reads further down; None at the top, where the newest is to be seen."""
        if self.list.verticalScrollBar().value() == 0:
            return None
        index = self.list.indexAt(self.list.viewport().rect().topLeft())
        return self.model.row_at(index.row()) if index.isValid() else None

    def _fill_filter(self) -> None:
        """Conversations in the order of their numbers; the one chosen stays chosen."""
        ids = {row.conversation_id for row in self._rows.rows if row.conversation_id}
        chosen = self.filter_box.currentData()
        if chosen:
            ids.add(chosen)
        ordered = sorted(ids, key=lambda i: (self._names.number_of(i) or 10**9, i))
        entries = [("", tr("All conversations"))]
        entries += [(i, words.conversation(self._names, i)) for i in ordered]
        box = self.filter_box
        before = [(box.itemData(i), box.itemText(i)) for i in range(box.count())]
        # An open list would close under the user's hand.
        if before == entries or box.view().isVisible():
            return
        box.blockSignals(True)
        box.clear()
        for conversation_id, text in entries:
            box.addItem(text, conversation_id)
        box.setCurrentIndex(max(0, box.findData(chosen)))
        box.blockSignals(False)

    def _on_filter_changed(self) -> None:
        self._show()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._is_stale:
            self._show()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()
