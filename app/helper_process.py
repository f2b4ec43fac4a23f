"""A frozen program that a library has started as its helper is none of the user's windows."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_SIGNS = ("--multiprocessing-fork", "-c")
"""How Python's multiprocessing starts ``sys.executable``: to run a task, or to keep its books."""


def is_helper(arguments: Sequence[str]) -> bool:
    """Whether ``sys.argv`` is that of a helper; an ordinary start has neither of these."""
    return any(sign in arguments[1:] for sign in _SIGNS)


def run_if_helper() -> None:
    """Does a helper's work and ends the process; returns at once in an ordinary one.

    In a frozen program ``sys.executable`` is the program itself: without this each helper would
    open one more window. Nothing of ours starts one; libraries may.
    """
    if not getattr(sys, "frozen", False) or not is_helper(sys.argv):
        return
    import multiprocessing

    multiprocessing.freeze_support()
