"""Reads the entries of a large JSON file one by one, with a window of it in memory. Qt-free.

``json.loads`` of a whole file would hold the interpreter for seconds, and everything in the window
with it; an entry takes milliseconds.
"""

from __future__ import annotations

import codecs
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

FIRST_PIECE = 1 << 18
MAX_BYTES = 1 << 30
_ENCRYPTED = 1
_SPACE = re.compile(r"[ \t\n\r]*")

Told = Callable[[float], None]

DAMAGED_ARCHIVE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)
"""What reading a damaged archive raises, besides ``OSError``."""


class FileTooLargeError(ValueError):
    """More than ``MAX_BYTES``."""


class JsonWindow:
    """A cursor in JSON text that is read as it moves on."""

    def __init__(self, source: IO[bytes], size: int, told: Told) -> None:
        """``told`` hears, before each piece is read, what part of ``size`` bytes was read."""
        self._source = source
        self._size = max(1, size)
        self._told = told
        self._num_read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._is_all = False
        self._piece = FIRST_PIECE

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text) or not self._read_on():
                return self._text[self._at : self._at + 1]

    def take(self, wanted: str) -> bool:
        """Goes over the next character if it is ``wanted``."""
        if self.peek() != wanted:
            return False
        self._at += 1
        return True

    def require(self, wanted: str) -> None:
        """The same.

        Raises:
            ValueError: it is another one.
        """
        if not self.take(wanted):
            raise ValueError(f"{wanted!r} is missing before {self.peek() or 'the end'!r}")

    def value(self) -> Any:
        """The next value.

        Raises:
            ValueError: this is not JSON.
            RecursionError: it is nested too deeply.
        """
        self.peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except ValueError:
                # It may only be cut off. Twice as much each time, so that a long value is not
                # decoded over and over.
                if not self._read_on():
                    raise
                continue
            if _may_go_on(value, self._text[end:]) and self._read_on():
                continue
            self._at = end
            self._piece = FIRST_PIECE
            return value

    def _read_on(self) -> bool:
        """Reads another piece. False at the end."""
        if self._is_all:
            return False
        self._told(min(1.0, self._num_read / self._size))
        data = self._source.read(self._piece)
        self._num_read += len(data)
        if self._num_read > MAX_BYTES:
            raise FileTooLargeError("larger than 1 GB")
        self._piece *= 2
        self._is_all = not data
        self._text = self._text[self._at :] + self._decoder.decode(data, final=self._is_all)
        self._at = 0
        return True


def entries(window: JsonWindow, within: str) -> Iterator[tuple[str, Any]]:
    """What a JSON document holds: of a list its members, of an object its fields by name.

    Members of the list are named ``[]``. The list ``within`` an object is taken apart too: the name
    of its members is its own with ``[]``. Any other value holds nothing.

    Raises:
        ValueError: this is not JSON.
        RecursionError: it is nested too deeply.
    """
    if window.take("["):
        yield from (("[]", value) for value in _members(window))
    elif window.take("{"):
        yield from _fields(window, within)
    else:
        window.value()
    if window.peek():
        raise ValueError("something follows its end")


def _members(window: JsonWindow) -> Iterator[Any]:
    if window.take("]"):
        return
    while True:
        yield window.value()
        if window.take("]"):
            return
        window.require(",")


def _fields(window: JsonWindow, within: str) -> Iterator[tuple[str, Any]]:
    if window.take("}"):
        return
    while True:
        if window.peek() != '"':
            raise ValueError("the name of a field is missing")
        name = window.value()
        window.require(":")
        if name == within and window.take("["):
            yield from ((f"{name}[]", value) for value in _members(window))
        else:
            yield name, window.value()
        if window.take("}"):
            return
        window.require(",")


def _may_go_on(value: Any, after: str) -> bool:
    """True for a number so near the end of the text that its fraction may be cut off."""
    return isinstance(value, int | float) and len(after) < len("e+1")


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """The file and its size in bytes; of a ZIP archive the ``conversations.json`` in it.

    Raises:
        OSError: it cannot be read.
        FileTooLargeError
        DAMAGED_ARCHIVE: the archive is damaged, has no such file, or one that cannot be unpacked;
            some of them only when it is read.
    """
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            file.seek(0)
            yield file, _checked(path.stat().st_size)
            return
        file.seek(0)
        with ExitStack() as stack:
            try:
                archive = stack.enter_context(zipfile.ZipFile(file))
                found = _conversations_in(archive)
                member = stack.enter_context(archive.open(found))
            except (RuntimeError, ValueError) as error:
                # The way of packing is unknown, or a name in it is damaged.
                raise zipfile.BadZipFile(str(error)) from error
            yield member, _checked(found.file_size)


def _conversations_in(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    for found in archive.infolist():
        if Path(found.filename).name == "conversations.json":
            if found.flag_bits & _ENCRYPTED:
                raise zipfile.BadZipFile("it is protected by a password")
            return found
    raise zipfile.BadZipFile("there is no conversations.json in it")


def in_memory(data: bytes) -> tuple[IO[bytes], int]:
    """The same for what was read already."""
    return io.BytesIO(data), len(data)


def _checked(size: int) -> int:
    if size > MAX_BYTES:
        raise FileTooLargeError("larger than 1 GB")
    return size
