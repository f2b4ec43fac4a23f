"""A long computation cut into slices, wherever it calls ``pause``, without being rewritten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

_T = TypeVar("_T")

Pause = Callable[[], None]
"""Lets the caller go on until it asks for the next slice."""

THREAD_NAME = "quire-slices"


class _AbandonedError(BaseException):
    """Raised by ``pause`` when nobody wants the result any more."""


def no_pause() -> None:
    """For a computation that is not cut."""


def in_slices(work: Callable[[Pause], _T]) -> Generator[None, None, _T]:
    """Runs ``work`` up to its next ``pause`` at each step of the generator, and returns its result.

    It has a thread of its own, but never runs while its caller does, so that the two may use the
    same things. Closing the generator makes the ``pause`` in which it waits raise, and waits for
    the thread's end.
    """
    call = _Call(work)
    try:
        while not call.advance():
            yield
    finally:
        call.abandon()
    return call.result()


@dataclass(slots=True)
class Work:
    """How many slices a computation takes, as soon as it knows, and has taken."""

    total: int = 0
    done: int = 0

    @property
    def share(self) -> float:
        """0 to 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    def counted(self, pause: Pause) -> Pause:
        """``pause``, counted."""

        def counting() -> None:
            self.done += 1
            pause()

        return counting


def with_share(
    slices: Generator[None, None, _T], share: Callable[[], float]
) -> Generator[float, None, _T]:
    """``slices``, of which each tells what share of the work is done."""
    try:
        while True:
            try:
                next(slices)
            except StopIteration as stop:
                result: _T = stop.value
                return result
            yield share()
    finally:
        slices.close()


class _Call(Generic[_T]):
    def __init__(self, work: Callable[[Pause], _T]) -> None:
        self._work = work
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._outcome: list[_T] = []
        self._error: BaseException | None = None
        self._is_over = False
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def advance(self) -> bool:
        """One slice; True if it was the last."""
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        self._back.acquire()
        return self._is_over

    def abandon(self) -> None:
        """Ends the thread, wherever it is."""
        self._is_abandoned = True
        while self._thread.ident is not None and not self._is_over:
            self.advance()
        if self._thread.ident is not None:
            self._thread.join()

    def result(self) -> _T:
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._outcome.pop()
        finally:
            # Its frames hold a model: no cycle, for that may be found late.
            del error

    def _pause(self) -> None:
        self._back.release()
        self._go.acquire()
        if self._is_abandoned:
            raise _AbandonedError

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._is_abandoned:
                self._outcome.append(self._work(self._pause))
        except BaseException as error:
            # Nobody asks for it any more where the work was abandoned.
            self._error = None if self._is_abandoned else error
        finally:
            self._is_over = True
            self._back.release()
