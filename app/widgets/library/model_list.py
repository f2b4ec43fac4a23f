"""The list of the model library: each model with what matters before it is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from PySide6.QtCore import QObject, QRectF, Qt
from PySide6.QtGui import QPainter

from app import theme as themes_module
from app.i18n import tr
from app.library.entry import ModelEntry
from app.library.status import Standing, standing_of
from app.session import Session
from app.settings import Settings
from app.theme import Theme
from app.widgets.buttons import plain_tip
from app.widgets.library.words import about_words, row_words, standing_words
from app.widgets.row_list import RowDelegate, RowListModel, paint_two_lines
from app.widgets.words import SEPARATOR

_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_BAD = (Standing.UNREADABLE, Standing.FAILED, Standing.GONE)


class Order(StrEnum):
    NAME = "name"
    SIZE = "size"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model and how it stands. ``words``: of its standing, for the row's right end; ``about``:
    what it is, below its name; ``spoken``: the whole row. ``fraction``: of loading it.
    """

    entry: ModelEntry
    standing: Standing
    words: str
    is_default: bool
    about: str
    spoken: str
    fraction: float = 0.0


class ModelListModel(RowListModel[ModelRow]):
    """One row a model that matches ``query``, in ``order``; the loaded one is where it belongs."""

    def __init__(self, session: Session, settings: Settings, parent: QObject) -> None:
        super().__init__(parent)
        self._session = session
        self._settings = settings
        self.query = ""
        self.order = Order.NAME

    def reload(self) -> bool:
        """Reads the library anew. True if rows came, went or moved."""
        words = self.query.lower().split()
        entries = [e for e in self._session.library.entries() if e.matches(words)]
        entries.sort(key=_KEYS[self.order])
        names = Counter(entry.name for entry in entries)
        return self.set_rows([self._row(entry, names[entry.name] > 1) for entry in entries])

    def key(self, row: ModelRow) -> str:
        return row.entry.path

    def shown(self, row: ModelRow, role: int) -> str | None:
        if role == Qt.ItemDataRole.DisplayRole:
            return row.entry.name
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tip(row.entry.path)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return row.spoken
        return None

    def _row(self, entry: ModelEntry, shares_name: bool) -> ModelRow:
        session, state = self._session, self._session.model_state
        load_path = session.library.load_path(entry.path)
        standing = standing_of(entry, load_path, state, session.load_errors.get(load_path))
        words = standing_words(standing, state)
        is_default = self._settings.values.model_path == load_path
        about = about_words(entry, shares_name)
        spoken = row_words(entry, words, is_default, about)
        fraction = state.progress if standing is Standing.LOADING else 0.0
        return ModelRow(entry, standing, words, is_default, about, spoken, fraction)


_KEYS: dict[Order, Callable[[ModelEntry], Any]] = {
    Order.NAME: lambda entry: (entry.name.lower(), entry.path),
    Order.SIZE: lambda entry: (entry.identity.file_bytes, entry.name.lower(), entry.path),
    Order.NEWEST: lambda entry: (-entry.identity.modified_ns, entry.name.lower(), entry.path),
}


class ModelDelegate(RowDelegate[ModelRow]):
    """Name and standing; below them what the model is."""

    def paint_content(self, painter: QPainter, theme: Theme, rect: QRectF, row: ModelRow) -> None:
        painter.setFont(themes_module.number_font(8.5))
        default = tr("default") if row.is_default else ""
        words = SEPARATOR.join(part for part in (default, row.words) if part)
        width = painter.fontMetrics().horizontalAdvance(words) + 8.0
        painter.setPen(theme.color(_token(row.standing)))
        upper = QRectF(rect.left(), rect.top(), rect.width(), rect.height() / 2.0)
        painter.drawText(upper, _RIGHT, words)
        paint_two_lines(painter, theme, rect, (row.entry.name, row.about), room_at_right=width)
        if row.fraction:
            _draw_progress(painter, theme, rect, row.fraction)


def _token(standing: Standing) -> str:
    """The colour of the words at the right."""
    if standing in _BAD:
        return "error"
    if standing is Standing.TOO_LARGE:
        return "warning"
    if standing in (Standing.LOADED, Standing.LOADING, Standing.NEXT):
        return "accent"
    return "muted"


def _draw_progress(painter: QPainter, theme: Theme, rect: QRectF, fraction: float) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme.color("accent"))
    painter.drawRect(QRectF(rect.left(), rect.bottom() + 1.0, rect.width() * fraction, 2.0))
