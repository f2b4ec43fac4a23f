"""The list of the prompt library: names, the default, and who begins with each."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QObject, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter

from app.conversation import Conversation
from app.i18n import tr
from app.session import Session
from app.store_prompts import SystemPrompt
from app.theme import Theme
from app.widgets.buttons import plain_tip
from app.widgets.row_list import RowDelegate, RowListModel, paint_two_lines
from app.widgets.swatch_row import draw_row, row_width, sharing_words

_LIMIT = 4


# Conversations change in place: no row is the same as one before.
@dataclass(frozen=True, slots=True, eq=False)
class PromptRow:
    """A prompt, whether new tabs begin with it, and the open conversations that do."""

    prompt: SystemPrompt
    is_default: bool
    sharers: tuple[Conversation, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(c.number for c in self.sharers)


class PromptListModel(RowListModel[PromptRow]):
    """One row a prompt, by name."""

    def __init__(self, session: Session, parent: QObject) -> None:
        super().__init__(parent)
        self._session = session

    def reload(self) -> None:
        """Reads the library anew."""
        prompts = self._session.prompts
        default = prompts.default
        rows = [PromptRow(p, p == default, tuple(prompts.sharers(p.text))) for p in prompts.all()]
        self.set_rows(rows)

    def key(self, row: PromptRow) -> str:
        return row.prompt.prompt_id

    def shown(self, row: PromptRow, role: int) -> str | None:
        if role == Qt.ItemDataRole.DisplayRole:
            return row.prompt.name
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tip(row.prompt.name)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            parts = [row.prompt.name, tr("default") if row.is_default else ""]
            parts.append(sharing_words(row.sharers) if row.sharers else "")
            return ", ".join(part for part in parts if part)
        return None


class PromptDelegate(RowDelegate[PromptRow]):
    """Name and swatches; below them how the prompt begins, or that it is the default."""

    HEIGHT = 44

    def paint_content(self, painter: QPainter, theme: Theme, rect: QRectF, row: PromptRow) -> None:
        width = row_width(len(row.numbers), _LIMIT)
        place = QPointF(rect.right() - width, rect.top() + rect.height() / 4.0)
        draw_row(painter, theme, place, row.numbers, _LIMIT)
        beginning = " ".join(row.prompt.text[:120].split())
        if row.is_default:
            beginning = f"{tr('Default')} · {beginning}"
        lines = (row.prompt.name, beginning)
        paint_two_lines(painter, theme, rect, lines, room_at_right=width + 8.0)
