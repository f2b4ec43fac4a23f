"""A position in a file, with a little of the file in memory; no step goes past the file's end."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from engine.api.errors import ModelFileError
from engine.loading.progress import Breathe

_CHUNK_BYTES = 1 << 18
_TEXTS_A_BREATH = 1_000
"""A tenth of a millisecond."""

_length_of = struct.Struct("<Q").unpack_from


class Window:
    """Reads forwards. A read file and not a mapped one: what shrinks meanwhile is an error and not
    the end of the program.

    Args:
        file: open for reading.
        path: its name, for errors.
        size: bytes that it had when it was opened.
        breathe: called by ``skip_texts`` and ``texts``, and to be called by others.
    """

    def __init__(self, file: BinaryIO, path: Path, size: int, breathe: Breathe) -> None:
        self.path = path
        self.size = size
        self.breathe = breathe
        self.position = 0
        self._file = file
        self._chunk = b""
        self._chunk_start = 0

    def require(self, num_bytes: int) -> None:
        """Raises:
        ModelFileError: the file has fewer bytes left.
        """
        if num_bytes > self.size - self.position:
            cut = f"what begins at byte {self.position:,} is cut off"
            raise truncated(self.path, self.position + num_bytes, self.size, cut)

    def skip(self, num_bytes: int) -> None:
        """Moves on without reading."""
        self.require(num_bytes)
        self.position += num_bytes

    def take(self, num_bytes: int) -> bytes:
        """The next bytes."""
        self.require(num_bytes)
        start = self._hold(num_bytes)
        self.position += num_bytes
        return self._chunk[start : start + num_bytes]

    def unpack(self, form: str) -> tuple[Any, ...]:
        """The next values, as the struct module's ``form`` says."""
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def uint32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def uint64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def skip_texts(self, count: int) -> None:
        """Moves over ``count`` texts, each with its length before it."""
        self.require(8 * count)
        while count:
            start = at = self._hold(8)
            chunk, last = self._chunk, len(self._chunk) - 8
            passed = 0
            for _ in range(min(count, _TEXTS_A_BREATH)):
                if at > last:
                    break
                at += 8 + _length_of(chunk, at)[0]
                passed += 1
            count -= passed
            self.skip(at - start)
            self.breathe()

    def texts(self, count: int) -> list[bytes]:
        """The next ``count`` texts, each with its length before it."""
        self.require(8 * count)
        found: list[bytes] = []
        while len(found) < count:
            start = at = self._hold(8)
            chunk, size = self._chunk, len(self._chunk)
            for _ in range(min(count - len(found), _TEXTS_A_BREATH)):
                begin = at + 8
                end = begin + _length_of(chunk, at)[0] if begin <= size else size + 1
                if end > size:
                    break
                found.append(chunk[begin:end])
                at = end
            if at == start:
                # It is longer than what is held.
                found.append(self.take(self.uint64()))
            else:
                self.skip(at - start)
            self.breathe()
        return found

    def _hold(self, num_bytes: int) -> int:
        """Has the next bytes in memory; returns where in the chunk they begin."""
        start = self.position - self._chunk_start
        if not 0 <= start <= len(self._chunk) - num_bytes:
            self._file.seek(self.position)
            self._chunk = self._file.read(max(num_bytes, _CHUNK_BYTES))
            self._chunk_start, start = self.position, 0
            if len(self._chunk) < num_bytes:
                raise truncated(
                    self.path,
                    self.position + num_bytes,
                    self.position + len(self._chunk),
                    f"it became shorter while byte {self.position:,} was read",
                )
        return start


def truncated(path: Path, needed: int, size: int, cut: str) -> ModelFileError:
    """The error for a file that is shorter than its own header says. ``cut``: what is missing."""
    return ModelFileError(
        f"{path.name} is truncated: its header describes at least {needed:,} bytes, the file has "
        f"{size:,}; {cut}.",
        expected_bytes=needed,
        actual_bytes=size,
    )


def damaged(path: Path, what: str) -> ModelFileError:
    """The error for a file whose header makes no sense."""
    return ModelFileError(f"{path.name} is damaged: {what}.", actual_bytes=path.stat().st_size)
