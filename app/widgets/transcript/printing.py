"""A conversation on paper or as a PDF, in light colours; the window is never held up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from PySide6.QtCore import QMarginsF, QRectF, Qt
from PySide6.QtGui import (
    QFontMetricsF,
    QPagedPaintDevice,
    QPageLayout,
    QPageSize,
    QPainter,
    QTextDocument,
    QTextTable,
)

from app.i18n import tr
from app.markdown_blocks import TABLE
from app.theme import LIGHT, body_font, load_theme
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.documents import DocumentFactory, zoomed
from app.widgets.transcript.formulas import Formulas
from app.widgets.transcript.lit import Lit
from app.widgets.transcript.message import MessageItem, MessageView
from app.widgets.transcript.page import MAX_COLUMN, Page
from app.widgets.transcript.painter import TranscriptPainter, in_pixels
from app.widgets.transcript.selection import Selection

MARGIN_MM = 18.0
_HEAD, _FOOT = 40.0, 28.0
_LAYOUT, _PAINTING = 0.3, 0.7
"""How much is done when everything is parsed, and when everything is laid out."""


def paper(page_size: QPageSize.PageSizeId = QPageSize.PageSizeId.A4) -> QPageLayout:
    """Upright paper with margins."""
    margins = QMarginsF(MARGIN_MM, MARGIN_MM, MARGIN_MM, MARGIN_MM)
    return QPageLayout(
        QPageSize(page_size), QPageLayout.Orientation.Portrait, margins, QPageLayout.Unit.Millimeter
    )


class Printout:
    """Lays a conversation out for paper and paints it page by page.

    ``items``: what is printed, folded as it is on the screen. The column is as wide as on the
    screen, made smaller to fit the paper, so that what is printed looks as it was seen.
    """

    def __init__(self, items: Sequence[MessageItem], title: str) -> None:
        self._title = title
        self._theme = load_theme(LIGHT)
        self._formulas = Formulas()
        self._page = Page(DocumentFactory(self._theme, self._formulas))
        self._page.column = float(MAX_COLUMN)
        self._page.left = 0.0
        for item in items:
            self._page.items.append(_copy(item))
        self._page.reestimate()
        self._painter = TranscriptPainter(self._theme)
        self._painter.use_for_paper()
        self._lines: list[float] = []

    def run(self, device: QPagedPaintDevice) -> Iterator[float]:
        """Paints everything; gives how much is done, 0 to 1, after every little piece. The same
        number again: it waits for formulas that are drawn on a thread.
        """
        yield from self._parse()
        yield from self._lay_out()
        painter = QPainter(device)
        try:
            sheet = QRectF(device.pageLayout().paintRectPixels(device.logicalDpiX()))
            scale = sheet.width() / self._page.column
            painter.scale(scale, scale)
            height = sheet.height() / scale - _FOOT
            tops = self._breaks(height)
            for number, top in enumerate(tops):
                if number:
                    device.newPage()
                bottom = tops[number + 1] if number + 1 < len(tops) else self._page.height
                self._paint(painter, number, top, bottom)
                self._paint_foot(painter, number + 1, len(tops), height)
                yield _PAINTING + (1.0 - _PAINTING) * (number + 1) / len(tops)
        finally:
            painter.end()

    # --- layout ---

    def _parse(self) -> Iterator[float]:
        """Makes all boxes and waits for the pictures of their formulas."""
        page = self._page
        for number, item in enumerate(page.items):
            item.sync(page.column, page.factory)
            for section in item.sections:
                if not section.is_folded:
                    item.parse(section.index, page.column, page.factory)
                    for box in section.boxes:
                        for formula in box.block.formulas:
                            self._formulas.picture(formula)
                yield _LAYOUT * number / len(page.items)
        while self._formulas.is_busy:
            yield _LAYOUT

    def _lay_out(self) -> Iterator[float]:
        """Takes all heights, and notes where the page may be cut. Documents are not kept."""
        page = self._page
        found: list[tuple[MessageItem, float]] = []
        for number, item in enumerate(page.items):
            width = item.content_width(page.column)
            for section in item.sections:
                for box in [] if section.is_folded else section.boxes:
                    box.lay_out(width, page.factory)
                    yield _LAYOUT + (_PAINTING - _LAYOUT) * (number + _part(box)) / len(page.items)
                section.place()
            item.lay_out(page.column, 0.0, 0.0, page.factory)
            found.append((item, 0.0))
            for section in item.sections:
                for box in [] if section.is_folded else section.boxes:
                    found.extend((item, y) for y in _line_tops(box))
            item.drop_documents(is_exact=True)
        page.place()
        self._lines = sorted(item.top + y for item, y in found)

    def _breaks(self, height: float) -> list[float]:
        """Where each sheet begins: between two lines, and never right below a header."""
        tops, at = [0.0], 0
        room = height - _HEAD
        while tops[-1] + room < self._page.height:
            limit, best = tops[-1] + room, 0.0
            while at < len(self._lines) and self._lines[at] <= limit:
                best = self._lines[at]
                at += 1
            tops.append(best if best > tops[-1] else limit)
            room = height
        return tops

    # --- painting ---

    def _paint(self, painter: QPainter, number: int, top: float, bottom: float) -> None:
        page = self._page
        page.lay_out(top, bottom)
        painter.save()
        if number == 0:
            # The title stands above the first message.
            self._paint_title(painter)
            painter.translate(0.0, _HEAD)
        painter.setClipRect(QRectF(0.0, 0.0, page.column, bottom - top))
        painter.translate(0.0, -top)
        self._painter.draw(painter, page, Selection(page), Lit(), top, bottom)
        painter.restore()
        page.release(bottom, bottom)

    def _paint_title(self, painter: QPainter) -> None:
        font = in_pixels(zoomed(body_font(), 1.5))
        font.setBold(True)
        painter.setFont(font)
        painter.setPen(self._theme.color("text"))
        rect = QRectF(0.0, 0.0, self._page.column, _HEAD - 8.0)
        shown = QFontMetricsF(font).elidedText(
            self._title, Qt.TextElideMode.ElideRight, rect.width()
        )
        painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, shown)

    def _paint_foot(self, painter: QPainter, number: int, count: int, height: float) -> None:
        painter.setFont(self._painter.footer_font)
        painter.setPen(self._theme.color("muted"))
        rect = QRectF(0.0, height, self._page.column, _FOOT)
        align = Qt.AlignmentFlag.AlignBottom
        words = tr("Page {n} of {total}", n=number, total=count)
        painter.drawText(rect, align | Qt.AlignmentFlag.AlignRight, words)
        room = rect.width() * 0.75
        shown = self._painter.footer_metrics.elidedText(
            self._title, Qt.TextElideMode.ElideRight, room
        )
        painter.drawText(rect, align | Qt.AlignmentFlag.AlignLeft, shown)


def _copy(item: MessageItem) -> MessageItem:
    """The same message, closed and with its folds, to be laid out for paper."""
    view = item.view
    made = MessageItem(
        MessageView(
            view.message_id,
            view.is_user,
            item.text,
            view.footer,
            view.tone,
            divider=view.divider,
            thought_s=view.thought_s,
        )
    )
    made.thoughts.folds = dict(item.thoughts.folds)
    return made


def _part(box: BlockBox) -> float:
    """How much of a message is above a box: never the same for two, and less than all."""
    return 1.0 - 1.0 / (2.0 + box.section.index + box.index / (box.index + 1.0))


def _line_tops(box: BlockBox) -> Iterator[float]:
    """Tops of the lines of a box, from the top of its message; the first line of code stays with
    the header above it.
    """
    yield box.y - box.gap / 2.0
    document = box.document
    if document is None:
        return
    layout = document.documentLayout()
    if box.block.kind == TABLE:
        yield from _row_tops(box, document)
        return
    block = document.begin().next() if box.text_y else document.begin()
    while block.isValid():
        rect, lines = layout.blockBoundingRect(block), block.layout()
        for index in range(lines.lineCount()):
            yield box.y + box.text_y + rect.y() + lines.lineAt(index).y()
        block = block.next()


def _row_tops(box: BlockBox, document: QTextDocument) -> Iterator[float]:
    """Tops of the rows of a table but the first, which stays with the one below it."""
    layout = document.documentLayout()
    for table in document.rootFrame().childFrames():
        if not isinstance(table, QTextTable):
            continue
        padding = table.format().toTableFormat().cellPadding()
        for row in range(2, table.rows()):
            cells = (table.cellAt(row, column) for column in range(table.columns()))
            blocks = (cell.firstCursorPosition().block() for cell in cells)
            top = min(layout.blockBoundingRect(block).y() for block in blocks)
            yield box.y + box.text_y + top - padding
