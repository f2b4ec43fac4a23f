"""Paints messages and blocks in the colours of the theme."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QFontMetricsF,
    QPainter,
    QPainterPath,
    QPalette,
    QTextCharFormat,
)

from app import assets
from app import theme as themes
from app.markdown_blocks import CODE, RULE
from app.theme import Theme
from app.widgets.transcript.boxes import CODE_HEADER, CODE_PADDING, INDENT, QUOTE, BlockBox
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.page import Page
from app.widgets.transcript.selection import Selection, cursor_for

RADIUS = 6.0
COPY_SIZE = 16
DIVIDER_GAP = 12.0


class TranscriptPainter:
    """Draws a ``Page`` with a ``Selection``; one for each theme."""

    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self.footer_font = themes.number_font(8.5)
        self.footer_metrics = QFontMetricsF(self.footer_font)
        self._label_font = themes.interface_font()
        self._label_font.setPointSizeF(8.5)
        self._marker_font = themes.body_font()
        self._copy = assets.icon_pixmap("copy", theme.colors["muted"], COPY_SIZE, 2.0)
        self._selected = QTextCharFormat()
        self._selected.setBackground(theme.color("selection"))
        self._selected.setForeground(theme.color("text"))
        self._palette = QPalette()
        self._palette.setColor(QPalette.ColorRole.Text, theme.color("text"))

    def draw(
        self, painter: QPainter, page: Page, selection: Selection, top: float, bottom: float
    ) -> None:
        """Draws what lies between ``top`` and ``bottom``; the painter is in page coordinates."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for item, boxes in page.visible(top, bottom):
            if item.view.divider:
                self._draw_divider(painter, page, item)
            if item.view.is_user:
                self._draw_bubble(painter, page, item)
            message = page.items.index(item) if not selection.is_empty else -1
            left = page.box_left(item)
            for box in boxes:
                place = QPointF(left, item.top + box.y)
                found = None
                if message >= 0:
                    found = selection.range_in(message, item.boxes.index(box))
                self._draw_box(painter, box, place, found)
            self._draw_footer(painter, page, item)

    def _draw_bubble(self, painter: QPainter, page: Page, item: MessageItem) -> None:
        right = page.left + page.column
        top = item.top + item.head_height
        height = item.height - item.head_height - item.footer_height
        rect = QRectF(right - item.bubble_width, top, item.bubble_width, height)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.theme.color("raised"))
        painter.drawRoundedRect(rect, 10.0, 10.0)

    def _draw_divider(self, painter: QPainter, page: Page, item: MessageItem) -> None:
        """Words in the middle of a line across the column."""
        rect = divider_rect(page, item)
        room = rect.width() - 4 * DIVIDER_GAP
        text = self.footer_metrics.elidedText(item.view.divider, Qt.TextElideMode.ElideMiddle, room)
        half = self.footer_metrics.horizontalAdvance(text) / 2.0 + DIVIDER_GAP
        middle = rect.center()
        side = rect.width() / 2.0 - half
        line = self.theme.color("strong_line")
        # On whole pixels: between two rows it would be twice as thick and half as strong.
        y = float(round(middle.y()))
        painter.fillRect(QRectF(rect.left(), y, side, 1.0), line)
        painter.fillRect(QRectF(middle.x() + half, y, side, 1.0), line)
        painter.setFont(self.footer_font)
        painter.setPen(self.theme.color("muted"))
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)

    def _draw_footer(self, painter: QPainter, page: Page, item: MessageItem) -> None:
        view = item.view
        if view.is_user or not view.footer:
            return
        painter.setFont(self.footer_font)
        painter.setPen(self.theme.color(view.tone))
        rect = footer_rect(page, item)
        text = self.footer_metrics.elidedText(
            view.footer, Qt.TextElideMode.ElideRight, rect.width()
        )
        painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, text)

    def _draw_box(
        self,
        painter: QPainter,
        box: BlockBox,
        place: QPointF,
        selected: tuple[int, int] | None,
    ) -> None:
        block = box.block
        for depth in range(block.quote):
            x = place.x() + depth * QUOTE
            bar = QRectF(x, place.y(), 3.0, box.height)
            painter.fillRect(bar, self.theme.color("strong_line"))
        if block.kind == RULE:
            painter.fillRect(QRectF(place.x(), place.y(), box.width, 1.0), self.theme.color("line"))
            return
        if block.kind == CODE:
            self._draw_code_frame(painter, box, place)
        if block.marker:
            self._draw_marker(painter, box, place)
        if box.document is None:
            return
        painter.save()
        painter.translate(place.x() + box.text_x, place.y() + box.text_y)
        box.document.documentLayout().draw(painter, self._context(box, selected))
        painter.restore()

    def _context(
        self, box: BlockBox, selected: tuple[int, int] | None
    ) -> QAbstractTextDocumentLayout.PaintContext:
        context = QAbstractTextDocumentLayout.PaintContext()
        context.palette = self._palette
        if selected is not None and box.document is not None:
            chosen = QAbstractTextDocumentLayout.Selection()
            chosen.cursor = cursor_for(box.document, *selected)
            chosen.format = self._selected
            context.selections = [chosen]
        return context

    def _draw_marker(self, painter: QPainter, box: BlockBox, place: QPointF) -> None:
        painter.setFont(self._marker_font)
        painter.setPen(self.theme.color("muted"))
        x = place.x() + box.block.quote * QUOTE + (box.block.indent - 1) * INDENT
        line = QFontMetricsF(self._marker_font).height()
        if box.document is not None:
            first = box.document.firstBlock().layout()
            if first.lineCount():
                line = first.lineAt(0).y() + first.lineAt(0).ascent()
                baseline = place.y() + box.text_y + line
                width = QFontMetricsF(self._marker_font).horizontalAdvance(box.block.marker)
                painter.drawText(QPointF(x + INDENT - 7.0 - width, baseline), box.block.marker)
                return
        painter.drawText(QPointF(x + 4.0, place.y() + line * 0.8), box.block.marker)

    def _draw_code_frame(self, painter: QPainter, box: BlockBox, place: QPointF) -> None:
        block = box.block
        rect = code_rect(box, place)
        path = QPainterPath()
        path.setFillRule(Qt.FillRule.WindingFill)
        path.addRoundedRect(rect, RADIUS, RADIUS)
        if not block.first:
            path.addRect(QRectF(rect.left(), rect.top(), rect.width(), RADIUS))
        if not block.last:
            path.addRect(QRectF(rect.left(), rect.bottom() - RADIUS, rect.width(), RADIUS))
        painter.fillPath(path.simplified(), self.theme.color("raised"))
        if not block.first:
            return
        painter.setFont(self._label_font)
        painter.setPen(self.theme.color("muted"))
        label = QRectF(rect.left() + CODE_PADDING, rect.top(), rect.width() - 60.0, CODE_HEADER)
        align = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft
        painter.drawText(label, align, block.language or "text")
        painter.drawPixmap(copy_rect(box, place).center() - QPointF(8.0, 8.0), self._copy)


def divider_rect(page: Page, item: MessageItem) -> QRectF:
    """The line above a message that has one."""
    return QRectF(page.left, item.top, page.column, item.head_height)


def footer_rect(page: Page, item: MessageItem) -> QRectF:
    """The line of figures and buttons below a message."""
    top = item.top + item.height - item.footer_height
    return QRectF(page.left, top, page.column, item.footer_height)


def code_rect(box: BlockBox, place: QPointF) -> QRectF:
    """The frame of a code segment whose box is at ``place``."""
    left = box.text_x - CODE_PADDING
    return QRectF(place.x() + left, place.y(), box.width - left, box.height)


def copy_rect(box: BlockBox, place: QPointF) -> QRectF:
    """The copy button in the frame of a fence's first segment."""
    frame = code_rect(box, place)
    return QRectF(frame.right() - 34.0, frame.top() + 2.0, 30.0, CODE_HEADER - 4.0)
