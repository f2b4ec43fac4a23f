"""How much larger than usual text is shown: the steps, and what was kept of them. Qt-free."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

NORMAL = 1.0
STEPS = (0.5, 0.67, 0.8, 0.9, NORMAL, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


def stepped(zoom: float, by: int) -> float:
    """The next larger step (1) or the next smaller one (−1)."""
    at = bisect_right(STEPS, zoom) if by > 0 else bisect_left(STEPS, zoom) - 1
    return STEPS[max(0, min(len(STEPS) - 1, at))]


def zoom_of(text: str) -> float:
    """What was kept; what makes no sense is the usual size."""
    try:
        zoom = float(text)
    except ValueError:
        return NORMAL
    return zoom if STEPS[0] <= zoom <= STEPS[-1] else NORMAL
