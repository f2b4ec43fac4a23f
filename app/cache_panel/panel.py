"""What the window docks: the cache panel, whose parts are made when it is first seen."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QHideEvent, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.bridge import Bridge
from app.i18n import tr
from app.session import Session
from app.theme import ThemeManager

if TYPE_CHECKING:
    from app.cache_panel.live_panel import LivePanel
    from app.cache_panel.pool_model import PoolModel
    from app.cache_panel.recorder import Recorder

MINIMUM_WIDTH, MINIMUM_HEIGHT = 280, 400
LOWEST = 170
"""Where its parts stand beside each other."""

_PARTS = ("words", "branch_page", "pool_view", "live_asides", "live_panel")
"""Modules of this package, each of which imports some 30 ms more than those before it."""
_LOOK_MS = 5


@dataclass(frozen=True, slots=True)
class Handover:
    """From one panel to the next: its pool, its recorder if that is at work, its page."""

    model: PoolModel | None
    recorder: Recorder | None
    page: int


class CachePanel(QWidget):
    """An empty place until it has been painted once; then ``live`` fills it, and ``made`` says so.

    The live panel imports numpy and takes a fifth of a second: after the window's first paint, a
    part at a time, and not at all while the panel stays closed. ``diagnostics_requested``: the
    pool does not add up and the user asked what can be done.
    """

    diagnostics_requested = Signal()

    made = Signal()

    def __init__(
        self, bridge: Bridge, session: Session, theme: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._session = session
        self._theme = theme
        self.live: LivePanel | None = None
        self._remembered: PoolModel | None = None
        self._recorder: Recorder | None = None
        self._page = 0
        self._is_low = False
        self._parts = iter(_PARTS)
        self._numpy: Thread | None = None
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._painted_once = QTimer(self)
        self._painted_once.setSingleShot(True)
        self._painted_once.timeout.connect(self._on_painted_once_timeout)
        self.setMinimumSize(MINIMUM_WIDTH, MINIMUM_HEIGHT)
        self.setAccessibleName(tr("Cache panel"))

    @property
    def model(self) -> PoolModel | None:
        """The pool as the panel knows it; None while it waits for a snapshot."""
        return None if self.live is None else self.live.model

    def let_be_low(self, is_low: bool) -> None:
        """Under the transcript it may be lower than it is wide, and must leave room for that."""
        self._is_low = is_low
        self.setMinimumHeight(LOWEST if is_low else MINIMUM_HEIGHT)
        if self.live is not None:
            self.live.setMinimumHeight(self.minimumHeight())
            self.live.view.setMinimumHeight(self.minimumHeight())

    def remember(self, model: PoolModel | None) -> None:
        """``model``: what the panel knew whose place this one takes."""
        self._remembered = model
        if model is not None and self.live is not None:
            self.live.remember(model)

    def hand_over(self) -> Handover:
        """What the panel that takes the place of this one needs; a recording goes on with it."""
        live = self.live
        if live is None:
            return Handover(None, self._recorder, self._page)
        return Handover(live.model, live.give_recorder(), live.view.pages.current)

    def take_over(self, handed: Handover) -> None:
        """Goes on where another panel of the same engine stopped."""
        self.remember(handed.model)
        self._page = handed.page
        self._recorder = handed.recorder
        if self._recorder is not None:
            self._recorder.setParent(self)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.live is None:
            # Not now: the window should stand first.
            self._painted_once.start(0)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._painted_once.stop()

    def _on_painted_once_timeout(self) -> None:
        if not self._has_numpy():
            self._painted_once.start(_LOOK_MS)
            return
        part = next(self._parts, None)
        if part is not None:
            # Each is a stall of its own: what waits for the event loop goes first.
            importlib.import_module(f"{__package__}.{part}")
            self._painted_once.start(0)
            return
        from app.cache_panel.live_panel import LivePanel

        self.live = LivePanel(self._bridge, self._session, self._theme, self, self._recorder)
        self._recorder = None
        self.let_be_low(self._is_low)
        self.live.view.pages.choose(self._page)
        if self._remembered is not None:
            self.live.remember(self._remembered)
            self._remembered = None
        self.live.view.badge.diagnostics_requested.connect(self.diagnostics_requested)
        self._layout.addWidget(self.live)
        self.made.emit()

    def _has_numpy(self) -> bool:
        """Imports it in a thread: the engine's may be in the middle of the same."""
        if self._numpy is None and "numpy" not in sys.modules:
            self._numpy = Thread(target=_import_numpy, name="quire-numpy", daemon=True)
            self._numpy.start()
        return self._numpy is None or not self._numpy.is_alive()


def _import_numpy() -> None:
    importlib.import_module("numpy")
