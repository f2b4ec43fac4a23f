"""Paged against contiguous, side by side and to scale."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent, QPen, QShowEvent
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app.cache_panel import figures, words
from app.cache_panel.against import Comparison, comparison_of
from app.cache_panel.names import Names
from app.cache_panel.parts import set_text, wrapped_label
from app.cache_panel.pool_model import PoolModel
from app.i18n import tr, tr_n
from app.theme import Theme, number_font

_BAR = 14
_LABEL = 20
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_GAP = 4
_MOST_ROWS = 12


class ScaleBars(QWidget):
    """Bars of which the full width is ``full_slots`` tokens; what is longer goes on below."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._rows: list[list[tuple[float, QColor, bool]]] = []
        self._numbers: tuple[int, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(200, max(1, len(self._rows)) * (_BAR + _GAP))

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    def show_rows(
        self, rows: list[list[tuple[float, QColor, bool]]], numbers: tuple[int, ...] = ()
    ) -> None:
        """Each row: parts of the full width (0 to 1), their colour, and whether they are shared.

        ``numbers``: of the conversation of each row, to stand before it; 0 for none.
        """
        if (rows, numbers) != (self._rows, self._numbers):
            more = len(rows) != len(self._rows)
            self._rows, self._numbers = rows, numbers
            if more:
                self.updateGeometry()
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        theme, width = self._theme, self.width() - 1 - _LABEL
        painter.setFont(number_font(8.5))
        empty = QColor(theme.color("strong_line"))
        for index, parts in enumerate(self._rows):
            top = index * (_BAR + _GAP) + 0.5
            if index < len(self._numbers) and self._numbers[index]:
                painter.setPen(theme.color("muted"))
                label = QRectF(0, top - 1, _LABEL - 5, _BAR)
                painter.drawText(label, _RIGHT, f"{self._numbers[index]}")
            left = _LABEL + 0.5
            frame = QRectF(left, top, width, _BAR - 1)
            for share, color, is_shared in parts:
                part = QRectF(left, top, share * width, _BAR - 1)
                if color.alpha():
                    painter.fillRect(part, color)
                    if is_shared:
                        hatch = QColor(theme.color("background"))
                        hatch.setAlphaF(0.7)
                        painter.fillRect(part, QBrush(hatch, Qt.BrushStyle.BDiagPattern))
                else:
                    painter.fillRect(part, QBrush(empty, Qt.BrushStyle.Dense7Pattern))
                left += share * width
            painter.setPen(QPen(theme.color("line"), 1))
            painter.drawRect(frame)
        painter.end()


class AgainstView(QWidget):
    """Two groups of bars in one scale, each with its figures in words."""

    def __init__(self, names: Names, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names = names
        self._theme = theme
        self._pool: PoolModel | None = None
        self.comparison = Comparison()
        self.paged = wrapped_label()
        self.paged_bars = ScaleBars(theme)
        self.reserved = wrapped_label()
        self.reserved_bars = ScaleBars(theme)
        self.why = wrapped_label(tone="muted")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 4, 0, 4)
        column.setSpacing(6)
        for widget in (self.paged, self.paged_bars, self.reserved, self.reserved_bars, self.why):
            column.addWidget(widget)
        column.addStretch(1)
        self.paged_bars.setAccessibleName(tr("Memory, paged"))
        self.reserved_bars.setAccessibleName(tr("Memory, contiguous"))
        self._show()

    def set_theme(self, theme: Theme) -> None:
        """Draws everything in other colours."""
        self._theme = theme
        self.paged_bars.set_theme(theme)
        self.reserved_bars.set_theme(theme)
        self._show()

    def show_pool(self, pool: PoolModel | None) -> None:
        """Shows a pool as it is now; reckons nothing while it cannot be seen."""
        self._pool = pool
        if pool is None or self.isVisible():
            self._reckon()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._reckon()

    def _reckon(self) -> None:
        pool, open_ids = self._pool, self._names.open_ids()
        found = Comparison() if pool is None else comparison_of(pool, open_ids)
        number = self._names.number_of
        held = sorted(found.held, key=lambda h: number(h.conversation_id) or 10**9)
        self.comparison = replace(found, held=tuple(held))
        self._show()

    def _show(self) -> None:
        found, pool = self.comparison, self._pool
        has_any = bool(found.held) and pool is not None and found.context_length > 0
        for widget in (self.paged_bars, self.reserved, self.reserved_bars, self.why):
            widget.setVisible(has_any)
        if not has_any or pool is None:
            set_text(self.paged, tr("Nothing to compare yet: no conversation holds blocks."))
            return
        rows = self._paged_rows(found)
        self.paged_bars.show_rows(rows)
        numbers = [self._names.number_of(h.conversation_id) for h in found.held[:_MOST_ROWS]]
        self.reserved_bars.show_rows(self._reserved_rows(found), tuple(numbers))
        set_text(self.paged, paged_words(pool, found))
        set_text(self.reserved, reserved_words(pool, found))
        set_text(self.why, why_words(found))
        self.paged_bars.setAccessibleDescription(self.paged.text())
        self.reserved_bars.setAccessibleDescription(self.reserved.text())

    def _hue(self, conversation_id: str) -> QColor:
        number = self._names.number_of(conversation_id)
        return self._theme.hue(number) if number else self._theme.color("muted")

    def _paged_rows(self, found: Comparison) -> list[list[tuple[float, QColor, bool]]]:
        full = found.context_length
        parts = [(found.shared_blocks, self._theme.shared, True)]
        parts += [(h.own_blocks, self._hue(h.conversation_id), False) for h in found.held]
        rows: list[list[tuple[float, QColor, bool]]] = [[]]
        room = 1.0
        for blocks, color, is_shared in parts:
            share = blocks * found.block_size / full
            while share > 0.0 and len(rows) <= _MOST_ROWS:
                taken = min(share, room)
                rows[-1].append((taken, color, is_shared))
                share -= taken
                room -= taken
                if room <= 1e-9:
                    rows.append([])
                    room = 1.0
        return [row for row in rows if row] or [[]]

    def _reserved_rows(self, found: Comparison) -> list[list[tuple[float, QColor, bool]]]:
        clear = QColor(Qt.GlobalColor.transparent)
        rows = []
        for held in found.held[:_MOST_ROWS]:
            share = min(1.0, held.tokens / found.context_length)
            hue = self._hue(held.conversation_id)
            rows.append([(share, hue, False), (1.0 - share, clear, False)])
        return rows


def percent(share: float) -> str:
    """``3.1 %``; without digits from 10 % on, and for nothing."""
    value = 100 * share
    has_digits = 0.05 <= value < 9.95
    return tr("{percent} %", percent=f"{value:.1f}" if has_digits else f"{value:.0f}")


def _size(pool: PoolModel, slots: int) -> str:
    return words.megabytes(figures.megabytes(pool, 1) * slots / pool.block_size)


def paged_words(pool: PoolModel, found: Comparison) -> str:
    """What paging takes for these conversations."""
    num = len(found.held)
    if num == len({held.conversation_id for held in found.held}):
        conversations = tr_n("{n} conversation", "{n} conversations", num)
    else:
        # Several answers of one conversation.
        conversations = words.sequences(num)
    return tr(
        "Paged: {size} for {conversations}. {waste} of it is empty.",
        size=_size(pool, found.paged_slots),
        conversations=conversations,
        waste=percent(found.paged_waste),
    )


def reserved_words(pool: PoolModel, found: Comparison) -> str:
    """What a contiguous allocator would take, and how many would fit."""
    return tr(
        "Contiguous, with room reserved for {context} each: {size}. {waste} of it is empty.",
        context=words.tokens(found.context_length),
        size=_size(pool, found.reserved_slots),
        waste=percent(found.reserved_waste),
    )


def why_words(found: Comparison) -> str:
    """Why it has to reserve, for somebody who hears of it first."""
    why = tr(
        "Without pages the notes of a conversation have to lie in one piece. A piece between "
        "others cannot grow, so room for the longest possible conversation is set aside at the "
        "beginning, and equal beginnings are stored once for each. One full bar is the longest "
        "conversation; the dotted part stays empty."
    )
    if not found.num_that_fit:
        none = tr("The memory of this pool would not do for a single one.")
        return f"{why} {none}"
    fit = tr_n(
        "So the memory of this pool would do for {n} conversation.",
        "So the memory of this pool would do for {n} conversations.",
        found.num_that_fit,
    )
    return f"{why} {fit}"
