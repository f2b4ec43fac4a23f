"""How long tasks tell how far they are, and how they are stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from engine.api.errors import LoadCancelledError

Progress: TypeAlias = Callable[[str, float, str], None]
"""Called with the stage (as in ``ModelLoading``), its fraction from 0 to 1, and a detail."""

Cancelled: TypeAlias = Callable[[], bool]
"""True once the user wants the task to end, or something else to be done."""

Told: TypeAlias = Callable[[float], None]
"""Called with the fraction, from 0 to 1, of what is done."""

Breathe: TypeAlias = Callable[[], None]
"""Called now and then during long work: it may sleep, or raise to end the work."""


def no_progress(_stage: str, _fraction: float, _detail: str) -> None:
    """A ``Progress`` that tells nobody."""


def tell_nobody(_fraction: float) -> None:
    """A ``Told`` that tells nobody."""


def never_cancelled() -> bool:
    """A ``Cancelled`` that lets everything finish."""
    return False


def no_breath() -> None:
    """A ``Breathe`` that does nothing."""


def breathing(cancelled: Cancelled) -> Breathe:
    """A ``Breathe`` that raises ``LoadCancelledError`` once ``cancelled()`` is true."""
    return lambda: check_cancelled(cancelled)


def check_cancelled(cancelled: Cancelled) -> None:
    """Raises ``LoadCancelledError`` once ``cancelled()`` is true."""
    if cancelled():
        raise LoadCancelledError("Loading was stopped. Nothing half-done was kept.")
