"""Work for moments in which nobody asks for anything: it is left as soon as somebody does."""

from __future__ import annotations

from collections.abc import Callable

Interrupted = Callable[[], bool]
"""Whether there is something else to do by now."""


def never() -> bool:
    """As ``Interrupted``, for work that is done to its end."""
    return False
