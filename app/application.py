"""Everything that lives as long as the window does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication

from app import paths
from app.bridge import Bridge
from app.command_line import Options
from app.garbage import INTERVAL_MS, GarbagePolicy, hold_back
from app.i18n import Language, tr
from app.process_age import process_age_s
from app.safe_start import RestoreMark, leave_suspects_closed
from app.session import Session
from app.settings import Settings
from app.store import Store
from app.theme import ThemeManager
from app.widgets.main_window import MainWindow
from app.widgets.preferences import appearance_of
from app.widgets.safe_start import SafeStart
from engine.api.client import ENGINE_THREAD_NAME, EngineClient

if TYPE_CHECKING:
    from app.raise_window import RaiseServer
    from app.signals_to_qt import TerminationSignals

_LOG = logging.getLogger(__name__)
_FLUSH_TIMEOUT_S = 1.0
_ENGINE_TIMEOUT_S = 2.0
_PANEL_MS = 500
"""The engine waits no longer than this for the cache panel to be made."""


class QuireApplication(QObject):
    """Makes the parts, starts the engine when the window stands, and ends all in order.

    ``first_paint_ms``: from the creation of the process to the first paint event; None before it.
    ``wants_relaunch``: after ``close`` the program is to be started again.
    """

    _uncaught = Signal(str, str)

    def __init__(
        self,
        options: Options,
        settings: Settings,
        store: Store,
        engine: Callable[[], EngineClient],
        parent: QObject | None = None,
        language: Language | None = None,
    ) -> None:
        super().__init__(parent)
        self.first_paint_ms: float | None = None
        self.wants_relaunch = False
        self._options = options
        self._settings = settings
        self._store = store
        self._raise_server: RaiseServer | None = None
        self._signals: TerminationSignals | None = None
        self._profile_dir = store.profile.data_dir
        self.theme = ThemeManager(settings.values.theme, appearance=appearance_of(settings.values))
        self.theme.apply()
        self.bridge = Bridge(engine)
        models_dir = options.models_dir or paths.models_dir()
        mark = RestoreMark(store.profile.restore_file)
        left_closed = leave_suspects_closed(store, mark)
        mark.set(store.open_ids())
        self.session = Session(self.bridge, store, settings, str(models_dir))
        hold_back()
        self._garbage = GarbagePolicy()
        self._garbage_timer = QTimer(self)
        self._garbage_timer.setTimerType(Qt.TimerType.VeryCoarseTimer)
        self._garbage_timer.timeout.connect(self._garbage.collect_if_due)
        self._garbage_timer.start(INTERVAL_MS)
        self.session.model_state_changed.connect(self._on_session_model_state_changed)
        self.session.program_restart_requested.connect(self._on_session_program_restart_requested)
        self._engine_timer = QTimer(self)
        self._engine_timer.setSingleShot(True)
        self._engine_timer.timeout.connect(self._start_engine)
        self._is_closed = False
        if not self.session.conversation_ids():
            self.session.new_conversation()
        self.window = MainWindow(self.session, self.bridge, settings, self.theme, language)
        self.window.first_painted.connect(self._on_window_first_painted)
        self.safe_start = SafeStart(self.session, self.window, mark, left_closed, self)
        self._uncaught.connect(self._on_uncaught, Qt.ConnectionType.QueuedConnection)
        # At once: when control returns, the desktop may end the process.
        gui = QGuiApplication.instance()
        assert isinstance(gui, QGuiApplication)
        self._session_end = gui.commitDataRequest.connect(
            self.on_session_end, Qt.ConnectionType.DirectConnection
        )
        # At the end of a session of Windows this is the last that a program hears.
        gui.aboutToQuit.connect(self.safe_start.end)

    def show(self) -> None:
        """Shows the window; the engine starts after its first paint."""
        self.window.show()

    def report_uncaught(self, thread: str, line: str) -> None:
        """Tells the user of an exception that nobody caught. Any thread."""
        self._uncaught.emit(thread, line)

    def close(self) -> bool:
        """Saves everything, ends the engine, destroys the window. False if the engine was busy."""
        self._is_closed = True
        QObject.disconnect(self._session_end)
        self._engine_timer.stop()
        self.safe_start.end()
        self.window.quit_guard.force()
        self.window.close()
        if self._raise_server is not None:
            self._raise_server.close()
        saved = self.session.shut_down(_FLUSH_TIMEOUT_S)
        ended = self.bridge.close(_ENGINE_TIMEOUT_S)
        if not self._store.close(_FLUSH_TIMEOUT_S) or not saved:
            _LOG.error("not everything could be saved")
        self.window.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        self._garbage_timer.stop()
        self._garbage.close()
        # Last, so that a second Ctrl+C cannot cut the saving short.
        if self._signals is not None:
            self._signals.restore()
        return ended

    @Slot()
    def _on_window_first_painted(self) -> None:
        if self.first_paint_ms is None:
            self.first_paint_ms = process_age_s() * 1000.0
            _LOG.info("first paint after %.0f ms", self.first_paint_ms)
            self.safe_start.window_shown()
            QTimer.singleShot(0, self._after_first_paint)

    @Slot()
    def _after_first_paint(self) -> None:
        # One more round of the loop: what the window itself put off goes first. Importing torch
        # beside it would add both stalls up to one.
        QTimer.singleShot(0, self._start)

    @Slot()
    def _start(self) -> None:
        """What the first paint need not wait for; so its imports are here too."""
        if self._is_closed:
            return
        from app.raise_window import RaiseServer
        from app.signals_to_qt import TerminationSignals

        self._signals = TerminationSignals(self._on_signal, self)
        self._raise_server = RaiseServer(self._profile_dir, self)
        self._raise_server.raise_requested.connect(self._on_raise_server_raise_requested)
        self.session.raise_stored_problems()
        self._store.check_if_due()
        panel = self.window.cache_panel
        if panel.live is None and panel.isVisible():
            # Made while torch is imported, it would take four times as long.
            panel.made.connect(self._on_cache_panel_made)
            self._engine_timer.start(_PANEL_MS)
        else:
            self._start_engine()

    @Slot()
    def _on_cache_panel_made(self) -> None:
        if self._engine_timer.isActive():
            self._engine_timer.start(0)

    @Slot()
    def _start_engine(self) -> None:
        self.bridge.start()
        _LOG.info("engine started")
        path = self._options.model or self._settings.values.model_path
        # The command line speaks for one start only.
        self.session.load_model(path, remember=self._options.model is None)

    def _on_signal(self) -> None:
        # Nobody is there to answer a question.
        self.window.quit_guard.force()
        QCoreApplication.quit()

    @Slot()
    def on_session_end(self) -> None:
        """The desktop's session ends: everything is saved now. It may still be called off."""
        _LOG.info("the session ends")
        self.window.quit_guard.session_ends()
        self.window.save_state()
        if not self._store.flush(_FLUSH_TIMEOUT_S):
            _LOG.error("not everything could be saved")

    @Slot()
    def _on_session_model_state_changed(self) -> None:
        self._garbage.model_changed(self.session.model_state.status)

    @Slot()
    def _on_session_program_restart_requested(self) -> None:
        self.window.tab_area.flush()
        if not self.session.shut_down(_FLUSH_TIMEOUT_S):
            # The notice about it is there already; what is not saved must not be lost.
            _LOG.error("not started again: something could not be saved")
            return
        _LOG.info("asked to start again")
        self.wants_relaunch = True
        QCoreApplication.quit()

    @Slot()
    def _on_raise_server_raise_requested(self) -> None:
        _LOG.info("asked to come to the front by a second start")
        self.window.setWindowState(self.window.windowState() & ~Qt.WindowState.WindowMinimized)
        self.window.show()
        self.window.raise_()
        self.window.activateWindow()

    @Slot(str, str)
    def _on_uncaught(self, thread: str, line: str) -> None:
        if thread == ENGINE_THREAD_NAME:
            self.session.engine_died(line)
        else:
            action = tr("Your conversations are saved. Please report this with the log.")
            self.session.report("internal", line, action)
