"""What sharing saves, as a table with a row for each conversation and one for all."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QSize, Qt
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView, QVBoxLayout, QWidget

from app.cache_panel import figures, words
from app.cache_panel.event_tape import Index
from app.cache_panel.names import Names
from app.cache_panel.parts import WrappedLabel
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.shares import Share, reserved_blocks, shares_of
from app.i18n import tr
from app.theme import number_font

TITLE, SHARED, SAVED, TIME, EMPTY = range(5)
_HEAD = Qt.Orientation.Horizontal


class SavingsModel(QAbstractTableModel):
    """A row a block table, and the sum."""

    def __init__(self, names: Names, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names = names
        self._pool: PoolModel | None = None
        self.shares: list[Share] = []

    def show_shares(self, pool: PoolModel | None, shares: list[Share]) -> None:
        """Shows these, in the order of the conversations' numbers."""
        number = self._names.number_of
        ordered = sorted(shares, key=lambda s: (number(s.conversation_id) or 10**9, s.request_id))
        same = len(ordered) == len(self.shares) and pool is self._pool
        if same and ordered == self.shares:
            return
        if not same:
            self.beginResetModel()
        self._pool, self.shares = pool, ordered
        if same:
            self.dataChanged.emit(self.index(0, 0), self.index(self.rowCount() - 1, EMPTY))
        else:
            self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's signature
        return 0 if parent.isValid() or not self.shares else len(self.shares) + 1

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's signature
        return 0 if parent.isValid() else EMPTY + 1

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation != _HEAD:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return _titles()[section]
        if role == Qt.ItemDataRole.ToolTipRole:
            return _explanations()[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(section)
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        pool = self._pool
        if not index.isValid() or pool is None:
            return None
        is_sum = index.row() == len(self.shares)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(index.column())
        if role == Qt.ItemDataRole.FontRole:
            font = number_font()
            font.setWeight(QFont.Weight.DemiBold if is_sum else QFont.Weight.Normal)
            return font
        if role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return None
        if is_sum:
            text = self._sum(pool, index.column())
        else:
            text = self._cell(pool, self.shares[index.row()], index.column())
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{_titles()[index.column()]}: {text}"
        return text

    def _cell(self, pool: PoolModel, share: Share, column: int) -> str:
        match column:
            case 0:
                title = words.conversation(self._names, share.conversation_id)
                return title if share.is_live else tr("{title} (kept)", title=title)
            case 1:
                return _of(share.shared_blocks, share.logical_blocks)
            case 2:
                return _megabytes(pool, share.saved_blocks)
            case 3:
                return _time(pool, share.hit_tokens)
        return f"{share.empty_slots:,}"

    def _sum(self, pool: PoolModel, column: int) -> str:
        shares = self.shares
        match column:
            case 0:
                return tr("All")
            case 1:
                shared = sum(s.shared_blocks for s in shares)
                return _of(shared, sum(s.logical_blocks for s in shares))
            case 2:
                return _megabytes(pool, sum(s.saved_blocks for s in shares))
            case 3:
                return _time(pool, sum(s.hit_tokens for s in shares))
        return f"{sum(s.empty_slots for s in shares):,}"


class SavingsView(QWidget):
    """The table, and what contiguous reservation would take for the same conversations."""

    def __init__(self, names: Names, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names = names
        self.model = SavingsModel(names, self)
        self.table = QTableView()
        self.table.setModel(self.model)
        self.table.setAccessibleName(tr("Savings by conversation"))
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setShowGrid(False)
        self.table.setWordWrap(False)
        self.table.setTabKeyNavigation(False)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(self.fontMetrics().height() + 8)
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(TITLE, QHeaderView.ResizeMode.Stretch)
        header.setMinimumSectionSize(36)
        header.setTextElideMode(Qt.TextElideMode.ElideRight)
        header.setHighlightSections(False)
        self.note = WrappedLabel(1, "muted")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.table, 1)
        layout.addWidget(self.note)

    def sizeHint(self) -> QSize:
        return QSize(340, 150)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, 40)

    def show_pool(self, pool: PoolModel | None) -> None:
        """Reckons everything anew; does nothing while it cannot be seen."""
        if not self.isVisible() and pool is not None:
            return
        shares = [] if pool is None else shares_of(pool, self._names.open_ids())
        self.model.show_shares(pool, shares)
        self.note.show_text("" if pool is None else _against_contiguous(pool, shares))


def _against_contiguous(pool: PoolModel, shares: list[Share]) -> str:
    if not shares:
        return tr("Nothing is in the cache yet.")
    # Of every row: a block that running and kept tables share belongs to both.
    reserved = reserved_blocks(pool, len(shares))
    taken = sum(share.physical_blocks for share in shares)
    reservation = tr(
        "Reserving the whole context of {context} for each would take {reserved} for {sequences}. "
        "Here it is {taken}.",
        context=words.tokens(pool.context_length),
        reserved=words.megabytes(figures.megabytes(pool, reserved)),
        sequences=words.sequences(len(shares)),
        taken=_megabytes(pool, taken),
    )
    return f"{reservation} {words.waste(pool)}".strip()


def _megabytes(pool: PoolModel, num_blocks: float) -> str:
    return words.megabytes(num_blocks * pool.block_bytes / figures.BYTES_PER_MB)


def _time(pool: PoolModel, num_tokens: int) -> str:
    time = figures.prefill_seconds(pool, num_tokens)
    if not num_tokens:
        return "–"
    return words.seconds(time) if time > 0 else tr("{n} tok.", n=f"{num_tokens:,}")


def _of(part: int, whole: int) -> str:
    return tr("{part} of {whole}", part=f"{part:,}", whole=f"{whole:,}")


def _alignment(column: int) -> int:
    side = Qt.AlignmentFlag.AlignLeft if column == TITLE else Qt.AlignmentFlag.AlignRight
    return int(side | Qt.AlignmentFlag.AlignVCenter)


def _titles() -> list[str]:
    return [
        tr("Conversation"),
        tr("Shared"),
        tr("Saved"),
        tr("Time"),
        tr("Empty"),
    ]


def _explanations() -> list[str]:
    return [
        tr("One row for each block table."),
        tr("Blocks of its table that stand in other tables too."),
        tr("Memory saved: a block in three tables costs each of them a third."),
        tr("Prefill that was not needed, because the beginning was in the cache."),
        tr("Slots of its last block that hold no token yet."),
    ]
