"""Looks through the messages on a thread of its own, so that typing never waits. Qt-free."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from app.store_search import SearchResult, find_messages
from app.store_uri import read_only_uri


class Searcher:
    """Answers the newest question only; an older one that is still running is broken off.

    ``on_found`` is called on the searcher's thread. The thread starts with the first question.
    """

    def __init__(self, database: Path, on_found: Callable[[SearchResult], None]) -> None:
        self._database = database
        self._on_found = on_found
        self._changed = threading.Condition()
        self._query: str | None = None
        self._is_closing = False
        self._connection: sqlite3.Connection | None = None
        self._thread: threading.Thread | None = None

    def ask(self, query: str) -> None:
        """Never blocks; ``on_found`` follows unless another question comes first."""
        with self._changed:
            self._query = query
            self._break_off()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="quire-search", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread. Nothing is found after it."""
        with self._changed:
            self._is_closing = True
            self._break_off()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(5.0)

    def _break_off(self) -> None:
        if self._connection is not None:
            self._connection.interrupt()

    def _run(self) -> None:
        while (query := self._next()) is not None:
            result = self._find(query)
            with self._changed:
                is_wanted = self._query is None and not self._is_closing
            if is_wanted:
                self._on_found(result)
        with self._changed:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _next(self) -> str | None:
        with self._changed:
            while self._query is None and not self._is_closing:
                self._changed.wait()
            query, self._query = self._query, None
            return None if self._is_closing else query

    def _find(self, query: str) -> SearchResult:
        try:
            if self._connection is None:
                uri = read_only_uri(self._database)
                connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
                with self._changed:
                    self._connection = connection
            return find_messages(self._connection, query)
        except sqlite3.Error as error:
            self._drop_connection()
            return SearchResult(query, error=str(error))

    def _drop_connection(self) -> None:
        """The next question opens another one, unless this one was only broken off."""
        with self._changed:
            if self._query is not None or self._connection is None:
                return
            connection, self._connection = self._connection, None
        with suppress(sqlite3.Error):
            connection.close()
