"""One process for one data directory: a lock that dies with its process. Qt-free."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

from app.app_error import DataDirectoryError, DataDirectoryInUseError

_HELD = frozenset({errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK})


class DirectoryLock:
    """Holds a data directory for this process until ``release`` or the end of the process.

    The operating system drops the lock of a killed process, so that no stale lock can be left
    behind.
    """

    def __init__(self, lock_file: Path) -> None:
        """Takes the lock at once; makes the directory if needed.

        Raises:
            DataDirectoryInUseError: another process holds it.
            DataDirectoryError: the directory cannot be made or its file cannot be locked.
        """
        self._file = -1
        path = str(lock_file.parent)
        try:
            lock_file.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirectoryError(
                f"The data directory {path} cannot be used: {error.strerror or error}",
                path=path,
                reason=error.strerror or str(error),
            ) from error
        try:
            _lock(self._file)
        except OSError as error:
            self.release()
            if error.errno in _HELD:
                raise DataDirectoryInUseError(
                    f"Another Quire window has the data directory {path} open.", path=path
                ) from error
            raise DataDirectoryError(
                f"The data directory {path} cannot be locked: {error.strerror or error}",
                path=path,
                reason=error.strerror or str(error),
            ) from error

    def release(self) -> None:
        """Gives the lock back. A second call does nothing."""
        if self._file >= 0:
            # Closing alone gives it back on Windows too, but some moments later: too late for a
            # program that starts again.
            with suppress(OSError):
                _unlock(self._file)
            os.close(self._file)
            self._file = -1


if sys.platform == "win32":

    def _lock(file: int) -> None:
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

    def _unlock(file: int) -> None:
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

else:

    def _lock(file: int) -> None:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(file: int) -> None:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)
