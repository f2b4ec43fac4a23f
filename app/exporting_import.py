"""Conversations from a file: our own JSON, or ChatGPT's export. Qt-free.

A file of our own is read whole or not at all. ChatGPT's form is not ours to know: what cannot be
understood of it is left out, and told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from app.app_error import AppError
from app.conversation import Conversation, storable
from app.exporting import FORMAT, FORMAT_VERSION
from app.exporting_chatgpt import chatgpt_conversation, is_chatgpt
from app.exporting_read import our_conversation
from app.exporting_stream import (
    DAMAGED_ARCHIVE,
    FileTooLargeError,
    JsonWindow,
    Told,
    entries,
    in_memory,
    opened,
)
from app.titles import clean_title
from engine.api.errors import EngineError

_FAULTS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, EngineError)
_UNKNOWN = "These are not conversations in a form that Quire knows."


class ImportFileError(AppError):
    code = "import_file"
    action = (
        "Nothing was changed. Choose a file that Quire exported, or the conversations.json of a "
        "ChatGPT export."
    )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A conversation that could not be read: its number in the file, from 1, its title, if it has
    one, and why.
    """

    number: int
    title: str
    reason: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file held."""

    conversations: list[Conversation]
    left_out: tuple[LeftOut, ...] = ()


def _ignore(_part: float) -> None:
    return


def read_file(path: Path, told: Told = _ignore) -> Imported:
    """The conversations of a file, closed, with ids of their own; also from ChatGPT's ZIP archive.

    ``told`` hears after every piece what part was read, and after every conversation −1; what it
    raises ends the reading.

    Raises:
        ImportFileError: it cannot be read, or something in it is not as it should be.
    """
    try:
        with opened(path) as (source, size):
            return _read(source, size, told)
    except FileTooLargeError as error:
        raise ImportFileError(f"{path.name} is larger than 1 GB.", path=str(path)) from error
    except DAMAGED_ARCHIVE as error:
        reason = str(error).rstrip(".") or "it ends too early"
        raise ImportFileError(f"{path.name} cannot be read: {reason}.", path=str(path)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ImportFileError(f"{path.name} cannot be read: {reason}.", path=str(path)) from error
    except ImportFileError as error:
        raise ImportFileError(f"{path.name}: {error.message}", path=str(path)) from error


def read_conversations(data: bytes) -> Imported:
    """The same for what was in a file.

    Raises:
        ImportFileError: as above.
    """
    return _read(*in_memory(data), _ignore)


def _read(source: IO[bytes], size: int, told: Told) -> Imported:
    reader = _Reader()
    found = _parsed(JsonWindow(source, size, told))
    for name, value in found:
        # Pieces are large, and the user may want to stop between two of them.
        told(-1.0)
        reader.take(name, value)
    return reader.result()


def _parsed(window: JsonWindow) -> Iterator[tuple[str, Any]]:
    try:
        yield from entries(window, "conversations")
    except FileTooLargeError:
        raise
    except (ValueError, RecursionError) as error:
        raise ImportFileError(f"This is not JSON: {error}", reason=str(error)) from error


class _Reader:
    """Makes conversations of what comes, in whatever order."""

    def __init__(self) -> None:
        self._conversations: list[Conversation] = []
        self._left_out: list[LeftOut] = []
        self._fields: dict[str, Any] = {}
        self._waiting: list[Any] = []
        self._count = 0

    def take(self, name: str, value: Any) -> None:
        """A member of a list, with its name, or a field.

        Raises:
            ImportFileError: it is not as it should be.
        """
        if name == "[]":
            if not is_chatgpt(value):
                raise ImportFileError(_UNKNOWN)
            self._make(value, chatgpt_conversation, strict=False)
        elif name != "conversations[]":
            self._fields[name] = value
        elif "version" in self._fields:
            self._check_header()
            self._make(value, our_conversation)
        else:
            # What the file is comes after what is in it.
            self._waiting.append(value)

    def result(self) -> Imported:
        """All that came.

        Raises:
            ImportFileError: there is nothing, or the header says that it is something else.
        """
        if is_chatgpt(self._fields):
            self._make(self._fields, chatgpt_conversation, strict=False)
        elif self._fields or self._waiting:
            self._check_header()
            for value in self._waiting:
                self._make(value, our_conversation)
        elif not self._count:
            raise ImportFileError(_UNKNOWN)
        found = [c for c in self._conversations if c.messages or c.draft or c.attachments]
        if not found:
            if not self._left_out:
                raise ImportFileError("There are no messages in it.")
            raise _refusal(self._left_out[0])
        return Imported(found, tuple(self._left_out))

    def _check_header(self) -> None:
        if self._fields.get("format") != FORMAT:
            raise ImportFileError(_UNKNOWN)
        version = self._fields.get("version")
        if version != FORMAT_VERSION:
            raise ImportFileError(
                f"It is of version {version} of the format; this Quire knows {FORMAT_VERSION}."
            )
        if "conversations" in self._fields:
            raise ImportFileError("It has no list of conversations.")

    def _make(self, entry: Any, read: Callable[[Any], Conversation], strict: bool = True) -> None:
        self._count += 1
        try:
            self._conversations.append(read(entry))
        except _FAULTS as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            title = entry.get("title") if isinstance(entry, dict) else None
            title = clean_title(storable(title)) if isinstance(title, str) else ""
            fault = LeftOut(self._count, title, what)
            if strict:
                raise _refusal(fault) from error
            self._left_out.append(fault)


def _refusal(fault: LeftOut) -> ImportFileError:
    message = f"Conversation {fault.number} is not as it should be: {fault.reason}"
    return ImportFileError(message, number=fault.number, reason=fault.reason)
