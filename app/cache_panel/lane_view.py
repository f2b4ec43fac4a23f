"""The scheduler lane: each request with its phase, its progress, and why it waits."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QGuiApplication, QPainter, QPalette
from PySide6.QtWidgets import (
    QApplication,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.cache_panel import lane_words, words
from app.cache_panel.event_tape import TALLER, Index
from app.cache_panel.lane import DECODE, PREFILL, RUNNING, LaneRow, StepWork
from app.cache_panel.names import Names
from app.cache_panel.parts import WrappedLabel, as_tool_tip, fitting
from app.cache_panel.pool_model import PoolModel
from app.i18n import tr
from app.theme import Theme
from app.widgets.swatch import draw_swatch

LINES = 3
SWATCH = 14
BAR_HEIGHT = 5
ROW = Qt.ItemDataRole.UserRole


class LaneModel(QAbstractListModel):
    """Requests that wait first, then those that run."""

    def __init__(self, names: Names, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names = names
        self._rows: list[LaneRow] = []
        self._pool: PoolModel | None = None

    @property
    def rows(self) -> list[LaneRow]:
        """What is shown."""
        return list(self._rows)

    def show_rows(self, rows: list[LaneRow], pool: PoolModel | None) -> None:
        """Shows these."""
        same = [r.request_id for r in rows] == [r.request_id for r in self._rows]
        self._pool = pool
        if same:
            self._rows = rows
            if rows:
                self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's signature
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or self._pool is None:
            return None
        row = self._rows[index.row()]
        if role == ROW:
            return row
        if role == Qt.ItemDataRole.DisplayRole:
            return lane_words.sentence(row, self._rows, self._pool, self._names)
        if role in (Qt.ItemDataRole.AccessibleTextRole, Qt.ItemDataRole.ToolTipRole):
            sentence = lane_words.sentence(row, self._rows, self._pool, self._names)
            text = f"{self.title(row)}: {lane_words.phase(row)}\n{sentence}"
            return as_tool_tip(text) if role == Qt.ItemDataRole.ToolTipRole else text
        return None

    def title(self, row: LaneRow) -> str:
        """The conversation's title, or words for none."""
        title = self._names.title_of(row.conversation_id)
        return title or words.conversation(self._names, row.conversation_id)

    def number(self, row: LaneRow) -> int:
        """The conversation's number."""
        return self._names.number_of(row.conversation_id)


class _RowDelegate(QStyledItemDelegate):
    """Swatch, title and phase; a bar for the prompt; a sentence over up to two lines."""

    def __init__(self, model: LaneModel, parent: QWidget) -> None:
        super().__init__(parent)
        self._model = model
        self.theme: Theme | None = None

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        line = option.fontMetrics.lineSpacing() + TALLER
        return QSize(100, LINES * line + BAR_HEIGHT + 12)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        style = option.widget.style() if option.widget else QApplication.style()
        style.drawPrimitive(
            QStyle.PrimitiveElement.PE_PanelItemViewItem, option, painter, option.widget
        )
        theme, row = self.theme, index.data(ROW)
        if theme is None or row is None:
            return
        painter.save()
        rect = option.rect.adjusted(8, 4, -8, -4)
        line = option.fontMetrics.lineSpacing() + TALLER
        top = QRect(rect.left(), rect.top(), rect.width(), line)
        self._paint_head(painter, option, top, row, theme)
        bar = QRectF(rect.left(), top.bottom() + 2, rect.width(), BAR_HEIGHT)
        self._paint_bar(painter, bar, row, theme)
        painter.setPen(option.palette.color(QPalette.ColorRole.Text))
        flags = int(Qt.AlignmentFlag.AlignLeft) | int(Qt.TextFlag.TextWordWrap)
        text = fitting(str(index.data()), option.font, rect.width(), LINES - 1)
        painter.drawText(rect.adjusted(0, line + BAR_HEIGHT + 4, 0, 0), flags, text)
        painter.restore()

    def _paint_head(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        rect: QRect,
        row: LaneRow,
        theme: Theme,
    ) -> None:
        number = self._model.number(row)
        left = rect.left()
        if number:
            painter.save()
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            y = rect.top() + (rect.height() - SWATCH) / 2
            draw_swatch(painter, theme, QRectF(left, y, SWATCH, SWATCH), number)
            painter.restore()
            left += SWATCH + 6
        phase = lane_words.phase(row)
        metrics = option.fontMetrics
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.setPen(_phase_color(row, theme))
        painter.drawText(rect, int(right), phase)
        room = rect.right() - left - metrics.horizontalAdvance(phase) - 12
        title = metrics.elidedText(self._model.title(row), Qt.TextElideMode.ElideRight, room)
        painter.setPen(QGuiApplication.palette().color(QPalette.ColorRole.Text))
        middle = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(QRect(left, rect.top(), room, rect.height()), int(middle), title)

    def _paint_bar(self, painter: QPainter, bar: QRectF, row: LaneRow, theme: Theme) -> None:
        """The prompt: what the cache had, what is computed, what is left."""
        painter.fillRect(bar, theme.color("raised"))
        total = max(1, row.prompt)
        cached = min(row.cached, total) / total
        done = min(row.computed, total) / total
        hue = theme.hue(self._model.number(row) or 1)
        painter.fillRect(QRectF(bar.x(), bar.y(), bar.width() * done, bar.height()), hue)
        shared = QRectF(bar.x(), bar.y(), bar.width() * min(cached, done), bar.height())
        painter.fillRect(shared, theme.shared)
        painter.setPen(theme.color("strong_line"))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(bar.adjusted(0.5, 0.5, -0.5, -0.5))


def _phase_color(row: LaneRow, theme: Theme) -> QColor:
    if row.phase in (PREFILL, DECODE):
        return theme.color("accent")
    return theme.color("warning")


class LaneView(QWidget):
    """What the scheduler does; ``show_lane`` at most a few times a second."""

    def __init__(self, names: Names, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = LaneModel(names, self)
        self.summary = WrappedLabel(1, "muted")
        self.list = QListView()
        self.list.setModel(self.model)
        self._delegate = _RowDelegate(self.model, self.list)
        self.list.setItemDelegate(self._delegate)
        self.list.setUniformItemSizes(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setAccessibleName(tr("Requests in the scheduler"))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.summary)
        layout.addWidget(self.list, 1)
        self.set_theme(theme)
        self.show_lane((), StepWork(), 0.0, None)

    def sizeHint(self) -> QSize:
        return QSize(340, 150)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, 40)

    def set_theme(self, theme: Theme) -> None:
        """Draws everything in other colours."""
        self._delegate.theme = theme
        self.list.viewport().update()

    def show_lane(
        self,
        rows: tuple[LaneRow, ...],
        work: StepWork,
        steps_per_s: float,
        pool: PoolModel | None,
    ) -> None:
        """``work`` of the newest steps; an empty ``rows`` says that nobody asks for anything."""
        # Those that wait have something to say.
        ordered = sorted(rows, key=lambda row: row.phase in RUNNING)
        waiting = sum(row.phase not in RUNNING for row in rows)
        self.summary.show_text(lane_words.summary(work, steps_per_s, waiting))
        if ordered != self.model.rows or ordered:
            self.model.show_rows(ordered, pool)
