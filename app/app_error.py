"""Every error of the application itself. Qt-free.

AppError
├── DataDirectoryError        the data directory cannot be made, written or locked
├── DataDirectoryInUseError   another window has this data directory open
├── StoreTooNewError          the database was written by a newer version
├── StoreDamagedError         the database failed its check
├── StoreDamageFoundError     the database in use failed a later check
└── StoreWriteError           something could not be saved (yet)
"""

from __future__ import annotations

from engine.api.errors import ErrorInfo


class AppError(Exception):
    """Base; ``numbers`` are facts by name for a translated text."""

    code = "app_error"
    action = ""

    def __init__(self, message: str, **numbers: int | float | str) -> None:
        super().__init__(message)
        self.message = message
        self.numbers = numbers

    def info(self) -> ErrorInfo:
        """The same error as a value, in the form that the engine's errors have."""
        return ErrorInfo(self.code, self.message, self.action, tuple(self.numbers.items()))


class DataDirectoryError(AppError):
    code = "data_directory"
    action = "Check its permissions and the free disk space, or start with another --data-dir."


class DataDirectoryInUseError(AppError):
    code = "data_directory_in_use"
    action = "Use the window that is open, or start with another --data-dir."


class StoreTooNewError(AppError):
    code = "store_too_new"
    action = "Update Quire, or start with another --data-dir. Nothing was changed."


class StoreDamagedError(AppError):
    code = "store_damaged"
    action = "The damaged file was kept; a new one was begun."


class StoreDamageFoundError(AppError):
    code = "store_damage_found"
    action = "Export what you need. The next start puts the file aside and begins a new one."


class StoreWriteError(AppError):
    code = "store_write"
    action = "Free some disk space. Saving is tried again; keep the window open until then."

    @classmethod
    def of(cls, error: Exception) -> StoreWriteError:
        """What SQLite or the file system said."""
        return cls(f"A conversation could not be saved: {error}", reason=str(error))
