"""Where the cache panel is: at the right, below, in a window of its own, or closed to a strip."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QByteArray, QEvent, QObject, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QDockWidget, QMainWindow, QVBoxLayout, QWidget

from app.actions import Actions
from app.bridge import Bridge
from app.cache_panel.panel import CachePanel
from app.i18n import tr
from app.session import Session
from app.settings import Settings
from app.theme import ThemeManager
from app.widgets.panel_strip import PanelStrip

PANEL_WIDTH = 380
RIGHT, BELOW, OWN_WINDOW = "right", "below", "window"
_AREAS = {
    RIGHT: Qt.DockWidgetArea.RightDockWidgetArea,
    BELOW: Qt.DockWidgetArea.BottomDockWidgetArea,
}
_PLACE, _GEOMETRY = "panel_place", "panel_window"
_WINDOW_SIZE = QSize(1180, 760)


class PanelDock(QObject):
    """Puts ``panel`` where the user wants it and remembers that.

    ``dock``: its place in ``window``, empty while it has a window of its own, ``own_window``.
    ``strip``: what is seen in its stead while it is closed.
    """

    def __init__(
        self,
        window: QMainWindow,
        panel: CachePanel,
        session: Session,
        bridge: Bridge,
        settings: Settings,
        themes: ThemeManager,
        actions: Actions,
    ) -> None:
        super().__init__(window)
        self.panel = panel
        self._window = window
        self._session = session
        self._settings = settings
        self._actions = actions
        self.place = RIGHT
        self.strip = PanelStrip(session, bridge, themes)
        self.dock = QDockWidget(tr("Cache panel"), window)
        self.dock.setObjectName("cache_panel_dock")
        self.dock.setWidget(panel)
        # The panel has a heading of its own, and the registry's actions show, hide and move it.
        self.dock.setTitleBarWidget(QWidget())
        window.addDockWidget(_AREAS[RIGHT], self.dock)
        self._fit_dock()
        self.own_window = PanelWindow(window)
        # A key that closes the panel must reach it there too.
        self.own_window.addAction(actions["toggle_cache_panel"])
        queued = Qt.ConnectionType.QueuedConnection
        self.own_window.closed.connect(self._on_own_window_closed, queued)
        self.strip.clicked.connect(self.show)
        panel.diagnostics_requested.connect(actions["diagnostics"].trigger)
        self.dock.visibilityChanged.connect(self._on_dock_visibility_changed)

    def handlers(self) -> dict[str, Callable[[], object]]:
        """Slots by the id of their action."""
        return {
            "toggle_cache_panel": self.toggle,
            "panel_right": lambda: self.move_to(RIGHT),
            "panel_below": lambda: self.move_to(BELOW),
            "panel_window": lambda: self.move_to(OWN_WINDOW),
        }

    @property
    def is_open(self) -> bool:
        """Whether the panel is wanted, wherever it is."""
        return self._settings.values.cache_panel_visible

    # --- what the user does ---

    @Slot()
    def show(self) -> None:
        """Opens the panel at its place."""
        self._set_open(True)

    @Slot()
    def hide(self) -> None:
        """Closes the panel; the strip remains."""
        self._set_open(False)

    def toggle(self) -> None:
        """Opens or closes it."""
        self._set_open(not self.is_open)

    def move_to(self, place: str) -> None:
        """Opens the panel at another place: ``RIGHT``, ``BELOW`` or ``OWN_WINDOW``."""
        self._keep_geometry()
        self._put(place)
        self._session.set_window_state(_PLACE, place)
        self._set_open(True)

    # --- start and end of the window ---

    def restore(self) -> None:
        """Shows the panel as it was left; for after the window's own state was restored."""
        place = self._session.window_state(_PLACE)
        if place not in (RIGHT, BELOW, OWN_WINDOW):
            # Kept by the window's state alone, before there were three places.
            is_below = self._window.dockWidgetArea(self.dock) == _AREAS[BELOW]
            place = BELOW if is_below else RIGHT
        self._put(place)
        self._show_state()

    def save(self) -> None:
        """Keeps the size of its window; for when the main one closes."""
        self._keep_geometry()

    def close(self) -> None:
        """The main window closes: its own goes too, and the panel stays wanted."""
        self.own_window.hide()

    def _keep_geometry(self) -> None:
        if self.place == OWN_WINDOW:
            data = bytes(self.own_window.saveGeometry().toBase64().data()).decode("ascii")
            self._session.set_window_state(_GEOMETRY, data)

    def _put(self, place: str) -> None:
        self.place = place
        self.panel.let_be_low(place == BELOW)
        if place == OWN_WINDOW:
            self.dock.hide()
            self.own_window.take(self.panel, self._session.window_state(_GEOMETRY))
            return
        self.own_window.hide()
        if self.dock.widget() is not self.panel or self.panel.parent() is not self.dock:
            self.dock.setWidget(self.panel)
            self.panel.show()
        if self._window.dockWidgetArea(self.dock) != _AREAS[place]:
            self._window.addDockWidget(_AREAS[place], self.dock)
            self._fit_dock()

    def _fit_dock(self) -> None:
        is_right = self._window.dockWidgetArea(self.dock) == _AREAS[RIGHT]
        self.dock.setMinimumWidth(PANEL_WIDTH if is_right else 0)
        direction = Qt.Orientation.Horizontal if is_right else Qt.Orientation.Vertical
        self._window.resizeDocks([self.dock], [PANEL_WIDTH], direction)

    def _set_open(self, is_open: bool) -> None:
        if is_open != self.is_open:
            self._session.change_settings(cache_panel_visible=is_open)
        self._show_state()

    def _show_state(self) -> None:
        if not self.is_open:
            self._keep_geometry()
        is_docked = self.place != OWN_WINDOW
        self.dock.setVisible(self.is_open and is_docked)
        wants_own = self.is_open and not is_docked
        if wants_own and not self._window.isVisible():
            # Shown before its owner it would be nobody's for the desktop, and lie behind it.
            self._window.installEventFilter(self)
        else:
            self.own_window.setVisible(wants_own)
        self.strip.setVisible(not self.is_open)
        self._actions["toggle_cache_panel"].setChecked(self.is_open)
        self._actions.check("panel", self.place)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and watched is self._window:
            self._window.removeEventFilter(self)
            QTimer.singleShot(0, self, self._show_beside)
        return False

    @Slot()
    def _show_beside(self) -> None:
        """At the start: the keyboard stays with the message that is to be written."""
        quietly = Qt.WidgetAttribute.WA_ShowWithoutActivating
        self.own_window.setAttribute(quietly)
        self._show_state()
        self.own_window.setAttribute(quietly, False)

    @Slot()
    def _on_own_window_closed(self) -> None:
        """Told a moment later: where the whole program ends, the panel stays wanted."""
        if self._window.isVisible():
            self.hide()

    def _on_dock_visibility_changed(self, _visible: bool) -> None:
        self._actions["toggle_cache_panel"].setChecked(self.is_open)


class PanelWindow(QWidget):
    """A window for the panel alone. ``closed``: by the user, or with all other windows."""

    closed = Signal()

    def __init__(self, owner: QMainWindow) -> None:
        super().__init__(owner, Qt.WindowType.Window)
        self.setObjectName("panel_window")
        self.setWindowTitle(tr("Cache panel"))
        self.setWindowIcon(owner.windowIcon())
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.resize(_WINDOW_SIZE)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)

    def take(self, panel: QWidget, geometry: str) -> None:
        """Holds the panel from now on, at the size and place kept as ``geometry``, if any."""
        self._column.addWidget(panel)
        panel.show()
        if geometry:
            self.restoreGeometry(QByteArray.fromBase64(geometry.encode("ascii")))

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self.closed.emit()
