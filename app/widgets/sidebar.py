"""All conversations: open ones with their swatch, stored ones below; and the search in them."""

from __future__ import annotations

import time
from functools import partial

from PySide6.QtCore import (
    QEvent,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QPointF,
    QRectF,
    QSize,
    Qt,
)
from PySide6.QtCore import Signal as QtSignal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter
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
from app.conversation import storable
from app.i18n import tr
from app.models.conversations import ACTIVITY_ROLE, ROW_ROLE, ConversationListModel, Row
from app.session import Session
from app.store_search import SearchResult
from app.theme import ThemeManager
from app.widgets.ages import age_words
from app.widgets.buttons import button_for
from app.widgets.search_results import SearchResults
from app.widgets.swatch import SIDE, draw_activity, draw_swatch

ROW_HEIGHT = 34
MIN_WIDTH, MAX_WIDTH = 220, 280
_MAX_TITLES = 5
_NO_LIMIT = 16_777_215
"""Qt's own greatest height."""


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


class SearchField(QLineEdit):
    """Escape empties it before it means anything else; Down goes on to what was found."""

    left_downwards = QtSignal()

    def event(self, event: QEvent) -> bool:
        if (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.ShortcutOverride
            and event.key() == Qt.Key.Key_Escape
            and self.text()
        ):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        elif event.key() == Qt.Key.Key_Down:
            self.left_downwards.emit()
        else:
            super().keyPressEvent(event)


class SideBar(QWidget):
    """Conversations, and while something is searched for those with it in their title and below
    them the messages that say it.

    Signals:
        conversation_chosen(conversation_id): clicked or chosen by keyboard.
        hit_chosen(conversation_id, message_id)
        rename_requested(conversation_id), close_requested(conversation_id)
        export_requested(conversation_id, format): ``markdown`` or ``json``.
    """

    conversation_chosen = QtSignal(str)
    hit_chosen = QtSignal(str, str)
    export_requested = QtSignal(str, str)
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
        self._session = session
        self.search = SearchField()
        self.search.setPlaceholderText(tr("Find in titles and messages"))
        self.search.setAccessibleName(tr("Find in titles and messages"))
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self._on_search_text_changed)
        self.search.returnPressed.connect(self._on_search_return_pressed)
        self.search.left_downwards.connect(self._on_search_left_downwards)
        self.results = SearchResults(themes)
        self.results.hit_chosen.connect(self.hit_chosen)
        self.results.hide()
        session.search_finished.connect(self._on_session_search_finished)
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
        self.model.modelReset.connect(self._fit_list)
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
        column.addWidget(self.results, 3)

    def start_search(self) -> None:
        """Puts the keyboard into the search field."""
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def set_current(self, conversation_id: str) -> None:
        """Marks the conversation in front."""
        self.list.setCurrentIndex(self.model.index_of(conversation_id))

    def _on_chosen(self, index: QModelIndex) -> None:
        row = self.model.row(index)
        if row is not None:
            self.conversation_chosen.emit(row.conversation_id)

    # --- searching ---

    def _on_search_text_changed(self, text: str) -> None:
        self.model.set_filter(text)
        if text.strip():
            self._session.search(text)
        else:
            self.results.hide()
        self._fit_list()

    def _on_session_search_finished(self, result: SearchResult) -> None:
        # The field may have been emptied or changed since.
        if result.query == storable(self.search.text()) and result.query.strip():
            self.results.show_result(result)
            self.results.show()
            self._fit_list()

    def _fit_list(self) -> None:
        """While results are shown the titles take the room of a few rows, or of none."""
        rows = self.model.rowCount()
        is_searching = not self.results.isHidden()
        self.list.setVisible(not is_searching or rows > 0)
        height = min(rows, _MAX_TITLES) * ROW_HEIGHT + 2
        self.list.setMaximumHeight(height if is_searching else _NO_LIMIT)
        self.list.setMinimumHeight(height if is_searching else 0)

    def _on_search_return_pressed(self) -> None:
        if not self.search.text().strip() or self.results.choose_first():
            return
        row = self.model.row(self.model.index(0)) if self.model.rowCount() else None
        if row is not None:
            self.conversation_chosen.emit(row.conversation_id)

    def _on_search_left_downwards(self) -> None:
        has_hits = not self.results.isHidden() and self.results.model.rowCount() > 0
        view, model = (
            (self.list, self.model)
            if not has_hits
            else (
                self.results.list,
                self.results.model,
            )
        )
        if model.rowCount():
            if not view.currentIndex().isValid() or has_hits:
                view.setCurrentIndex(model.index(0))
            view.setFocus(Qt.FocusReason.TabFocusReason)

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
        menu.addSeparator()
        for text, form in (
            (tr("Export as Markdown…"), "markdown"),
            (tr("Export as JSON…"), "json"),
        ):
            menu.addAction(text, partial(self.export_requested.emit, chosen, form))
        menu.popup(self.list.viewport().mapToGlobal(point))
