"""How the side bar's list paints conversations and headings, and edits a title in place."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import (
    QAbstractItemModel,
    QEvent,
    QModelIndex,
    QPersistentModelIndex,
    QPointF,
    QRect,
    QRectF,
    QSize,
    Qt,
)
from PySide6.QtGui import QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QLineEdit, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app import theme as themes_module
from app.i18n import tr
from app.models import groups
from app.models.conversations import ACTIVITY_ROLE, ROW_ROLE, Row
from app.models.groups import Group, group_title
from app.theme import ThemeManager
from app.widgets.ages import short_age_words
from app.widgets.rows import paint_row
from app.widgets.swatch import SIDE, Activity, draw_activity, draw_swatch

ROW_HEIGHT = 34
_LEFT = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft
_RIGHT = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
_CHEVRON = 14
Index = QModelIndex | QPersistentModelIndex


class ConversationDelegate(QStyledItemDelegate):
    """Paints a conversation with swatch, title, activity or age; a heading with its count."""

    def __init__(self, themes: ThemeManager, parent: QWidget, drop_row: Callable[[], int]) -> None:
        """``drop_row``: tells the row that a drag is over, or −1."""
        super().__init__(parent)
        self._themes = themes
        self._drop_row = drop_row

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(0, themes_module.row_height(ROW_HEIGHT))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        entry = index.data(ROW_ROLE)
        painter.save()
        is_target = index.row() == self._drop_row()
        rect = paint_row(painter, self._themes.theme, option, is_framed=is_target)
        if isinstance(entry, Row):
            self._draw_conversation(painter, entry, rect, index)
        elif isinstance(entry, Group):
            self._draw_heading(painter, entry, rect)
        painter.restore()

    def _draw_conversation(self, painter: QPainter, row: Row, rect: QRectF, index: Index) -> None:
        theme = self._themes.theme
        middle = rect.center().y()
        left = rect.left() + 8.0
        right = rect.right() - (24.0 if row.is_open else 8.0)
        if row.is_open:
            swatch = QRectF(left, middle - SIDE / 2.0, SIDE, SIDE)
            draw_swatch(painter, theme, swatch, row.number)
            center = QPointF(rect.right() - 12.0, middle)
            # Qt hands a plain text back.
            activity = Activity(index.data(ACTIVITY_ROLE))
            draw_activity(painter, theme, center, activity)
        elif not groups.tells_age(row.group):
            painter.setFont(themes_module.number_font(8.5))
            painter.setPen(theme.color("muted"))
            age = short_age_words(time.time() - row.updated_at)
            right = rect.right() - QFontMetrics(painter.font()).horizontalAdvance(age) - 16.0
            painter.drawText(rect.adjusted(0, 0, -8, 0), _RIGHT, age)
        left += SIDE + 9.0
        painter.setFont(themes_module.interface_font())
        is_quiet = row.group in (groups.ARCHIVED, groups.DELETED)
        painter.setPen(theme.color("muted" if is_quiet else "text"))
        metrics = QFontMetrics(painter.font())
        title = metrics.elidedText(row.title, Qt.TextElideMode.ElideRight, int(right - left))
        painter.drawText(QRectF(left, rect.top(), right - left, rect.height()), _LEFT, title)

    def _draw_heading(self, painter: QPainter, group: Group, rect: QRectF) -> None:
        theme = self._themes.theme
        icon = theme.icon("right_small" if group.is_collapsed else "chevron", "muted")
        middle = rect.center().y()
        icon.paint(
            painter, QRect(int(rect.left()) + 9, int(middle - _CHEVRON / 2), _CHEVRON, _CHEVRON)
        )
        painter.setPen(theme.color("muted"))
        painter.setFont(themes_module.number_font(8.5))
        count = f"{group.count:,}"
        right = rect.right() - QFontMetrics(painter.font()).horizontalAdvance(count) - 16.0
        painter.drawText(rect.adjusted(0, 0, -8, 0), _RIGHT, count)
        painter.setFont(_heading_font())
        left = rect.left() + 8.0 + SIDE + 9.0
        metrics = QFontMetrics(painter.font())
        text = group_title(group.key)
        title = metrics.elidedText(text, Qt.TextElideMode.ElideRight, int(right - left))
        painter.drawText(QRectF(left, rect.top(), right - left, rect.height()), _LEFT, title)

    # --- editing ---

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setObjectName("row_editor")
        editor.setAccessibleName(
            tr("Conversation title") if isinstance(index.data(ROW_ROLE), Row) else tr("Folder name")
        )
        return editor

    def setEditorData(self, editor: QWidget, index: Index) -> None:
        if isinstance(editor, QLineEdit):
            editor.setText(str(index.data(Qt.ItemDataRole.EditRole)))
            editor.selectAll()

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        if isinstance(editor, QLineEdit):
            model.setData(index, editor.text())

    def updateEditorGeometry(
        self, editor: QWidget, option: QStyleOptionViewItem, index: Index
    ) -> None:
        editor.setGeometry(option.rect.adjusted(6 + 8 + SIDE, 2, -8, -2))

    def eventFilter(self, editor: QWidget, event: QEvent) -> bool:  # type: ignore[override]
        # Esc would otherwise be the window's Stop.
        if event.type() == QEvent.Type.ShortcutOverride:
            event.accept()
            return True
        return super().eventFilter(editor, event)


def _heading_font() -> QFont:
    font = themes_module.number_font(9.0)
    font.setWeight(QFont.Weight.DemiBold)
    return font
