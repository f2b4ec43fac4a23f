"""The main window: lays out the parts and connects the actions. Nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable

from PySide6.QtCore import QByteArray, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QGuiApplication, QIcon, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QMainWindow, QSplitter

from app import assets, highlight
from app.actions import Actions
from app.bridge import Bridge
from app.cache_panel.panel import CachePanel
from app.i18n import Language
from app.markdown import split_blocks
from app.session import Session
from app.settings import Settings
from app.theme import ThemeManager
from app.widgets.conversation_page import ConversationPage
from app.widgets.leaving import QuitGuard
from app.widgets.library.desk import ModelDesk
from app.widgets.linked_views import LinkedViews
from app.widgets.message_actions import MessageHandlers
from app.widgets.panel_dock import PanelDock
from app.widgets.panel_tools import PanelTools
from app.widgets.preferences import Preferences
from app.widgets.prompt_library import PromptDesk
from app.widgets.reading import Reading
from app.widgets.rebuilding import Rebuilder
from app.widgets.scroll_places import ScrollPlaces
from app.widgets.shelf import Shelf
from app.widgets.sidebar import MIN_WIDTH, SideBar
from app.widgets.status_strip import StatusStrip
from app.widgets.tab_area import TabArea
from app.widgets.transfers import Transfers
from engine.api.params import OverflowPolicy

_START_SIZE = QSize(1320, 860)
_NARROW = 1000


class MainWindow(QMainWindow):
    """``first_painted``: emitted once, in the first paint event.

    ``themes`` None makes a theme of its own from the settings. ``language``: the installed one;
    None leaves the texts as they are.
    """

    first_painted = Signal()

    def __init__(
        self,
        session: Session,
        bridge: Bridge,
        settings: Settings,
        themes: ThemeManager | None = None,
        language: Language | None = None,
    ) -> None:
        super().__init__()
        self._session = session
        self._bridge = bridge
        self._settings = settings
        self._was_painted = False
        self._is_narrow = False
        if themes is None:
            themes = ThemeManager(settings.values.theme, parent=self)
            themes.apply()
        self.themes = themes
        self.rebuilder = Rebuilder(self, (session, bridge, themes))
        self.preferences = Preferences(self, session, bridge, settings, language)
        self.model_desk = ModelDesk(self, session, settings)
        self.quit_guard = QuitGuard(session, self, self.is_at_files)
        self.setWindowIcon(QIcon(str(assets.resource_path("icons", "quire.svg"))))
        self.rebuilder.keep(self.children())
        self.build()
        self.preferences.report_shortcuts()

    def build(self) -> None:
        """Makes all parts; again, once the old ones were discarded, in another language or font."""
        session, bridge, settings = self._session, self._bridge, self._settings
        themes = self.themes
        self.actions_registry = Actions(self, themes, settings.values.shortcuts)
        self.actions_registry.fill(self.menuBar())
        self.tab_area = TabArea(session, themes, self.actions_registry)
        self.side_bar = SideBar(session, themes, self.actions_registry)
        self.cache_panel = CachePanel(bridge, session, themes)
        self.linked_views = LinkedViews(
            self.tab_area.pages, self.cache_panel, session, bridge, self
        )
        self.panel_tools = PanelTools(self, session, bridge, themes)
        self.panels = PanelDock(
            self, self.cache_panel, session, bridge, settings, themes, self.actions_registry
        )
        self.status_strip = StatusStrip(session, bridge)
        self.transfers = Transfers(session, self)
        self.prompt_desk = PromptDesk(session, themes, self)
        self.shelf = Shelf(session, self.side_bar, self.tab_area, self.transfers)
        self._lay_out()
        self.reading = Reading(self.tab_area, session, themes)
        self.scroll_places = ScrollPlaces(session, self.tab_area.pages)
        self._connect()
        self._restore()

    # --- for the application and its self-test ---

    def new_tab(self) -> str:
        """Opens an empty conversation and shows it. Returns its id."""
        return self._session.new_conversation()

    def show_conversation(self, conversation_id: str) -> None:
        """Brings a conversation to the front."""
        self.tab_area.show_conversation(conversation_id)

    def submit_text(self, conversation_id: str, text: str) -> bool:
        """Sends a message as if it had been typed. False if it was refused."""
        return self.tab_area.page(conversation_id).submit(text)

    def is_at_files(self) -> bool:
        """Whether conversations are being exported, imported or printed, or files attached."""
        is_reading = any(page.drafting.files.unread for page in self.tab_area.pages)
        return is_reading or self.transfers.is_busy or self.reading.jobs.is_busy

    # --- layout ---

    def _lay_out(self) -> None:
        splitter = self.splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.addWidget(self.side_bar)
        splitter.addWidget(self.tab_area)
        splitter.setStretchFactor(1, 1)
        splitter.setSizes([MIN_WIDTH, _START_SIZE.width()])
        splitter.setCollapsible(0, False)
        splitter.setCollapsible(1, False)
        self.setCentralWidget(splitter)
        self.setStatusBar(self.status_strip)
        self.tab_area.put_under_tabs(self.panels.strip)
        self.tab_area.put_under_tabs(self.transfers.bar)
        self.tab_area.setMinimumWidth(360)
        self.setMinimumSize(740, 480)

    def _connect(self) -> None:
        self.side_bar.conversation_chosen.connect(self.show_conversation)
        self.side_bar.hit_chosen.connect(self.tab_area.show_message)
        self.side_bar.model.rows_changed.connect(self._mark_current)
        self.tab_area.current_changed.connect(self._on_tab_area_current_changed)
        self._session.conversation_changed.connect(self._check_overflow)
        self.tab_area.activity_changed.connect(self.side_bar.model.set_activity)
        self.tab_area.pages.sampling_requested.connect(self.preferences.show_sampling)
        area = self.tab_area
        self.actions_registry.connect_all(
            {
                "new_tab": self.new_tab,
                **area.handlers(),
                **self.shelf.handlers(),
                **self.prompt_desk.handlers(),
                **self.model_desk.handlers(),
                **self.reading.handlers(),
                "search": self._start_search,
                "import": self.transfers.choose_import,
                "quit": self.close,
                "send": self._on_page(lambda page: page.composer.submit()),
                "stop": self._on_page(lambda page: page.stop()),
                **MessageHandlers(area, self._session, self.actions_registry).handlers(),
                "copy_answer": self._on_page(lambda page: page.copy_answer()),
                "attach_files": self._on_page(lambda page: page.drafting.attach()),
                "system_prompt": self._on_page(lambda page: page.edit_system_prompt()),
                "overflow_stop": lambda: self._set_overflow(OverflowPolicy.STOP),
                "overflow_drop_oldest": lambda: self._set_overflow(OverflowPolicy.DROP_OLDEST),
                "focus_composer": self._on_page(lambda page: page.composer.edit.setFocus()),
                "focus_transcript": self._on_page(lambda page: page.focus_transcript()),
                "jump_to_latest": self._on_page(lambda page: page.transcript.jump_to_latest()),
                "toggle_sidebar": self._toggle_side_bar,
                "focus_sidebar": self._focus_side_bar,
                **self.panels.handlers(),
                **self.panel_tools.handlers(),
                **self.preferences.handlers(),
            }
        )

    # --- state of the window ---

    def _restore(self) -> None:
        geometry = self._session.window_state("geometry")
        if not self._was_painted and not (geometry and self.restoreGeometry(_decode(geometry))):
            self.resize(self._start_size())
        state = self._session.window_state("docks")
        if state:
            self.restoreState(_decode(state))
        self._is_narrow = self.width() < _NARROW
        self._show_side_bar()
        self.panels.restore()
        self.preferences.check_actions()
        # Its page got the focus before it was in the window, where that does not count.
        self._on_page(lambda page: page.composer.edit.setFocus())()
        self._check_toggles()
        self._mark_current()

    def _start_size(self) -> QSize:
        screen = QGuiApplication.primaryScreen()
        if screen is None or QGuiApplication.platformName() in ("offscreen", "minimal"):
            return _START_SIZE
        return _START_SIZE.boundedTo(screen.availableSize())

    def save_state(self) -> None:
        """Hands what was typed, and the window's own state, to the session."""
        self.tab_area.flush()
        self.prompt_desk.save()
        self.panels.save()
        self.scroll_places.save()
        self._session.set_window_state("geometry", _encode(self.saveGeometry()))
        self._session.set_window_state("docks", _encode(self.saveState()))

    def _check_toggles(self) -> None:
        self.actions_registry["toggle_sidebar"].setChecked(not self.side_bar.isHidden())

    def _on_tab_area_current_changed(self, _conversation_id: str) -> None:
        self._mark_current()

    def _mark_current(self) -> None:
        self.side_bar.set_current(self.tab_area.tabs.current_id())
        current = self.tab_area.tabs.current_id()
        title = self._session.conversation(current).title if current else ""
        self._check_overflow()
        self.setWindowTitle(f"{title} — Quire" if title else "Quire")

    # --- actions ---

    def _set_overflow(self, overflow: OverflowPolicy) -> None:
        self._session.set_overflow(self.tab_area.tabs.current_id(), overflow)

    def _check_overflow(self) -> None:
        current = self.tab_area.tabs.current_id()
        if current:
            overflow = self._session.conversation(current).overflow
            self.actions_registry.check("overflow", overflow.value)

    def _on_page(self, act: Callable[[ConversationPage], None]) -> Callable[[], None]:
        """A slot that acts on the page in front, if there is one."""

        def slot() -> None:
            page = self.tab_area.current_page
            if page is not None:
                act(page)

        return slot

    def _toggle_side_bar(self) -> None:
        self.side_bar.setVisible(self.side_bar.isHidden())
        self._session.set_window_state("sidebar", "hidden" if self.side_bar.isHidden() else "")
        self._check_toggles()

    def _focus_side_bar(self) -> None:
        if self.side_bar.isHidden():
            self._toggle_side_bar()
        self.side_bar.focus_list()

    def _start_search(self) -> None:
        if self.side_bar.isHidden():
            self._toggle_side_bar()
        self.side_bar.start_search()

    def _show_side_bar(self) -> None:
        """The side bar as the user left it; a narrow window has no room for it by itself."""
        wanted = self._session.window_state("sidebar") != "hidden"
        self.side_bar.setVisible(wanted and not self._is_narrow)
        self._check_toggles()

    # --- events ---

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._was_painted:
            self._was_painted = True
            self.first_painted.emit()
            threading.Thread(target=_warm_up, name="text-warm-up", daemon=True).start()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        is_narrow = event.size().width() < _NARROW
        if is_narrow != self._is_narrow:
            self._is_narrow = is_narrow
            self._show_side_bar()

    def closeEvent(self, event: QCloseEvent) -> None:
        # First, so that the guard knows whether that can be stored too.
        self.save_state()
        if not self.quit_guard.allows():
            event.ignore()
            return
        self.rebuilder.stop()
        self.panels.close()
        self.panel_tools.close()
        self.model_desk.close()
        self._session.shut_down()
        event.accept()


def _warm_up() -> None:
    """Imports what the first answer needs, so that its first code block does not stall."""
    split_blocks("")
    highlight.warm_up()


def _encode(data: QByteArray) -> str:
    return bytes(data.toBase64().data()).decode("ascii")


def _decode(text: str) -> QByteArray:
    return QByteArray.fromBase64(text.encode("ascii"))
