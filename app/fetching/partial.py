"""A file that is not complete yet, and what is known of it, so that it goes on after a restart.

Beside ``NAME`` lie ``NAME.partial`` with the first bytes, ``NAME.partial.json`` with the address,
ETag, size and checksum that they belong to, and ``NAME.partial.lock``. Qt-free.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

from app.app_error import DataDirectoryError, DataDirectoryInUseError
from app.fetching.catalogue import RemoteFile
from app.fetching.errors import (
    ChecksumError,
    DiskFullError,
    FetchInUseError,
    FileWriteError,
    WrongSizeError,
)
from app.fetching.names import LOCK_SUFFIX, PARTIAL_SUFFIX, STATE_SUFFIX, local_name
from app.single_instance import DirectoryLock
from engine.api.files import replace_file

SPARE_BYTES = 64 << 20
"""Left free on the disk: conversations are still to be saved."""
_GIVEN_BACK = 32 << 10
"""Of a part that filled the disk to the last byte: why it failed is still to be saved."""

_BLOCK = 1 << 20
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_DISK_FULL = (39, 112)
"""Windows' own numbers for it, whatever Python makes of them in ``errno``."""


@dataclass(frozen=True, slots=True)
class PartState:
    """What the bytes of a part belong to; bytes of another state are never mixed with them."""

    url: str
    etag: str
    size: int
    sha256: str
    git_sha1: str

    def has_bytes_of(self, other: PartState | None) -> bool:
        """Whether bytes of ``other`` are bytes of this: a new commit often leaves a file alone."""
        if other is None:
            return False
        is_known = bool(self.sha256 or self.git_sha1)
        return self == (replace(other, url=self.url) if is_known else other)


class Part:
    """The part of one file in ``folder``; used inside ``locked``."""

    def __init__(self, folder: Path, file: RemoteFile) -> None:
        self.file = file
        name = local_name(file.name)
        self.target = folder / name
        self.partial = folder / f"{name}{PARTIAL_SUFFIX}"
        self.state_file = folder / f"{name}{STATE_SUFFIX}"
        self.lock_file = folder / f"{name}{LOCK_SUFFIX}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """This process alone works on it.

        Raises:
            FetchInUseError: another one does.
            FileWriteError: the folder cannot be made or written.
        """
        name = self.target.name
        try:
            lock = DirectoryLock(self.lock_file)
        except DataDirectoryInUseError as error:
            raise FetchInUseError(f"Another process fetches {name}.", name=name) from error
        except DataDirectoryError as error:
            raise FileWriteError(error.message, **error.numbers) from error
        try:
            yield
        finally:
            # Windows cannot delete it while it is open; elsewhere it would be too late then.
            if os.name != "nt":
                self._unlink_lock()
            lock.release()
            if os.name == "nt":
                self._unlink_lock()

    def _unlink_lock(self) -> None:
        if not self.partial.exists():
            with suppress(OSError):
                self.lock_file.unlink(missing_ok=True)

    @property
    def num_bytes(self) -> int:
        """How much is there; 0 if nothing is."""
        try:
            return self.partial.stat().st_size
        except OSError:
            return 0

    def begin(self, state: PartState) -> int:
        """Keeps what is there if it belongs to ``state``, else deletes it. Returns its bytes.

        Raises:
            FileWriteError: the folder cannot be written.
        """
        if not state.has_bytes_of(self._stored_state()) or self.num_bytes > state.size:
            self.discard()
        with self.writing(0):
            temporary = self.state_file.with_name(f"{self.state_file.name}.tmp")
            temporary.write_text(json.dumps(asdict(state), indent=1), encoding="utf-8")
            replace_file(temporary, self.state_file)
            self.partial.touch()
        return self.num_bytes

    def discard(self) -> None:
        """Deletes what is there.

        Raises:
            FileWriteError: it cannot be deleted.
        """
        with self.writing(0):
            self.partial.unlink(missing_ok=True)
            self.state_file.unlink(missing_ok=True)

    def require_room(self) -> None:
        """
        Raises:
            DiskFullError: the rest does not fit on the disk.
        """
        require_room(self.target.parent, self.file.size - self.num_bytes)

    @contextmanager
    def writing(self, num_bytes: int) -> Iterator[None]:
        """Errors of the file system as our own. ``num_bytes``: what was to be written."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL or getattr(error, "winerror", 0) in _DISK_FULL:
                trouble = disk_full(self.target.parent, num_bytes)
                with suppress(OSError):
                    os.truncate(self.partial, max(0, self.num_bytes - _GIVEN_BACK))
                raise trouble from error
            raise FileWriteError(
                f"{self.target.name} cannot be written: {error.strerror or error}",
                name=self.target.name,
                reason=error.strerror or str(error),
            ) from error

    def complete(self, digest: Digest) -> None:
        """Gives the part its final name if size and checksum match.

        Raises:
            WrongSizeError, ChecksumError: they do not; the part is deleted.
            FileWriteError: the file system refuses.
        """
        name, found = self.target.name, self.num_bytes
        if found != self.file.size:
            self.discard()
            raise WrongSizeError(
                f"{name} has {found:,} bytes, but the hub says {self.file.size:,}.",
                name=name,
                expected=self.file.size,
                actual=found,
            )
        if not digest.matches():
            self.discard()
            raise ChecksumError(f"{name} does not have the checksum that the hub says.", name=name)
        with self.writing(0):
            with self.partial.open("rb+") as file:
                os.fsync(file.fileno())
            replace_file(self.partial, self.target)
            self.state_file.unlink(missing_ok=True)

    def _stored_state(self) -> PartState | None:
        try:
            stored = json.loads(self.state_file.read_text(encoding="utf-8"))
            return PartState(**stored)
        except (OSError, ValueError, TypeError):
            return None


class Digest:
    """The checksum of a file while it comes: SHA-256, or git's SHA-1 for a small one.

    A file of which the hub tells neither is checked by its size alone.
    """

    def __init__(self, file: RemoteFile) -> None:
        self._expected = file.sha256 or file.git_sha1
        if file.sha256 or not file.git_sha1:
            self._hash = hashlib.sha256()
        else:
            self._hash = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def read(self, file: BinaryIO, num_bytes: int, told: Callable[[int], None]) -> None:
        """Takes in ``num_bytes`` of ``file``; ``told`` gets how many are done."""
        done = 0
        while done < num_bytes and (data := file.read(min(_BLOCK, num_bytes - done))):
            self._hash.update(data)
            done += len(data)
            told(done)

    def matches(self) -> bool:
        return not self._expected or self._hash.hexdigest() == self._expected.lower()


def require_room(folder: Path, num_bytes: int) -> None:
    """
    Raises:
        DiskFullError: the disk of ``folder`` has not ``num_bytes`` to spare.
    """
    free = free_bytes(folder)
    if free is not None and num_bytes + SPARE_BYTES > free:
        raise disk_full(folder, num_bytes)


def free_bytes(folder: Path) -> int | None:
    """Free bytes of the disk on which ``folder`` is or will be; None if nobody can tell."""
    for place in (folder, *folder.parents):
        with suppress(OSError):
            return shutil.disk_usage(place).free
    return None


def disk_full(folder: Path, num_bytes: int) -> DiskFullError:
    """The error, with its numbers."""
    free = free_bytes(folder) or 0
    return DiskFullError(
        f"The disk has {free:,} bytes free; {num_bytes:,} more are needed.",
        needed=num_bytes,
        free=free,
        path=str(folder),
    )
