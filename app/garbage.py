"""When Python looks for reference cycles, and in which thread. Qt-free.

Left to itself Python collects in whatever thread happens to make an object, in the middle of
whatever it does. A cycle with a widget in it would then be taken apart by the engine's thread, or
by the window's while Qt delivers an event to that very widget. So the collector is off while the
application runs, and the event loop calls ``collect_if_due`` now and then. It stays off at the end:
a thread that still imports something would take the closed window's cycles apart, holding a lock of
Qt's while it waits for the interpreter, and the window's thread the other way round, for ever.

A full collection walks every object while it holds the interpreter; with torch loaded that takes
over 100 ms. What is there once a model is loaded is therefore set aside.
"""

from __future__ import annotations

import gc
import time

from app.session_state import ModelStatus

INTERVAL_MS = 1000
"""How often the event loop should call ``collect_if_due``."""
FULL_INTERVAL_S = 30.0
"""Full collections are at least so far apart."""


def hold_back() -> None:
    """No collections for now: imports make many objects and hardly any garbage."""
    gc.disable()


class GarbagePolicy:
    """Follows the model: what is there once it is loaded is set aside and not walked again."""

    def __init__(self) -> None:
        self._settled = False
        self._is_later_model = self._holds_old_model = False
        self._last_full = time.monotonic()

    def model_changed(self, status: ModelStatus) -> None:
        """Call it with each new status of the model."""
        if status is ModelStatus.LOADING:
            if self._settled:
                # The old model's cycles must be found, so everything counts again.
                gc.unfreeze()
                self._settled, self._holds_old_model = False, True
            elif self._holds_old_model:
                # The load makes progress: the engine has let go of the old model by now.
                self._holds_old_model = False
                gc.collect()
        elif status is ModelStatus.NO_MODEL and self._settled:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        elif status is not ModelStatus.STARTING and not self._settled:
            if self._is_later_model:
                # Set aside, what is left of the old model would never be found: gigabytes, perhaps.
                gc.collect()
            gc.freeze()
            self._settled = self._is_later_model = True

    def collect_if_due(self) -> int | None:
        """Looks for cycles as Python itself would by now; returns the generation, None if none was
        due. Call it in the window's thread, from the event loop itself.
        """
        if not self._settled:
            # Everything would be walked, and most of it has only just come.
            return None
        counts, thresholds = gc.get_count(), gc.get_threshold()
        if counts[0] <= thresholds[0]:
            return None
        generation = 0
        if counts[1] > thresholds[1]:
            generation = 1
            now = time.monotonic()
            if counts[2] > thresholds[2] and now - self._last_full >= FULL_INTERVAL_S:
                generation, self._last_full = 2, now
        gc.collect(generation)
        return generation

    def close(self) -> None:
        """Nothing is set aside any more. What is left goes with the process."""
        gc.unfreeze()
