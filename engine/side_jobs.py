"""Jobs that a thread beside the engine's does one after the other; they end in the engine's."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class Job(Protocol):
    """``dropped`` is set when nobody wants its end any more."""

    dropped: bool

    def conclude(self) -> None:
        """The job's end. Engine thread."""


J = TypeVar("J", bound=Job)


class SideJobs(Generic[J]):
    """What waits, what runs and what is done, in order of arrival.

    The thread starts with the first job. All methods are for the engine thread.

    Args:
        name: of the thread.
        run: does a job in that thread; it must not raise.
        changed: called from that thread whenever there is something to ``conclude``.
    """

    def __init__(self, name: str, run: Callable[[J], None], changed: Callable[[], None]) -> None:
        self._closing = False
        self._name = name
        self._do = run
        self._changed = changed
        # In order of arrival; a dict, since jobs end in the middle of it too.
        self._pending: dict[J, None] = {}
        self._todo: deque[J] = deque()
        self._done: deque[J] = deque()
        self._work = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """Jobs that have not ended."""
        return len(self._pending)

    def __iter__(self) -> Iterator[J]:
        return iter(self._pending)

    def add(self, job: J) -> None:
        """Takes up a job."""
        self._pending[job] = None
        self._todo.append(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._work.set()

    def conclude(self) -> None:
        """Ends the jobs that were done since the last call."""
        while self._done:
            job = self._done.popleft()
            if not job.dropped:
                del self._pending[job]
                job.conclude()

    def drop(self, which: Callable[[J], bool] = lambda _job: True) -> list[J]:
        """Forgets jobs, also the one that runs; they will not be concluded."""
        dropped = [job for job in self._pending if which(job)]
        for job in dropped:
            job.dropped = True
            del self._pending[job]
        return dropped

    def close(self, timeout_s: float) -> bool:
        """Ends the thread after the job that runs; False if that took longer."""
        self.drop()
        self._closing = True
        self._work.set()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._closing:
            self._work.wait()
            self._work.clear()
            while self._todo and not self._closing:
                job = self._todo.popleft()
                if not job.dropped:
                    self._do(job)
                    if not job.dropped:
                        self._done.append(job)
                        self._changed()
                # What has been unloaded must not live on here.
                del job
