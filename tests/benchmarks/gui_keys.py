"""How long a key takes to be seen."""

from __future__ import annotations

import random
import time
from typing import Any

from PySide6.QtCore import QEvent, QEventLoop, QObject, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

_PAUSE_MS = (30, 110)
_TIMEOUT_MS = 5000


class KeyTimer(QObject):
    """Presses keys in a text box of a window, at times that have nothing to do with its timers."""

    def __init__(self, window: QWidget, edit: Any) -> None:
        super().__init__()
        self._window = window
        self._edit = edit
        self._draw = random.Random(3)
        self._is_pressed = False
        self._is_painted = False
        self._shown_s = 0.0
        self._number = 0
        self._loop = QEventLoop()
        self._due = QTimer(self)
        self._due.setSingleShot(True)
        self._due.setTimerType(Qt.TimerType.PreciseTimer)
        self._due.timeout.connect(self._on_due_timeout)
        self._late = QTimer(self)
        self._late.setSingleShot(True)
        self._late.timeout.connect(self._loop.quit)
        edit.setFocus()
        edit.viewport().installEventFilter(self)
        window.installEventFilter(self)

    def press(self) -> float:
        """Milliseconds from when the key was due, however busy the loop was then, to the end of
        the painting with it.
        """
        pause_ms = self._draw.randint(*_PAUSE_MS)
        due_s = time.perf_counter() + pause_ms / 1000.0
        self._is_pressed = self._is_painted = False
        self._shown_s = 0.0
        self._due.start(pause_ms)
        self._late.start(pause_ms + _TIMEOUT_MS)
        self._loop.exec()
        self._late.stop()
        if not self._shown_s:
            raise RuntimeError("a key was never painted")
        return (self._shown_s - due_s) * 1000.0

    def _on_due_timeout(self) -> None:
        self._is_pressed = True
        self._number += 1
        QTest.keyClick(self._edit, "abcdefg hijklm "[self._number % 15])

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if not self._is_pressed:
            return False
        if watched is not self._window:
            self._is_painted |= event.type() == QEvent.Type.Paint
        elif event.type() == QEvent.Type.UpdateRequest:
            # Handled here, so that the time is taken after the painting, not before.
            self._window.event(event)
            if self._is_painted:
                self._shown_s = time.perf_counter()
                self._is_pressed = False
                self._loop.quit()
            return True
        return False
