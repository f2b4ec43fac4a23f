"""A check of a large database beside the window, after an end that was in order. Qt-free.

A full check reads the whole file: half a second and more for a hundred thousand messages. After a
crash it comes before the window; where the last process closed the database itself it comes later.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from app.app_error import StoreDamageFoundError
from app.paths import Profile
from app.store_uri import read_only_uri

CHECK_AT_ONCE_BYTES = 64_000_000
"""Up to this size a check takes less than a tenth of a second."""

_LOG = logging.getLogger(__name__)


def finding_of(connection: sqlite3.Connection) -> str:
    """What is wrong with the database; ``ok`` if nothing is.

    Raises:
        sqlite3.Error: it cannot be read that far.
    """
    return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])


def is_check_due(profile: Profile) -> bool:
    """Whether the database is to be checked before it is used.

    To be asked before it is opened: a process that was killed leaves a log beside it.
    """
    database = profile.database
    logs = [database.with_name(f"{database.name}{suffix}") for suffix in ("-wal", "-journal")]
    with suppress(OSError):
        if profile.check_file.exists() or any(log.exists() and log.stat().st_size for log in logs):
            return True
        return database.stat().st_size <= CHECK_AT_ONCE_BYTES
    return True


class BackgroundCheck:
    """Checks once, on a thread of its own. What it finds is put aside by the next start."""

    def __init__(
        self, profile: Profile, on_damage: Callable[[StoreDamageFoundError], None]
    ) -> None:
        """``on_damage`` is called on the thread."""
        self._database: Path = profile.database
        self._check_file = profile.check_file
        self._on_damage = on_damage
        self._connection: sqlite3.Connection | None = None
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="quire-check", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Breaks the check off if it is still running."""
        self._is_closing = True
        connection = self._connection
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.interrupt()
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        uri = read_only_uri(self._database)
        try:
            connecting = sqlite3.connect(uri, uri=True, check_same_thread=False)
            with closing(connecting) as self._connection:
                finding = "ok" if self._is_closing else finding_of(self._connection)
        except sqlite3.OperationalError as error:
            # Broken off, or another fault than damage.
            _LOG.info("the database was not checked: %s", error)
            return
        except sqlite3.DatabaseError as error:
            finding = str(error)
        finally:
            self._connection = None
        if finding != "ok":
            self._on_damage(self.found(finding))

    def found(self, finding: str) -> StoreDamageFoundError:
        """Has the next start check at once. Returns what to tell."""
        with suppress(OSError):
            self._check_file.touch()
        return StoreDamageFoundError(
            f"The conversation database is damaged: {finding}", reason=finding
        )
