"""A profile's database file: locked, checked, opened, put aside if it is damaged. Qt-free."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from app.app_error import DataDirectoryError, StoreDamagedError, StoreWriteError
from app.paths import Profile
from app.single_instance import DirectoryLock
from app.store_check import is_check_due
from app.store_rescue import rescue
from app.store_schema import connect, open_database, open_to_read
from engine.api.errors import ErrorInfo
from engine.api.files import replace_file


class StoreFiles:
    """The lock and the connections of an open profile.

    ``problems``: what was wrong with the database and what became of it. ``is_read_only``: nothing
    could be written when it was opened. ``is_checked``: false if it is still to be checked.
    """

    def __init__(self, profile: Profile) -> None:
        """Takes the lock and opens the database to read from.

        Raises:
            DataDirectoryInUseError: another process has this profile open.
            DataDirectoryError: the directory or the database cannot be used.
            StoreTooNewError: the database is of a newer version; it was left as it is.
        """
        self.problems: list[ErrorInfo] = []
        self.is_read_only = False
        self._profile = profile
        self._lock = DirectoryLock(profile.lock_file)
        self.is_checked = is_check_due(profile)
        try:
            self.reader = self._opened()
        except sqlite3.Error as error:
            self._lock.release()
            raise self.unusable(error) from error
        except BaseException:
            self._lock.release()
            raise

    def unusable(self, error: sqlite3.Error) -> DataDirectoryError:
        """The error for a database that cannot be read."""
        return DataDirectoryError(
            f"The conversations in {self._profile.data_dir} cannot be opened: {error}",
            path=str(self._profile.data_dir),
            reason=str(error),
        )

    def connected(self) -> sqlite3.Connection:
        """A connection to write with; makes the tables that could not be made at the start.

        Raises:
            sqlite3.Error: the disk refuses.
        """
        open_ = open_database if self.is_read_only else connect
        return open_(self._profile.database)

    def renew_reader(self) -> None:
        """A proper connection to read from, if there can be one now."""
        with suppress(sqlite3.Error):
            connection = connect(self._profile.database)
            connection.row_factory = sqlite3.Row
            self.reader.close()
            self.reader, self.is_read_only = connection, False

    def close(self) -> None:
        """Gives the profile back."""
        self.reader.close()
        self._lock.release()

    def _opened(self) -> sqlite3.Connection:
        database = self._profile.database
        try:
            connection = open_database(database, check=self.is_checked)
        except sqlite3.OperationalError as error:
            # A full disk, most often. What is stored can be read; the writer tries again and again.
            self.problems.append(StoreWriteError.of(error).info())
            connection = open_to_read(database)
            self.is_read_only = True
        except (StoreDamagedError, sqlite3.DatabaseError) as error:
            kept = self._put_aside()
            connection = open_database(database)
            num_messages = rescue(kept, connection)
            self.problems.append(
                StoreDamagedError(
                    f"The conversation database was damaged ({error}). It was kept as {kept.name}; "
                    f"{num_messages:,} messages could be taken over.",
                    reason=str(error),
                    path=str(kept),
                ).info()
            )
        with suppress(OSError):
            self._profile.check_file.unlink(missing_ok=True)
        connection.row_factory = sqlite3.Row
        return connection

    def _put_aside(self) -> Path:
        """Moves the database away with its log. Returns where it is now."""
        database = self._profile.database
        kept = database.with_name(
            f"{database.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}.sqlite3"
        )
        for suffix in ("", "-wal", "-shm", "-journal"):
            part = database.with_name(database.name + suffix)
            if part.exists():
                replace_file(part, kept.with_name(kept.name + suffix))
        return kept
