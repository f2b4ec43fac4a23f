"""Stopping a thread that waits or reads. Qt-free."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StoppedError(Exception):
    """The user or the end of the program stopped it; no error."""


class Control:
    """One run of a fetch, as seen by those who stop it. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._stopped = False
        self._hurried = False
        self._abort: Callable[[], None] | None = None

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """Everything that waits or reads here ends at once."""
        with self._changed:
            self._stopped = True
            abort = self._abort
            self._changed.notify_all()
        if abort is not None:
            abort()

    def hurry(self) -> None:
        """Ends the present wait."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def check(self) -> None:
        """
        Raises:
            StoppedError: ``stop`` was called.
        """
        if self._stopped:
            raise StoppedError

    def wait(self, seconds: float) -> None:
        """Waits that long, or until ``hurry``.

        Raises:
            StoppedError: ``stop`` was called.
        """
        with self._changed:
            self._hurried = False
            self._changed.wait_for(lambda: self._stopped or self._hurried, seconds)
        self.check()

    @contextmanager
    def reading(self, abort: Callable[[], None]) -> Iterator[None]:
        """``abort`` ends what is done inside. An error there after ``stop`` is its effect.

        Raises:
            StoppedError: ``stop`` was called.
        """
        with self._changed:
            self.check()
            self._abort = abort
        try:
            yield
        except Exception:
            self.check()
            raise
        finally:
            with self._changed:
                self._abort = None
        self.check()
