"""The one thread that writes to the database. Qt-free."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.app_error import StoreWriteError

_LOG = logging.getLogger(__name__)

PARTIAL_INTERVAL_S = 0.5
RETRY_INTERVAL_S = 2.0

Job = Callable[[sqlite3.Connection], None]
IdleJob = Callable[[sqlite3.Connection], bool]
Key = tuple[str, str]

_OUR_FAULT = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
)


class GivenUpError(Exception):
    """Raised by a job that is no longer worth doing: it is forgotten, and nobody is told."""


class StoreWriter:
    """Runs jobs in one transaction a batch, each key's newest job only.

    A job holds the whole value of its key, so that running the newest is enough and running it
    twice does no harm. When the disk refuses, everything stays queued and is tried again;
    ``on_error`` hears of the first failure in a row, ``on_recovered`` of the success after it.
    Both are called on the writer thread.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        on_error: Callable[[StoreWriteError], None],
        on_recovered: Callable[[], None],
        idle: IdleJob | None = None,
        repair: Job | None = None,
    ) -> None:
        """``idle`` works a little while nothing is due, again and again until it says False.

        ``repair`` is tried once if the database turns out to be damaged; ``idle`` goes on after it.
        """
        self.attempts = 0
        self._idle = self._idle_again = idle
        self._repair = repair
        self._connect = connect
        self._on_error = on_error
        self._on_recovered = on_recovered
        self._changed = threading.Condition()
        self._pending: dict[Key, Job] = {}
        self._due_s: float | None = None
        self._running = False
        self._held = 0
        self._failing = False
        self._closing = False
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="quire-store", daemon=True)
        self._thread.start()

    @property
    def is_failing(self) -> bool:
        """True from a refusal of the disk to the next success."""
        return self._failing

    @property
    def is_closing(self) -> bool:
        """True as soon as ``close`` was called: it waits for what is queued and running."""
        return self._closing

    def put(self, key: Key, job: Job) -> None:
        """Queues a job to run at once, in place of an older one with the same key."""
        with self._changed:
            self._pending[key] = job
            if not self._failing:
                self._due_s = 0.0
            self._changed.notify_all()

    def put_last(self, key: Key, job: Job) -> None:
        """Like ``put``, but after everything queued so far: for deletions."""
        with self._changed:
            self._pending.pop(key, None)
        self.put(key, job)

    def put_soon(self, key: Key, job: Job) -> None:
        """Queues a job to run within PARTIAL_INTERVAL_S; calling often costs next to nothing."""
        with self._changed:
            self._pending[key] = job
            if self._due_s is None:
                self._due_s = time.monotonic() + PARTIAL_INTERVAL_S
                self._changed.notify_all()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is queued inside is written in one transaction. Not for waiting inside."""
        with self._changed:
            self._held += 1
        try:
            yield
        finally:
            with self._changed:
                self._held -= 1
                self._changed.notify_all()

    def resume_idle(self) -> None:
        """There is work for ``idle`` again. For jobs: on the writer thread only."""
        self._idle = self._idle_again

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Waits until everything queued is written. False if that failed or took too long."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            first_attempt = self.attempts
            if self._pending:
                self._due_s = 0.0
                self._changed.notify_all()
            while self._pending or self._running:
                left = deadline - time.monotonic()
                failed = self._failing and self.attempts > first_attempt and not self._running
                if left <= 0 or failed or not self._thread.is_alive():
                    return False
                self._changed.wait(left)
            return True

    def close(self, timeout_s: float = 5.0) -> bool:
        """Writes what is queued and ends the thread. False if something could not be written."""
        with self._changed:
            self._closing = True
            self._due_s = 0.0
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._pending

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            if not batch:
                self._work_idly()
                continue
            self._write(batch)
            if self._closing and self._failing:
                break
        if self._connection is not None:
            self._connection.close()

    def _next_batch(self) -> dict[Key, Job] | None:
        """Waits until something is due; None: the writer is closed and done, empty: it is idle."""
        with self._changed:
            while True:
                if self._closing and not self._pending:
                    return None
                now = time.monotonic()
                if self._held:
                    self._changed.wait()
                    continue
                if self._pending and self._due_s is not None and self._due_s <= now:
                    break
                if self._idle is not None and not self._failing:
                    return {}
                wait_s = None if self._due_s is None or not self._pending else self._due_s - now
                self._changed.wait(wait_s)
            batch, self._pending = self._pending, {}
            self._due_s = None
            self._running = True
            return batch

    def _work_idly(self) -> None:
        """One slice of the idle job; an error ends it until the next start."""
        assert self._idle is not None
        goes_on = False

        def job(connection: sqlite3.Connection) -> None:
            nonlocal goes_on
            assert self._idle is not None
            goes_on = self._idle(connection)

        try:
            if self._connection is None:
                self._connection = self._connect()
            _run_in_transaction(self._connection, [job])
        except (sqlite3.Error, OSError) as error:
            goes_on = False
            _LOG.warning("work in the background ended: %s", error)
        if not goes_on:
            self._idle = None

    def _write(self, batch: dict[Key, Job]) -> None:
        failure: Exception | None = None
        refused: list[Exception] = []
        try:
            if self._connection is None:
                self._connection = self._connect()
            refused = self._run_or_repair(self._connection, batch)
        except (sqlite3.Error, OSError) as error:
            failure = error
        was_failing = self._failing
        with self._changed:
            self._running = False
            self.attempts += 1
            self._failing = failure is not None
            if failure is not None:
                # Positions of the older jobs first: a parent stays before its children.
                self._pending = batch | self._pending
                self._due_s = time.monotonic() + RETRY_INTERVAL_S
            elif self._pending and self._due_s is None:
                # Queued while the disk still refused, when nothing but the next try was due.
                self._due_s = 0.0
            self._changed.notify_all()
        if failure is not None and not was_failing:
            self._on_error(StoreWriteError.of(failure))
        elif failure is None and was_failing:
            self._on_recovered()
        for cause in refused:
            self._on_error(StoreWriteError.of(cause))

    def _run_or_repair(
        self, connection: sqlite3.Connection, batch: dict[Key, Job]
    ) -> list[Exception]:
        try:
            return _run_batch(connection, batch)
        except sqlite3.DatabaseError as error:
            # Its heirs are other faults than damage.
            if self._repair is None or type(error) is not sqlite3.DatabaseError:
                raise
            _LOG.warning("damage is repaired: %s", error)
            repair, self._repair = self._repair, None
            _run_in_transaction(connection, [repair])
            self.resume_idle()
            return _run_batch(connection, batch)


def _run_batch(connection: sqlite3.Connection, batch: dict[Key, Job]) -> list[Exception]:
    """One transaction for all; if a job is at fault, one for each, and the faulty ones' errors."""
    try:
        _run_in_transaction(connection, list(batch.values()))
    except Exception as error:
        if isinstance(error, sqlite3.Error | OSError) and not isinstance(error, _OUR_FAULT):
            raise
    else:
        return []
    refused: list[Exception] = []
    for job in batch.values():
        try:
            _run_in_transaction(connection, [job])
        except Exception as error:
            if isinstance(error, sqlite3.Error | OSError) and not isinstance(error, _OUR_FAULT):
                raise
            if not isinstance(error, GivenUpError):
                refused.append(error)
    return refused


def _run_in_transaction(connection: sqlite3.Connection, jobs: list[Job]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for job in jobs:
            job(connection)
        connection.execute("COMMIT")
    except BaseException:
        # SQLite rolls back by itself after some errors, a full disk among them.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
