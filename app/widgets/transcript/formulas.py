"""Pictures of formulas: drawn on a thread, kept, and fetched by the window."""

from __future__ import annotations

import threading
from collections import deque

from PySide6.QtCore import QObject, QTimer, Signal

from app.formula_picture import FormulaError, Picture, draw
from app.markdown_math import Formula

_LOOK_MS = 15


class _Drawing:
    """What a thread draws, and what it has drawn. It knows nothing of Qt, whose objects may go
    while it works.
    """

    def __init__(self) -> None:
        self.done: deque[tuple[Formula, Picture | None]] = deque()
        self._waiting: deque[Formula] = deque()
        self._is_running = False
        self._lock = threading.Lock()

    def ask(self, formula: Formula) -> None:
        with self._lock:
            self._waiting.append(formula)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._work, name="formulas", daemon=True).start()

    def drop(self) -> None:
        """Nobody wants the rest."""
        with self._lock:
            self._waiting.clear()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return
                formula = self._waiting.popleft()
            try:
                picture: Picture | None = draw(formula)
            except FormulaError:
                picture = None
            self.done.append((formula, picture))


class Formulas(QObject):
    """Pictures of formulas, once they are drawn. ``drawn``: a set of those that are drawn now."""

    drawn = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._pictures: dict[Formula, Picture | None] = {}
        self._asked: set[Formula] = set()
        self._drawing = drawing = _Drawing()
        self._timer = QTimer(self)
        self._timer.setInterval(_LOOK_MS)
        self._timer.timeout.connect(self._take)
        self.destroyed.connect(lambda: drawing.drop())

    def picture(self, formula: Formula) -> Picture | None:
        """None if it cannot be drawn, or not yet: then it is drawn now, on a thread."""
        if formula in self._pictures:
            return self._pictures[formula]
        if formula not in self._asked:
            self._asked.add(formula)
            self._drawing.ask(formula)
            if not self._timer.isActive():
                self._timer.start()
        return None

    @property
    def is_busy(self) -> bool:
        """True while formulas that were asked for are not drawn."""
        return bool(self._asked)

    def _take(self) -> None:
        done = self._drawing.done
        drawn = set()
        while done:
            formula, picture = done.popleft()
            self._pictures[formula] = picture
            drawn.add(formula)
        self._asked -= drawn
        if not self._asked:
            self._timer.stop()
        if drawn:
            self.drawn.emit(drawn)
