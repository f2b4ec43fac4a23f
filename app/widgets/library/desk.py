"""Opens the model library, and does what the model menu says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from shiboken6 import isValid

from app.session import Session
from app.session_state import ModelStatus
from app.settings import Settings

if TYPE_CHECKING:
    from app.widgets.fetching.service import FetchService
    from app.widgets.library.window import LibraryWindow
    from app.widgets.main_window import MainWindow


class ModelDesk(QObject):
    """Lives as long as ``window``, and longer than its parts. Imports the library when it is
    opened.
    """

    def __init__(self, window: MainWindow, session: Session, settings: Settings) -> None:
        super().__init__()
        self._window = window
        self._session = session
        self._settings = settings
        self._fetches: FetchService | None = None
        session.model_library_requested.connect(self.open)
        session.model_state_changed.connect(self._check_actions)

    def handlers(self) -> dict[str, Callable[[], object]]:
        """Slots by the id of their action, when the actions have been made."""
        self._check_actions()
        return {
            "model_library": self.open,
            "open_model": self.choose_model,
            "unload_model": self.unload,
        }

    def open(self, path: str = "") -> LibraryWindow:
        """Shows the library with a model; empty for the loaded one."""
        from app.widgets.library.window import LibraryWindow

        window = self._window
        shown = window.preferences.show(
            "models",
            lambda: LibraryWindow(
                self._session, self._settings, window.themes, self.fetches(), window
            ),
        )
        assert isinstance(shown, LibraryWindow)
        shown.show_model(path)
        return shown

    def fetches(self) -> FetchService:
        """What is fetched; it goes on while the library is closed."""
        if self._fetches is None:
            from app.widgets.fetching.service import FetchService

            self._fetches = FetchService(Path(self._session.models_dir), parent=self)
            in_ram = self._fetches.free_memory
            self._fetches.free_memory = lambda: self._session.library.free_bytes() or in_ram()
            self._fetches.model_fetched.connect(self._session.library.refresh)
        # The setting may have changed since.
        self._fetches.use_endpoint(self._settings.values.hub_endpoint)
        return self._fetches

    def choose_model(self) -> None:
        """Asks for a model file, and shows it in the library before it is loaded."""
        from app.widgets.library.places_menu import choose_model

        choose_model(self._session, self._window, self.open)

    def unload(self) -> None:
        """Frees the model's memory; where answers run, the library asks first."""
        if self._session.model_state.status is not ModelStatus.READY:
            return
        if self._session.num_running_answers:
            self.open().ask_unload()
        else:
            self._session.unload_model()

    def _check_actions(self) -> None:
        is_ready = self._session.model_state.status is ModelStatus.READY
        action = self._window.actions_registry["unload_model"]
        # The engine's last state comes when the window has gone.
        if isValid(action):
            action.setEnabled(is_ready)

    def close(self) -> None:
        """The main window closes: what is fetched goes on at the next start."""
        if self._fetches is not None:
            self._fetches.close()
