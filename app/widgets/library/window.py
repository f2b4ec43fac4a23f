"""The window of the model library."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.cache_panel.parts import Pages
from app.i18n import tr
from app.session import Session
from app.settings import Settings
from app.theme import ThemeManager
from app.widgets.built_window import BuiltWindow
from app.widgets.fetching.page import FetchPage
from app.widgets.fetching.service import FetchService
from app.widgets.library.models_page import ModelsPage

_SIZE = QSize(980, 700)


class LibraryWindow(BuiltWindow):
    """The models that are here, and those that can be fetched. Folders are watched as long as it is
    shown.
    """

    def __init__(
        self,
        session: Session,
        settings: Settings,
        themes: ThemeManager,
        fetches: FetchService,
        parent: QWidget,
    ) -> None:
        super().__init__(parent, _SIZE)
        self._session = session
        self._settings = settings
        self._themes = themes
        self._fetches = fetches
        self._page = 0
        self.models: ModelsPage | None = None
        fetches.jobs_changed.connect(self._show_active)
        self.rebuild()

    def build(self) -> QWidget:
        self.setWindowTitle(tr("Model library"))
        selected = "" if self.models is None else self.models.selected_path()
        self.models = ModelsPage(self._session, self._settings, self._themes)
        self.models.select(selected)
        self.fetch_page = FetchPage(self._fetches, self._themes)
        self.fetch_page.load_requested.connect(self.load)
        self.pages = Pages(
            [(tr("On this computer"), self.models), (tr("Fetch models"), self.fetch_page)]
        )
        self._show_active()
        self.pages.choose(self._page)
        self.pages.page_changed.connect(self._on_page_changed)
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(16, 12, 16, 12)
        column.addWidget(self.pages)
        return content

    def show_model(self, path: str) -> None:
        """Shows a model; empty for the loaded one."""
        assert self.models is not None
        self.pages.choose(0)
        self.models.select(path)

    def load(self, path: str) -> None:
        """Shows a model and loads it, after a question if answers run."""
        assert self.models is not None
        self.pages.choose(0)
        self.models.load(path)

    def ask_unload(self) -> None:
        """Unloads the loaded model, after a question if answers run."""
        assert self.models is not None
        self.show_model("")
        self.models.deeds.ask_unload()

    def _show_active(self) -> None:
        """How many fetches there are, whichever page is shown."""
        active, button = self._fetches.active_count(), self.pages.buttons[1]
        name = tr("Fetch models")
        button.setText(f"{name} ({active})" if active else name)
        button.setAccessibleName(button.text())

    def _on_page_changed(self) -> None:
        self._page = self.pages.current
        self._focus_page()

    def _focus_page(self) -> None:
        """Puts the keyboard where what is done on the page begins."""
        assert self.models is not None
        if self._page:
            self.fetch_page.focus_search()
        else:
            self.models.list.setFocus()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._session.library.set_watching(True)
        # Other programs have taken or given back memory meanwhile.
        self._session.library.describe_again()
        focused = self.focusWidget()
        if focused is None or focused in self.pages.buttons:
            self._focus_page()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._session.library.set_watching(False)
