"""All conversations: open ones with their swatch, stored ones below."""

from __future__ import annotations

import time

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtCore import Signal as QtSignal
from PySide6.QtGui import QFontMetrics, QPainter
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLineEdit,
    QListView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app import theme as themes_module
from app.actions import Actions
from app.i18n import tr, tr_n
from app.models.conversations import ACTIVITY_ROLE, ROW_ROLE, ConversationListModel, Row
from app.session import Session
from app.theme import ThemeManager
from app.widgets.buttons import button_for
from app.widgets.swatch import SIDE, draw_activity, draw_swatch

ROW_HEIGHT = 34
MIN_WIDTH, MAX_WIDTH = 220, 280


class ConversationDelegate(QStyledItemDelegate):
    """Paints a row: swatch, title, activity or age."""

    def __init__(self, themes: ThemeManager, parent: QWidget) -> None:
        super().__init__(parent)
        self._themes = themes

    def sizeHint(
        self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> QSize:
        return QSize(0, ROW_HEIGHT)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        row = index.data(ROW_ROLE)
        if not isinstance(row, Row):
            return
        theme = self._themes.theme
        rect = QRectF(option.rect).adjusted(6, 1, -6, -1)
        state = option.state
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        if state & QStyle.StateFlag.State_Selected:
            painter.setBrush(theme.color("accent_soft"))
            painter.drawRoundedRect(rect, 6.0, 6.0)
        elif state & QStyle.StateFlag.State_MouseOver:
            painter.setBrush(theme.color("hover"))
            painter.drawRoundedRect(rect, 6.0, 6.0)
        middle = rect.center().y()
        left = rect.left() + 8.0
        if row.is_open:
            swatch = QRectF(left, middle - SIDE / 2.0, SIDE, SIDE)
            draw_swatch(painter, theme, swatch, row.number)
            center = QPointF(rect.right() - 12.0, middle)
            draw_activity(painter, theme, center, index.data(ACTIVITY_ROLE))
        self._draw_texts(painter, row, rect, left + SIDE + 9.0)
        painter.restore()

    def _draw_texts(self, painter: QPainter, row: Row, rect: QRectF, left: float) -> None:
        theme = self._themes.theme
        right = rect.right() - 24.0
        if not row.is_open:
            painter.setFont(themes_module.number_font(8.5))
            painter.setPen(theme.color("muted"))
            age = age_words(time.time() - row.updated_at)
            metrics = QFontMetrics(painter.font())
            right = rect.right() - metrics.horizontalAdvance(age) - 16.0
            align = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
            painter.drawText(rect.adjusted(0, 0, -8, 0), align, age)
        painter.setFont(themes_module.interface_font())
        painter.setPen(theme.color("text" if row.is_open else "muted"))
        metrics = QFontMetrics(painter.font())
        title = metrics.elidedText(row.title, Qt.TextElideMode.ElideRight, int(right - left))
        place = QRectF(left, rect.top(), right - left, rect.height())
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, title)


def age_words(seconds: float) -> str:
    """How long ago, in one unit."""
    if seconds < 3600:
        minutes = max(0, int(seconds // 60))
        return tr("{n} min", n=minutes) if minutes else tr("now")
    if seconds < 86400:
        return tr("{n} h", n=int(seconds // 3600))
    return tr_n("{n} day", "{n} days", int(seconds // 86400))


class SideBar(QWidget):
    """``conversation_chosen(conversation_id)``: clicked or chosen by keyboard."""

    conversation_chosen = QtSignal(str)
    rename_requested = QtSignal(str)
    close_requested = QtSignal(str)

    def __init__(
        self,
        session: Session,
        themes: ThemeManager,
        actions: Actions,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setMinimumWidth(MIN_WIDTH)
        self.setMaximumWidth(MAX_WIDTH)
        self.model = ConversationListModel(session)
        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Find by title"))
        self.search.setAccessibleName(tr("Find by title"))
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self.model.set_filter)
        self.list = QListView()
        self.list.setModel(self.model)
        self.list.setItemDelegate(ConversationDelegate(themes, self.list))
        self.list.setAccessibleName(tr("Conversations"))
        self.list.setUniformItemSizes(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setMouseTracking(True)
        self.list.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.list.customContextMenuRequested.connect(self._show_menu)
        self.list.clicked.connect(self._on_chosen)
        self.list.activated.connect(self._on_chosen)
        themes.changed.connect(self.list.viewport().update)
        self._lay_out(actions)
        self.model.reload()

    def _lay_out(self, actions: Actions) -> None:
        row = QHBoxLayout()
        row.setContentsMargins(8, 8, 8, 4)
        row.setSpacing(4)
        row.addWidget(self.search, 1)
        row.addWidget(button_for(actions["new_tab"]))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 4)
        column.setSpacing(0)
        column.addLayout(row)
        column.addWidget(self.list, 1)

    def set_current(self, conversation_id: str) -> None:
        """Marks the conversation in front."""
        self.list.setCurrentIndex(self.model.index_of(conversation_id))

    def _on_chosen(self, index: QModelIndex) -> None:
        row = self.model.row(index)
        if row is not None:
            self.conversation_chosen.emit(row.conversation_id)

    def _show_menu(self, point: QPoint) -> None:
        row = self.model.row(self.list.indexAt(point))
        if row is None:
            return
        chosen = row.conversation_id
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(tr("Open"), lambda: self.conversation_chosen.emit(chosen))
        if row.is_open:
            menu.addAction(tr("Rename"), lambda: self.rename_requested.emit(chosen))
            menu.addAction(tr("Close"), lambda: self.close_requested.emit(chosen))
        menu.popup(self.list.viewport().mapToGlobal(point))
