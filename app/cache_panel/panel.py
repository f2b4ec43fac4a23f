"""What the window docks: the cache panel, whose parts are made when it is first seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer
from PySide6.QtGui import QHideEvent, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.bridge import Bridge
from app.i18n import tr
from app.session import Session
from app.theme import ThemeManager

if TYPE_CHECKING:
    from app.cache_panel.live_panel import LivePanel
    from app.cache_panel.pool_model import PoolModel

MINIMUM_WIDTH, MINIMUM_HEIGHT = 280, 400


class CachePanel(QWidget):
    """An empty place until it has been painted once; then ``live`` fills it.

    The live panel imports numpy, which takes a tenth of a second: after the window's first paint,
    and not at all while the panel stays closed.
    """

    def __init__(
        self, bridge: Bridge, session: Session, theme: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._session = session
        self._theme = theme
        self.live: LivePanel | None = None
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

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.live is None:
            # Not now: the window should stand first.
            self._painted_once.start(0)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._painted_once.stop()

    def _on_painted_once_timeout(self) -> None:
        from app.cache_panel.live_panel import LivePanel

        self.live = LivePanel(self._bridge, self._session, self._theme, self)
        self._layout.addWidget(self.live)
