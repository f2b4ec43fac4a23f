"""The application in a real window, asked from outside as a user asks it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from PySide6.QtCore import QEventLoop, QSize, QTimer
from PySide6.QtWidgets import QApplication

from app.application import QuireApplication
from app.command_line import Options
from app.conversation import MessageStatus
from app.garbage import hold_back
from app.i18n import Language
from app.paths import Profile
from app.session_state import ModelStatus
from app.settings import Settings
from app.store import Store
from engine.api.client import start_engine
from engine.api.events import RequestUsage
from engine.api.params import SamplingParams

WINDOW_SIZE = QSize(1320, 860)
_LOOK_MS = 50
_TIMEOUT_S = 300.0


class TaxedWindow:
    """The whole application with a temporary profile and its model (None: the starter) loaded.

    The cache panel is visible unless ``show_panel`` hides it.

    Raises:
        RuntimeError: the model was not loaded, an answer failed, or either took too long.
    """

    def __init__(
        self, models_dir: Path, model: Path | None, system_prompt: str, params: SamplingParams
    ) -> None:
        hold_back()
        self._qt = QApplication.instance() or QApplication(["quire"])
        self._folder = tempfile.TemporaryDirectory(prefix="quire-", ignore_cleanup_errors=True)
        profile = Profile(Path(self._folder.name))
        settings = Settings(profile.settings_file)
        Language(settings.values.language).install()
        options = Options(models_dir=models_dir, model=None if model is None else str(model))
        self._shows_panel = True
        self._application = QuireApplication(options, settings, Store(profile), start_engine)
        self._window, self._session = self._application.window, self._application.session
        self._session.change_settings(sampling=params)
        self._session.set_default_system_prompt(system_prompt)

    def __enter__(self) -> Self:
        self._window.resize(WINDOW_SIZE)
        self._application.show()
        self._wait(self._is_loaded)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._application.close()
        self._folder.cleanup()

    def show_panel(self, shown: bool) -> None:
        """Shows or hides the cache panel from the next questions on."""
        self._shows_panel = shown
        self._window.panels.dock.setVisible(shown)
        self._qt.processEvents()

    def ask(self, questions: Sequence[str]) -> list[RequestUsage]:
        """One new tab a question, all answered at once; the tabs are closed again."""
        tabs = [self._window.new_tab() for _ in questions]
        for tab, question in zip(tabs, questions, strict=True):
            self._window.submit_text(tab, question)
        if self._window.cache_panel.isVisible() is not self._shows_panel:
            raise RuntimeError("the cache panel is not as it should be: shown or hidden")
        self._wait(lambda: not any(self._session.is_busy(tab) for tab in tabs))
        usages = []
        for tab in tabs:
            answer = self._session.conversation(tab).path()[-1]
            if answer.status is not MessageStatus.DONE or answer.usage is None:
                raise RuntimeError(f"an answer ended as {answer.status.value}")
            usages.append(answer.usage)
        for tab in tabs:
            self._session.close_conversation(tab)
        return usages

    def _is_loaded(self) -> bool:
        state = self._session.model_state
        if state.status in (ModelStatus.FAILED, ModelStatus.NO_MODEL):
            raise RuntimeError(f"the model was not loaded: {state.error}")
        return state.status is ModelStatus.READY

    def _wait(self, done: Callable[[], bool]) -> None:
        """Runs the event loop until ``done()``, looking seldom: looking costs too."""
        deadline = time.monotonic() + _TIMEOUT_S
        loop = QEventLoop()
        failed: list[RuntimeError] = []

        def look() -> None:
            try:
                if done():
                    loop.quit()
                elif time.monotonic() > deadline:
                    raise RuntimeError(f"it took longer than {_TIMEOUT_S:.0f} s")
            except RuntimeError as error:
                failed.append(error)
                loop.quit()

        timer = QTimer()
        timer.timeout.connect(look)
        timer.start(_LOOK_MS)
        loop.exec()
        timer.stop()
        if failed:
            raise failed[0]
