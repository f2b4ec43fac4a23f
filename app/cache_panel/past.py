"""The pool at an earlier moment: a copy of the model, folded back over its history. No Qt."""

from __future__ import annotations

import time

from app.cache_panel.history import History
from app.cache_panel.pool_model import PoolModel

_LOOK_EVERY = 64


class Past:
    """``model`` is the pool after ``position`` events of ``history``, which goes on growing."""

    def __init__(self, model: PoolModel, history: History) -> None:
        self.model = model.copy()
        self.position = history.end
        self._history = history

    def seek(self, position: int, budget_s: float = float("inf")) -> bool:
        """Folds towards ``position`` for so long. True when it is there.

        A position that is no longer kept stands for the oldest that is.
        """
        history = self._history
        target = max(history.first, min(position, history.end))
        end_s = time.perf_counter() + budget_s
        while self.position != target:
            if self.position < target:
                event, _undo = history.entry(self.position)
                fits = self.model.forward(event) is not None
                self.position += 1
            else:
                event, undo = history.entry(self.position - 1)
                fits = self.model.backward(event, undo)
                self.position -= 1
            # Whatever was folded once fits again: only this class moves the model.
            assert fits, self.model.inconsistency
            if self.position % _LOOK_EVERY == 0 and time.perf_counter() > end_s:
                return False
        return True
