"""The main window: lays out the parts and connects the actions. Nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable

from PySide6.QtCore import QByteArray, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QGuiApplication, QIcon, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QDockWidget, QMainWindow, QSplitter, QWidget

from app import assets, highlight
from app.actions import Actions
from app.bridge import Bridge
from app.cache_panel.panel import CachePanel
from app.i18n import tr
from app.markdown import split_blocks
from app.session import Session
from app.session_state import Severity
from app.settings import Settings
from app.theme import DARK, LIGHT, ThemeManager
from app.widgets.conversation_page import ConversationPage
from app.widgets.dialogs import ShortcutsDialog
from app.widgets.sidebar import MIN_WIDTH, SideBar
from app.widgets.status_strip import StatusStrip
from app.widgets.tab_area import TabArea
from app.widgets.transfers import JSON, MARKDOWN, Transfers
from engine.api.params import OverflowPolicy

PANEL_WIDTH = 380
_RIGHT = Qt.DockWidgetArea.RightDockWidgetArea
_START_SIZE = QSize(1320, 860)
_NARROW = 1000


class MainWindow(QMainWindow):
    """``first_painted``: emitted once, in the first paint event.

    ``themes`` None makes a theme of its own from the settings.
    """

    first_painted = Signal()

    def __init__(
        self,
        session: Session,
        bridge: Bridge,
        settings: Settings,
        themes: ThemeManager | None = None,
    ) -> None:
        super().__init__()
        self._session = session
        self._settings = settings
        self._was_painted = False
        self._is_narrow = False
        if themes is None:
            themes = ThemeManager(settings.values.theme, parent=self)
            themes.apply()
        self.themes = themes
        self.setWindowTitle("Quire")
        self.setWindowIcon(QIcon(str(assets.resource_path("icons", "quire.svg"))))
        self.actions_registry = Actions(self, themes)
        self.actions_registry.fill(self.menuBar())
        self.tab_area = TabArea(session, themes, self.actions_registry)
        self.side_bar = SideBar(session, themes, self.actions_registry)
        self.cache_panel = CachePanel(bridge, session, themes)
        self.status_strip = StatusStrip(session, bridge)
        self.transfers = Transfers(session, self)
        self._lay_out()
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

    # --- layout ---

    def _lay_out(self) -> None:
        splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.addWidget(self.side_bar)
        splitter.addWidget(self.tab_area)
        splitter.setStretchFactor(1, 1)
        splitter.setSizes([MIN_WIDTH, _START_SIZE.width()])
        splitter.setCollapsible(0, False)
        splitter.setCollapsible(1, False)
        self.setCentralWidget(splitter)
        self.setStatusBar(self.status_strip)
        self.panel_dock = QDockWidget(tr("Cache panel"), self)
        self.panel_dock.setObjectName("cache_panel_dock")
        self.panel_dock.setWidget(self.cache_panel)
        # The panel has a heading of its own, and the registry's actions show, hide and move it.
        self.panel_dock.setTitleBarWidget(QWidget())
        self._place_panel(_RIGHT)
        self.tab_area.setMinimumWidth(360)
        self.setMinimumSize(740, 480)

    def _place_panel(self, area: Qt.DockWidgetArea) -> None:
        self.addDockWidget(area, self.panel_dock)
        is_right = area == _RIGHT
        self.panel_dock.setMinimumWidth(PANEL_WIDTH if is_right else 0)
        direction = Qt.Orientation.Horizontal if is_right else Qt.Orientation.Vertical
        self.resizeDocks([self.panel_dock], [PANEL_WIDTH], direction)

    def _connect(self) -> None:
        self.side_bar.conversation_chosen.connect(self.show_conversation)
        self.side_bar.hit_chosen.connect(self.tab_area.show_message)
        self.side_bar.export_requested.connect(self.transfers.export)
        self.side_bar.rename_requested.connect(self._rename)
        self.side_bar.close_requested.connect(self.tab_area.close_conversation)
        self.side_bar.model.modelReset.connect(self._mark_current)
        self.tab_area.current_changed.connect(self._on_tab_area_current_changed)
        self._session.conversation_changed.connect(self._check_overflow)
        self.tab_area.activity_changed.connect(self.side_bar.model.set_activity)
        self.panel_dock.visibilityChanged.connect(self._on_panel_visibility_changed)
        area = self.tab_area
        self.actions_registry.connect_all(
            {
                "new_tab": self.new_tab,
                "close_tab": lambda: area.close_conversation(area.tabs.current_id()),
                "reopen_tab": area.reopen_last,
                "rename": lambda: self._rename(area.tabs.current_id()),
                "fork": lambda: self._session.fork(area.tabs.current_id()),
                "search": self._start_search,
                "import": self.transfers.choose_import,
                "export_markdown": lambda: self.transfers.export(area.tabs.current_id(), MARKDOWN),
                "export_json": lambda: self.transfers.export(area.tabs.current_id(), JSON),
                "quit": self.close,
                "send": self._on_page(lambda page: page.composer.submit()),
                "stop": self._on_page(lambda page: page.stop()),
                "regenerate": self._on_page(lambda page: page.regenerate()),
                "copy_answer": self._on_page(lambda page: page.copy_answer()),
                "system_prompt": self._on_page(lambda page: page.edit_system_prompt()),
                "overflow_stop": lambda: self._set_overflow(OverflowPolicy.STOP),
                "overflow_drop_oldest": lambda: self._set_overflow(OverflowPolicy.DROP_OLDEST),
                "focus_composer": self._on_page(lambda page: page.composer.edit.setFocus()),
                "focus_transcript": self._on_page(lambda page: page.focus_transcript()),
                "jump_to_latest": self._on_page(lambda page: page.transcript.jump_to_latest()),
                "next_tab": lambda: area.step(1),
                "previous_tab": lambda: area.step(-1),
                "toggle_sidebar": self._toggle_side_bar,
                "toggle_cache_panel": self._toggle_cache_panel,
                "panel_below": self._toggle_panel_below,
                "theme_system": lambda: self._set_theme("system"),
                "theme_light": lambda: self._set_theme(LIGHT),
                "theme_dark": lambda: self._set_theme(DARK),
                "toggle_theme": self._toggle_theme,
                "language_system": lambda: self._set_language("system"),
                "language_en": lambda: self._set_language("en"),
                "language_zh_CN": lambda: self._set_language("zh_CN"),
                "shortcuts": lambda: ShortcutsDialog(self.actions_registry, self).show(),
            }
        )

    # --- state of the window ---

    def _restore(self) -> None:
        geometry = self._session.window_state("geometry")
        restored = bool(geometry) and self.restoreGeometry(_decode(geometry))
        if not restored:
            self.resize(self._start_size())
        state = self._session.window_state("docks")
        if state:
            self.restoreState(_decode(state))
        self._is_narrow = self.width() < _NARROW
        self._show_side_bar()
        self.panel_dock.setVisible(self._settings.values.cache_panel_visible)
        values = self._settings.values
        self.actions_registry.check("theme", values.theme)
        self.actions_registry.check("language", values.language)
        self._check_toggles()
        self._mark_current()

    def _start_size(self) -> QSize:
        screen = QGuiApplication.primaryScreen()
        if screen is None or QGuiApplication.platformName() in ("offscreen", "minimal"):
            return _START_SIZE
        return _START_SIZE.boundedTo(screen.availableSize())

    def _save(self) -> None:
        self.tab_area.flush()
        self._session.set_window_state("geometry", _encode(self.saveGeometry()))
        self._session.set_window_state("docks", _encode(self.saveState()))

    def _check_toggles(self) -> None:
        self.actions_registry["toggle_sidebar"].setChecked(not self.side_bar.isHidden())
        self.actions_registry["toggle_cache_panel"].setChecked(not self.panel_dock.isHidden())
        is_below = self.dockWidgetArea(self.panel_dock) != _RIGHT
        self.actions_registry["panel_below"].setChecked(is_below)

    def _on_panel_visibility_changed(self, _visible: bool) -> None:
        self._check_toggles()

    def _on_tab_area_current_changed(self, _conversation_id: str) -> None:
        self._mark_current()

    def _mark_current(self) -> None:
        self.side_bar.set_current(self.tab_area.tabs.current_id())
        current = self.tab_area.tabs.current_id()
        title = self._session.conversation(current).title if current else ""
        self._check_overflow()
        self.setWindowTitle(f"{title} — Quire" if title else "Quire")

    # --- actions ---

    def _rename(self, conversation_id: str) -> None:
        self.show_conversation(conversation_id)
        self.tab_area.tabs.start_rename(conversation_id)

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

    def _start_search(self) -> None:
        if self.side_bar.isHidden():
            self._toggle_side_bar()
        self.side_bar.start_search()

    def _show_side_bar(self) -> None:
        """The side bar as the user left it; a narrow window has no room for it by itself."""
        wanted = self._session.window_state("sidebar") != "hidden"
        self.side_bar.setVisible(wanted and not self._is_narrow)
        self._check_toggles()

    def _toggle_cache_panel(self) -> None:
        self.panel_dock.setVisible(self.panel_dock.isHidden())
        self._session.change_settings(cache_panel_visible=not self.panel_dock.isHidden())

    def _toggle_panel_below(self) -> None:
        is_right = self.dockWidgetArea(self.panel_dock) == _RIGHT
        self._place_panel(Qt.DockWidgetArea.BottomDockWidgetArea if is_right else _RIGHT)
        self._check_toggles()

    def _set_theme(self, mode: str) -> None:
        self.themes.set_mode(mode)
        self._session.change_settings(theme=mode)
        self.actions_registry.check("theme", mode)

    def _toggle_theme(self) -> None:
        self._set_theme(LIGHT if self.themes.theme.dark else DARK)

    def _set_language(self, language: str) -> None:
        if language != self._settings.values.language:
            self._session.change_settings(language=language)
            words = tr("The language changes when Quire is started again.")
            self._session.report("language_changed", words, severity=Severity.INFO)

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
        self._save()
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
