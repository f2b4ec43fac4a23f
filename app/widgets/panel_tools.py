"""The windows that belong to the cache panel: the guided tour and the parity inspector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from app.bridge import Bridge
from app.session import Session
from app.theme import ThemeManager
from engine.api.client import EngineClient, start_engine

if TYPE_CHECKING:
    from app.parity.window import ParityWindow
    from app.tour.window import TourWindow

TOUR_ENGINE = "quire-tour-engine"
_END_S = 1.5

StartEngine = Callable[[], EngineClient]


class PanelTools(QObject):
    """Opens each window once; what they need is imported only then.

    ``tour_engine`` starts the tour's engine, which is not the window's; None: a real one.
    """

    def __init__(
        self,
        window: QWidget,
        session: Session,
        bridge: Bridge,
        themes: ThemeManager,
        tour_engine: StartEngine | None = None,
    ) -> None:
        super().__init__(window)
        self._window = window
        self._session = session
        self._bridge = bridge
        self._themes = themes
        self._tour_engine = tour_engine or partial(start_engine, TOUR_ENGINE)
        self._engines: list[EngineClient] = []
        self.tour: TourWindow | None = None
        self.parity: ParityWindow | None = None

    def handlers(self) -> dict[str, Callable[[], object]]:
        """Slots by the id of their action."""
        return {"guided_tour": self.open_tour, "parity_inspector": self.open_parity}

    def open_tour(self) -> None:
        """Begins the tour, or brings it to the front."""
        if self.tour is None or not isValid(self.tour):
            from app.tour.window import TourWindow

            self.tour = TourWindow(
                self._start_tour_engine, self._session.models_dir, self._themes, self._window
            )
        _bring_to_front(self.tour)

    def open_parity(self) -> None:
        """Opens the inspector, or brings it to the front."""
        if self.parity is None or not isValid(self.parity):
            from app.parity.window import ParityWindow

            self.parity = ParityWindow(self._session, self._bridge, self._themes, self._window)
        _bring_to_front(self.parity)

    def close(self) -> None:
        """The main window closes: these go with it, and no thread of theirs outlives it."""
        for window in (self.tour, self.parity):
            if window is not None and isValid(window):
                window.close()
        for client in self._engines:
            client.close(_END_S)

    def _start_tour_engine(self) -> EngineClient:
        client = self._tour_engine()
        self._engines = [client]
        return client


def _bring_to_front(window: QWidget) -> None:
    window.show()
    window.raise_()
    window.activateWindow()
