"""When Python may look for reference cycles. Qt-free.

A full collection walks every object while it holds the interpreter. With torch loaded that takes
over 100 ms, in whatever thread happens to start it, and the window stands still for as long.
"""

from __future__ import annotations

import gc

from app.session_state import ModelStatus


def hold_back() -> None:
    """No collections for now: imports make many objects and hardly any garbage."""
    gc.disable()


class GarbagePolicy:
    """Follows the model: what is there once it is loaded is set aside and not walked again."""

    def __init__(self) -> None:
        self._settled = False

    def model_changed(self, status: ModelStatus) -> None:
        """Call it with each new status of the model."""
        if status is ModelStatus.LOADING and self._settled:
            # The old model's cycles must be found, so everything counts again.
            gc.unfreeze()
            self._settled = False
        elif status not in (ModelStatus.LOADING, ModelStatus.STARTING) and not self._settled:
            gc.freeze()
            gc.enable()
            self._settled = True

    def close(self) -> None:
        """Back to how Python starts."""
        gc.unfreeze()
        gc.enable()
