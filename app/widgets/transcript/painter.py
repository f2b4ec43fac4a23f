"""Paints messages and blocks in the colours of the theme."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QFont,
    QFontMetricsF,
    QPainter,
    QPainterPath,
    QPalette,
    QPen,
    QTextCharFormat,
    QTransform,
)

from app import assets
from app import theme as themes
from app.markdown_blocks import CODE, RULE, THOUGHT
from app.theme import Theme
from app.widgets.transcript.boxes import CODE_HEADER, CODE_PADDING, INDENT, QUOTE, BlockBox
from app.widgets.transcript.documents import DocumentFactory, zoomed
from app.widgets.transcript.finder import Mark
from app.widgets.transcript.lit import Lit
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.page import Page
from app.widgets.transcript.selection import Selection, cursor_for

RADIUS = 6.0
COPY_SIZE = 16
CHEVRON = 14
DIVIDER_GAP = 12.0
MARKER_GAP = 7.0


Look = tuple[tuple[int, int] | None, QTextCharFormat]
"""Characters of a document and how they are set off; None for none of them."""


class TranscriptPainter:
    """Draws a ``Page`` with a ``Selection``; one for each theme.

    ``marks``: gives what is found in a box.
    """

    def __init__(
        self,
        theme: Theme,
        zoom: float = 1.0,
        marks: Callable[[MessageItem, BlockBox], list[Mark]] = lambda _item, _box: [],
    ) -> None:
        self.theme = theme
        self.current: MessageItem | None = None
        self.marks = marks
        self._has_buttons = True
        self.footer_font = themes.number_font(8.5)
        self.footer_metrics = QFontMetricsF(self.footer_font)
        self._label_font = themes.interface_font()
        self._label_font.setPointSizeF(8.5)
        self._marker_font = zoomed(themes.body_font(), zoom)
        self._thought_font = zoomed(themes.interface_font(), zoom)
        muted = theme.colors["muted"]
        self._folded = assets.icon_pixmap("right", muted, CHEVRON, 2.0)
        self._unfolded = self._folded.transformed(QTransform().rotate(90.0))
        self._copy = assets.icon_pixmap("copy", theme.colors["muted"], COPY_SIZE, 2.0)
        self._lit = QTextCharFormat()
        self._lit.setBackground(theme.color("accent_soft"))
        self._lit.setForeground(theme.color("text"))
        self._selected = QTextCharFormat()
        self._selected.setBackground(theme.color("selection"))
        self._selected.setForeground(theme.color("text"))
        self._match = QTextCharFormat()
        self._match.setBackground(theme.color("match"))
        self._match.setForeground(theme.color("on_match"))
        self._current_match = QTextCharFormat()
        self._current_match.setBackground(theme.color("current_match"))
        self._current_match.setForeground(theme.color("on_current_match"))
        self._palette = QPalette()
        self._palette.setColor(QPalette.ColorRole.Text, theme.color("text"))

    def use_for_paper(self) -> None:
        """Without buttons, and with sizes that do not grow with the resolution of the paper."""
        self._has_buttons = False
        fonts = (self.footer_font, self._label_font, self._marker_font, self._thought_font)
        for font in fonts:
            in_pixels(font)
        self.footer_metrics = QFontMetricsF(self.footer_font)

    def draw(
        self,
        painter: QPainter,
        page: Page,
        selection: Selection,
        lit: Lit,
        top: float,
        bottom: float,
    ) -> None:
        """Draws what lies between ``top`` and ``bottom``; the painter is in page coordinates."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        # Icons are made for a scale of 2; at 1.25 and 1.5 they would be ragged.
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        for item, boxes in page.visible(top, bottom):
            if item.view.divider:
                self._draw_divider(painter, page, item)
            if item.view.is_user:
                self._draw_bubble(painter, page, item)
            bar = lit.bar(page, item)
            if bar is not None:
                painter.fillRect(bar, self.theme.color("accent"))
            left = page.box_left(item)
            for box in boxes:
                place = QPointF(left, item.top + box.y)
                if box.block.kind == THOUGHT:
                    self._draw_thought(painter, item, box, place)
                else:
                    looks = [(lit.range_in(item, box), self._lit)]
                    for mark in self.marks(item, box):
                        look = self._current_match if mark.is_current else self._match
                        looks.append(((mark.start, mark.end), look))
                    looks.append((selection.range_in(item, box), self._selected))
                    self._draw_box(painter, box, place, looks, page.factory)
            self._draw_footer(painter, page, item)
            if item is self.current:
                self._draw_ring(painter, page, item)

    def _draw_ring(self, painter: QPainter, page: Page, item: MessageItem) -> None:
        """Around the message that the keyboard has reached."""
        height = item.height - item.head_height
        around = QRectF(page.left, item.top + item.head_height, page.column, height)
        painter.setPen(QPen(self.theme.color("accent"), 1.5))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(around.adjusted(-8.0, -3.0, 8.0, 3.0), RADIUS, RADIUS)

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
        looks: list[Look],
        factory: DocumentFactory,
    ) -> None:
        block = box.block
        for depth in range(box.quote):
            x = place.x() + depth * QUOTE
            if box.is_right_to_left:
                x = place.x() + box.width - 3.0 - depth * QUOTE
            # It goes through from one block of the quote to the next.
            above = box.before is not None and box.before.quote > depth
            gap = box.gap if above else 0.0
            bar = QRectF(x, place.y() - gap, 3.0, box.height + gap)
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
        box.document.documentLayout().draw(painter, self._context(box, looks))
        factory.draw_over(painter)
        painter.restore()

    def _draw_thought(
        self, painter: QPainter, item: MessageItem, box: BlockBox, place: QPointF
    ) -> None:
        """A quiet line that says that there is reasoning; a button lies over it."""
        thought = box.block.level
        icon = self._folded if item.thoughts.is_folded(thought) else self._unfolded
        middle = place.y() + box.height / 2.0
        painter.drawPixmap(QPointF(place.x(), middle - CHEVRON / 2.0), icon)
        painter.setFont(self._thought_font)
        painter.setPen(self.theme.color("muted"))
        rect = QRectF(place.x() + 20.0, place.y(), box.width - 20.0, box.height)
        words = item.thoughts.words(thought, item.view.thought_s)
        painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, words)

    def _context(
        self, box: BlockBox, looks: list[Look]
    ) -> QAbstractTextDocumentLayout.PaintContext:
        context = QAbstractTextDocumentLayout.PaintContext()
        context.palette = self._palette
        selections = []
        for place, look in looks:
            if place is not None and box.document is not None:
                chosen = QAbstractTextDocumentLayout.Selection()
                chosen.cursor = cursor_for(box.document, *place)
                chosen.format = look
                selections.append(chosen)
        context.selections = selections
        return context

    def _draw_marker(self, painter: QPainter, box: BlockBox, place: QPointF) -> None:
        painter.setFont(self._marker_font)
        painter.setPen(self.theme.color("muted"))
        inset = box.inset - INDENT
        x = place.x() + (box.width - box.inset if box.is_right_to_left else inset)
        line = QFontMetricsF(self._marker_font).height()
        if box.document is not None:
            first = box.document.firstBlock().layout()
            if first.lineCount():
                line = first.lineAt(0).y() + first.lineAt(0).ascent()
                baseline = place.y() + box.text_y + line
                width = QFontMetricsF(self._marker_font).horizontalAdvance(box.block.marker)
                if box.is_right_to_left:
                    painter.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
                gap = MARKER_GAP if box.is_right_to_left else INDENT - MARKER_GAP - width
                painter.drawText(QPointF(x + gap, baseline), box.block.marker)
                painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
                return
        painter.drawText(QPointF(x + 4.0, place.y() + line * 0.8), box.block.marker)

    def _draw_code_frame(self, painter: QPainter, box: BlockBox, place: QPointF) -> None:
        block = box.block
        rect = code_rect(box, place)
        if not block.last:
            # Between two pixels a seam would be seen.
            rect.adjust(0.0, 0.0, 0.0, 1.0)
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
        if self._has_buttons:
            painter.drawPixmap(copy_rect(box, place).center() - QPointF(8.0, 8.0), self._copy)


def in_pixels(font: QFont) -> QFont:
    """``font`` as large as it is on the screen, in pixels."""
    font.setPixelSize(round(font.pointSizeF() * QFontMetricsF(font).fontDpi() / 72.0))
    return font


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
