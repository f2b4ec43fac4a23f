"""The window for ``--trace``: a recording and nothing else, no engine, no profile."""

from __future__ import annotations

import sys
from pathlib import Path

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QCloseEvent, QIcon
from PySide6.QtWidgets import QApplication, QMainWindow, QMessageBox

from app import assets, paths
from app.cache_panel.trace_panel import TracePanel
from app.cache_panel.trace_player import TracePlayer
from app.i18n import tr
from app.signals_to_qt import TerminationSignals
from app.theme import ThemeManager
from engine.api.errors import TraceError

UNREADABLE = 3


class TraceWindow(QMainWindow):
    """Shows one recording."""

    def __init__(self, player: TracePlayer, themes: ThemeManager) -> None:
        super().__init__()
        self.themes = themes
        self.panel = TracePanel(player, themes)
        self.setCentralWidget(self.panel)
        self.panel.bar.play_button.setFocus()
        self.setWindowTitle(tr("Cache recording: {name}", name=player.path.name))
        self.setWindowIcon(QIcon(str(assets.resource_path("icons", "quire.svg"))))
        self.resize(960, 640)

    def closeEvent(self, event: QCloseEvent) -> None:
        self.panel.stop()
        super().closeEvent(event)


def open_trace(qt: QApplication, path: Path, theme_mode: str) -> int:
    """Shows a recording until the window is closed. Returns 0, or 3 if it cannot be read."""
    themes = ThemeManager(theme_mode)
    themes.apply()
    try:
        player = TracePlayer(path)
    except (TraceError, OSError) as error:
        return _refuse(path, error)
    window = TraceWindow(player, themes)
    signals = TerminationSignals(QCoreApplication.quit, window)
    window.show()
    status = qt.exec()
    window.panel.stop()
    signals.restore()
    return status


def _refuse(path: Path, error: Exception) -> int:
    if isinstance(error, OSError):
        cause = tr("{path} cannot be read: {reason}.", path=path, reason=error.strerror or error)
    else:
        cause = tr("The recording cannot be read.") + f" {error}"
    action = tr("Choose another recording.")
    if sys.stderr is not None:
        sys.stderr.write(f"{cause}\n{action}\n")
    # Nobody could answer a message box on a screen that is not there.
    if QApplication.platformName() not in ("offscreen", "minimal"):
        box = QMessageBox(QMessageBox.Icon.Critical, paths.APP_NAME, cause)
        box.setInformativeText(action)
        box.exec()
    return UNREADABLE
