"""What a search found in the messages: a heading, and the hits with the words set off."""

from __future__ import annotations

import time

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRectF, QSize, Qt
from PySide6.QtCore import Signal as QtSignal
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QTextCharFormat, QTextLayout, QTextOption
from PySide6.QtWidgets import (
    QLabel,
    QListView,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app import theme as themes_module
from app.i18n import tr, tr_n
from app.models.search_hits import HIT_ROLE, SearchHitModel
from app.store_search import MAX_HITS, SearchHit, SearchResult
from app.theme import ThemeManager
from app.widgets.ages import age_words
from app.widgets.rows import paint_row
from app.widgets.words import shown_title

_LINES = 2
_PAD = 6.0


class HitDelegate(QStyledItemDelegate):
    """Paints a hit: title and age, below them two lines of the message."""

    def __init__(self, themes: ThemeManager, parent: QWidget) -> None:
        super().__init__(parent)
        self._themes = themes

    def sizeHint(
        self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> QSize:
        title = QFontMetrics(_title_font()).height()
        line = QFontMetrics(themes_module.interface_font()).lineSpacing()
        return QSize(0, round(title + _LINES * line + 2 * _PAD + 4))

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        hit = index.data(HIT_ROLE)
        if not isinstance(hit, SearchHit):
            return
        painter.save()
        rect = paint_row(painter, self._themes.theme, option)
        inner = rect.adjusted(8.0, _PAD, -8.0, -_PAD)
        top = inner.top() + self._draw_heading(painter, hit, inner)
        self._draw_snippet(painter, hit, inner.adjusted(0, top - inner.top(), 0, 0))
        painter.restore()

    def _draw_heading(self, painter: QPainter, hit: SearchHit, rect: QRectF) -> float:
        """Returns its height."""
        theme = self._themes.theme
        painter.setFont(themes_module.number_font(8.5))
        painter.setPen(theme.color("muted"))
        age = age_words(time.time() - hit.created_at)
        room = rect.width() - QFontMetrics(painter.font()).horizontalAdvance(age) - 8.0
        painter.setFont(_title_font())
        metrics = QFontMetrics(painter.font())
        height = float(metrics.height())
        line = QRectF(rect.left(), rect.top(), rect.width(), height)
        title = metrics.elidedText(
            shown_title(hit.title), Qt.TextElideMode.ElideRight, max(0, int(room))
        )
        painter.setPen(theme.color("text"))
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, title)
        painter.setFont(themes_module.number_font(8.5))
        painter.setPen(theme.color("muted"))
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, age)
        return height + 2.0

    def _draw_snippet(self, painter: QPainter, hit: SearchHit, rect: QRectF) -> None:
        theme = self._themes.theme
        text = fitting_text(hit.snippet, rect.width())
        formats = []
        for start, end in hit.marks:
            marked = QTextLayout.FormatRange()
            # Qt counts UTF-16 units.
            marked.start = len(_units(text[:start])) // 2
            marked.length = len(_units(text[start:end])) // 2
            marked.format = QTextCharFormat()
            marked.format.setForeground(theme.color("text"))
            marked.format.setBackground(theme.color("selection"))
            formats.append(marked)
        layout, _next = _laid_out(text, rect.width(), formats)
        painter.setPen(theme.color("muted"))
        layout.draw(painter, rect.topLeft())


def fitting_text(snippet: str, width: float) -> str:
    """As much of it as two lines take, with an ellipsis where it is cut."""
    layout, following = _laid_out(snippet, width, [])
    units = _units(snippet)
    if following * 2 >= len(units):
        return snippet
    last = layout.lineAt(layout.lineCount() - 1).textStart()
    head = units[: last * 2].decode("utf-16-le")
    rest = units[last * 2 :].decode("utf-16-le")
    metrics = QFontMetrics(themes_module.interface_font())
    return head + metrics.elidedText(rest, Qt.TextElideMode.ElideRight, int(width))


def _laid_out(
    text: str, width: float, formats: list[QTextLayout.FormatRange]
) -> tuple[QTextLayout, int]:
    """The first lines, and where the next would begin, in UTF-16 units."""
    layout = QTextLayout(text, themes_module.interface_font())
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    layout.setTextOption(option)
    layout.setFormats(formats)
    layout.beginLayout()
    y, following = 0.0, 0
    for _ in range(_LINES):
        line = layout.createLine()
        if not line.isValid():
            break
        line.setLineWidth(width)
        line.setPosition(QPointF(0.0, y))
        y += line.height()
        following = line.textStart() + line.textLength()
    layout.endLayout()
    return layout, following


class SearchResults(QWidget):
    """``hit_chosen(conversation_id, message_id)``: clicked or chosen by keyboard."""

    hit_chosen = QtSignal(str, str)

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = SearchHitModel()
        self.heading = QLabel()
        self.heading.setTextFormat(Qt.TextFormat.PlainText)
        self.heading.setProperty("tone", "muted")
        self.heading.setWordWrap(True)
        self.heading.setContentsMargins(14, 8, 14, 4)
        self.list = QListView()
        self.list.setModel(self.model)
        self.list.setItemDelegate(HitDelegate(themes, self.list))
        self.list.setAccessibleName(tr("Messages found"))
        self.list.setUniformItemSizes(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setMouseTracking(True)
        self.list.clicked.connect(self._on_list_chosen)
        self.list.activated.connect(self._on_list_chosen)
        themes.changed.connect(self.list.viewport().update)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.heading)
        column.addWidget(self.list, 1)

    def show_result(self, result: SearchResult) -> None:
        """Shows what was found."""
        self.model.set_hits(result.hits)
        self.heading.setText(result_words(result))

    def choose_first(self) -> bool:
        """Opens the first hit. False if there is none."""
        hit = self.model.hit(self.model.index(0)) if self.model.rowCount() else None
        if hit is None:
            return False
        self.list.setCurrentIndex(self.model.index(0))
        self.hit_chosen.emit(hit.conversation_id, hit.message_id)
        return True

    def _on_list_chosen(self, index: QModelIndex) -> None:
        hit = self.model.hit(index)
        if hit is not None:
            self.hit_chosen.emit(hit.conversation_id, hit.message_id)


def result_words(result: SearchResult) -> str:
    """The line above the hits."""
    if result.error:
        return tr("The messages cannot be searched: {error}", error=result.error)
    count = len(result.hits)
    if count >= MAX_HITS:
        words = tr("The newest {n} messages", n=count)
    elif count:
        words = tr_n("{n} message", "{n} messages", count)
    else:
        words = tr("No message says this.")
    if not result.is_complete and count < MAX_HITS:
        words += " " + tr("Some older messages were not searched.")
    return words


def _title_font() -> QFont:
    font = themes_module.interface_font()
    font.setWeight(QFont.Weight.DemiBold)
    return font


def _units(text: str) -> bytes:
    return text.encode("utf-16-le")
