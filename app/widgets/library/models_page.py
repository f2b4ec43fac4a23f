"""The models on this computer: the list at the left, the chosen one at the right."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QPushButton,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from app.i18n import tr
from app.session import Session
from app.settings import Settings
from app.theme import ThemeManager
from app.widgets.calm_combo import CalmComboBox
from app.widgets.library.deed_bar import DeedBar
from app.widgets.library.deleting import ask_to_delete
from app.widgets.library.details import ModelDetails
from app.widgets.library.footer import Footer
from app.widgets.library.model_list import ModelDelegate, ModelListModel, Order
from app.widgets.library.places_menu import PlacesButton, choose_folder, choose_model
from app.widgets.undo_bar import UndoBar

_REFRESH_MS = 50
"""Loading tells its progress far more often than anybody reads it."""
_LIST_WIDTH, _DETAILS_WIDTH = 460, 420


class ModelsPage(QWidget):
    """Follows the library and the session's model as long as it is there."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        themes: ThemeManager,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._library = session.library
        self.model = ModelListModel(session, settings, self)
        self.search = QLineEdit()
        self.order = CalmComboBox()
        self.list = QListView()
        self.empty = QLabel()
        self.details = ModelDetails(session, themes)
        self.deeds = DeedBar(session)
        self.undo_bar = UndoBar(themes)
        self.footer = Footer(session, settings)
        self._prepare_list(themes)
        self._lay_out()
        self._wanted = self._loads = ""
        self._is_refreshing = False
        self._refresh_timer = QTimer(self)
        self._refresh_timer.setSingleShot(True)
        self._refresh_timer.setInterval(_REFRESH_MS)
        self._refresh_timer.timeout.connect(self.refresh)
        self._connect()
        self.list.setFocus()
        self.refresh()

    def _prepare_list(self, themes: ThemeManager) -> None:
        self.search.setObjectName("model search")
        self.search.setPlaceholderText(tr("Find a model"))
        self.search.setAccessibleName(tr("Find a model"))
        self.search.setClearButtonEnabled(True)
        self.order.setObjectName("model order")
        self.order.setAccessibleName(tr("Order"))
        for order, text in (
            (Order.NAME, tr("By name")),
            (Order.SIZE, tr("Smallest first")),
            (Order.NEWEST, tr("Newest first")),
        ):
            self.order.addItem(text, order)
        self.list.setObjectName("models")
        self.list.setModel(self.model)
        self.list.setItemDelegate(ModelDelegate(themes, self.list))
        self.list.setAccessibleName(tr("Models"))
        self.list.setUniformItemSizes(True)
        self.list.setMouseTracking(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.empty.setWordWrap(True)
        self.empty.setProperty("tone", "muted")
        self.empty.setTextFormat(Qt.TextFormat.PlainText)

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self.search, 1)
        head.addWidget(self.order)
        below = QHBoxLayout()
        below.setSpacing(8)
        self.open_button = QPushButton(tr("Open a model file…"))
        self.open_button.setObjectName("model open")
        self.places_button = PlacesButton(self._session)
        for button in (self.open_button, self.places_button):
            below.addWidget(button)
        below.addStretch(1)
        left, right = QWidget(), QWidget()
        column = QVBoxLayout(left)
        column.setContentsMargins(0, 0, 4, 0)
        column.setSpacing(8)
        column.addLayout(head)
        column.addWidget(self.empty)
        column.addWidget(self.list, 1)
        column.addLayout(below)
        column = QVBoxLayout(right)
        column.setContentsMargins(8, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.details, 1)
        column.addWidget(self.deeds)
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.splitter.setProperty("kind", "panel")
        self.splitter.addWidget(left)
        self.splitter.addWidget(right)
        self.splitter.setSizes([_LIST_WIDTH, _DETAILS_WIDTH])
        self.splitter.setChildrenCollapsible(False)
        left.setMinimumWidth(280)
        right.setMinimumWidth(320)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(8)
        outer.addWidget(self.splitter, 1)
        outer.addWidget(self.undo_bar)
        outer.addWidget(self.footer)

    def _connect(self) -> None:
        session = self._session
        self.search.textChanged.connect(self._on_search_changed)
        self.order.activated.connect(self._on_order_activated)
        self.list.selectionModel().currentChanged.connect(self._on_list_current_changed)
        self.list.activated.connect(self._on_list_activated)
        self.open_button.clicked.connect(lambda: choose_model(session, self, self.select))
        self.places_button.folder_wanted.connect(lambda: choose_folder(session, self))
        self.details.template_chosen.connect(self._on_template_chosen)
        self.deeds.default_chosen.connect(self._on_default_chosen)
        self.deeds.folder_requested.connect(self._on_folder_requested)
        self.deeds.removal_requested.connect(self._on_removal_requested)
        self.deeds.deletion_requested.connect(self._on_deletion_requested)
        for signal in (
            self._library.changed,
            session.model_state_changed,
            session.request_state_changed,
            session.conversation_added,
            session.conversation_closed,
            session.settings_changed,
        ):
            signal.connect(self._refresh_timer.start)

    # --- showing ---

    def select(self, path: str) -> None:
        """Shows a model as soon as the list has it; empty for the loaded one."""
        self._loads = ""
        self._want(path)

    def load(self, path: str) -> None:
        """Loads a model as soon as the list has it, after a question if answers run."""
        # Whatever keeps it out of the list: it was asked for by name.
        self.search.clear()
        if path in self._library.places.hidden:
            self._library.add_file(path)
        self._loads = path
        self._want(path)
        self._library.refresh()

    def _want(self, path: str) -> None:
        self._wanted = path or self._library.full_path(self._session.model_state.path)
        self.refresh()

    def selected_path(self) -> str:
        """The chosen model, or empty."""
        row = self.model.row_at(self.list.currentIndex())
        return "" if row is None else row.entry.path

    def refresh(self) -> None:
        """Brings everything in line with the library and the session."""
        self._is_refreshing = True
        self._refresh_list()
        self._is_refreshing = False
        self._show_current()
        if self._loads and self._loads == self.selected_path():
            self._loads = ""
            self.deeds.ask_load()
        self._show_empty()
        self.footer.refresh()

    def _refresh_list(self) -> None:
        chosen = self.selected_path()
        old_row = self.list.currentIndex().row()
        if self.model.reload():
            index = self.model.index_of(chosen)
            if not index.isValid():
                index = self.model.index(max(0, min(old_row, self.model.rowCount() - 1)))
            self.list.setCurrentIndex(index)
        if self._wanted:
            index = self.model.index_of(self._wanted)
            if index.isValid():
                self._wanted = ""
                self.list.setCurrentIndex(index)
                self.list.scrollTo(index)

    def _show_current(self) -> None:
        row = self.model.row_at(self.list.currentIndex())
        self.details.show_row(row)
        self.deeds.show_row(row)

    def _show_empty(self) -> None:
        words = ""
        if not self._library.has_scanned:
            words = tr("Looking for models…")
        elif not self.model.rowCount():
            words = (
                tr("No model has these words.")
                if self.model.query.strip()
                else tr("No models yet: add a folder, or open a model file.")
            )
        self.empty.setText(words)
        self.empty.setVisible(bool(words))

    # --- what the user does ---

    def _on_list_current_changed(self) -> None:
        path = self.selected_path()
        if not self._is_refreshing:
            # The user has turned to another model: loading the one before would be a surprise.
            self._loads = ""
        if path:
            self._library.describe_first(path)
        self._show_current()

    def _on_list_activated(self) -> None:
        # A button that is not shown would be pressed all the same.
        if not self.deeds.load.isHidden():
            self.deeds.load.click()

    def _on_search_changed(self, text: str) -> None:
        self.model.query = text
        self.refresh()

    def _on_order_activated(self, _index: int) -> None:
        self.model.order = Order(self.order.currentData())
        self.refresh()

    def _on_template_chosen(self, name: str) -> None:
        self._library.set_chat_template(self.selected_path(), name)
        self._library.describe_first(self.selected_path())

    def _on_default_chosen(self) -> None:
        self._session.change_settings(model_path=self._library.load_path(self.selected_path()))

    def _on_folder_requested(self) -> None:
        path = Path(self.selected_path())
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(path if path.is_dir() else path.parent)))

    def _on_removal_requested(self) -> None:
        row = self.model.row_at(self.list.currentIndex())
        if row is None:
            return
        path = row.entry.path
        self._library.remove(path)
        words = tr("“{name}” was taken off the list; its file stays.", name=row.entry.name)
        self.undo_bar.offer(words, lambda: self._bring_back(path))

    def _bring_back(self, path: str) -> None:
        self._library.bring_back(path)
        self.select(path)

    def _on_deletion_requested(self) -> None:
        row = self.model.row_at(self.list.currentIndex())
        if row is not None:
            library = self._library
            ask_to_delete(row.entry, library.models_dir, self, library.refresh)
