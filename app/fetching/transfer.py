"""One attempt to fetch one file: goes on where the last one ended, checks what it got. Qt-free."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, NoReturn

from app.fetching.catalogue import RemoteFile
from app.fetching.control import Control
from app.fetching.errors import ConnectionLostError, WrongSizeError
from app.fetching.hub import Hub
from app.fetching.hub_answers import RangeRefusedError
from app.fetching.partial import Digest, Part, PartState, require_room

_LOG = logging.getLogger(__name__)
_ROOM_EVERY = 16 << 20


class Stage(StrEnum):
    """``CHECKING``: what is on the disk is read again; ``FETCHING``: the network is used."""

    CHECKING = "checking"
    FETCHING = "fetching"


Told = Callable[[Stage, int], None]
"""Called with the stage and the bytes of the file that are done."""


class Transfer:
    """Fetches ``file`` of a repository at ``commit`` into ``folder``."""

    def __init__(
        self,
        hub: Hub,
        repo_id: str,
        commit: str,
        file: RemoteFile,
        folder: Path,
        control: Control,
        told: Told,
    ) -> None:
        self._hub = hub
        self._repo_id = repo_id
        self._commit = commit
        self._control = control
        self._told = told
        self._folder = folder
        self.file = file
        """As the hub lists it; another one after it has changed there."""

    def run(self) -> bool:
        """Returns when the file is there under its name, whole and checked.

        False if it was there already. What came before an error is kept for the next attempt.

        Raises:
            StoppedError: the control was stopped.
            FetchError: it cannot be fetched now.
        """
        part = Part(self._folder, self.file)
        if self._is_there(part):
            return False
        with part.locked():
            # Another process may have fetched it until a moment ago.
            if self._is_there(part):
                return False
            state = self._state()
            part = Part(self._folder, self.file)
            offset = part.begin(state)
            digest = self._digest_of(part, offset)
            part.require_room()
            self._fetch_rest(part, digest, offset)
            part.complete(digest)
        return True

    def _is_there(self, part: Part) -> bool:
        """Whether the very file is there: of a model that was changed by hand it is not."""
        target = part.target
        if not target.is_file() or target.stat().st_size != self.file.size:
            return False
        digest = Digest(self.file)
        with part.writing(0), target.open("rb") as file:
            digest.read(file, self.file.size, self._on_checked)
        return digest.matches()

    def _state(self) -> PartState:
        """Asks the hub what the file is now; ``file`` becomes another if it has changed."""
        file = self.file
        found = self._hub.metadata(self._repo_id, self._commit, file.name)
        self._control.check()
        known = (file.sha256, file.git_sha1)
        is_other = _is_digest(found.etag) and found.etag not in known
        if is_other or found.size not in (None, file.size):
            _LOG.info("%s of %s has changed on the hub", file.name, self._repo_id)
            file = self._hub.file(self._repo_id, self._commit, file.name)
            self._control.check()
        if found.size is not None and found.size != file.size:
            raise WrongSizeError(
                f"The hub says {found.size:,} and {file.size:,} bytes for {file.name}.",
                name=file.name,
                expected=file.size,
                actual=found.size,
            )
        self.file = file
        url = f"{self._hub.endpoint}/{self._repo_id}/{self._commit}/{file.name}"
        return PartState(url, found.etag, file.size, file.sha256, file.git_sha1)

    def _digest_of(self, part: Part, offset: int) -> Digest:
        digest = Digest(self.file)
        if offset:
            with part.writing(0), part.partial.open("rb") as file:
                digest.read(file, offset, self._on_checked)
        return digest

    def _on_checked(self, done: int) -> None:
        self._control.check()
        self._told(Stage.CHECKING, done)

    def _fetch_rest(self, part: Part, digest: Digest, offset: int) -> None:
        self._told(Stage.FETCHING, offset)
        if offset == self.file.size:
            return
        hub, file = self._hub, self.file
        self._control.check()
        try:
            with (
                hub.body(self._repo_id, self._commit, file.name, offset, file.size) as body,
                self._control.reading(body.abort),
            ):
                got = self._write(part, digest, offset, body.start, body.chunks())
        except RangeRefusedError as error:
            # The server has another file in mind: what is there is worth nothing to it.
            part.discard()
            raise ConnectionLostError(
                f"{hub.host} cannot go on in the middle of {file.name}.", host=hub.host
            ) from error
        if got < file.size:
            raise ConnectionLostError(
                f"{hub.host} sent {got:,} of {file.size:,} bytes of {file.name}.", host=hub.host
            )

    def _write(
        self, part: Part, digest: Digest, offset: int, start: int, chunks: Iterator[bytes]
    ) -> int:
        """Appends what comes and is not there yet. Returns where the file ends then."""
        position, checked = start, offset
        with part.writing(self.file.size - offset), part.partial.open("ab") as out:
            for chunk in chunks:
                self._control.check()
                position += len(chunk)
                if position > self.file.size:
                    self._refuse_longer(part, out)
                if position <= offset:
                    # A server that ignores the range sends the beginning once more.
                    continue
                new = chunk[max(0, offset - (position - len(chunk))) :]
                out.write(new)
                # What has come stays if the process is killed.
                out.flush()
                digest.update(new)
                self._told(Stage.FETCHING, position)
                if position - checked >= _ROOM_EVERY:
                    checked = position
                    require_room(self._folder, self.file.size - position)
        return max(position, offset)

    def _refuse_longer(self, part: Part, out: BinaryIO) -> NoReturn:
        out.close()
        part.discard()
        raise WrongSizeError(
            f"{self.file.name} is longer than the hub says ({self.file.size:,} bytes).",
            name=self.file.name,
            expected=self.file.size,
            actual=self.file.size + 1,
        )


def _is_digest(etag: str) -> bool:
    """Whether an ETag is the checksum of the content, as Hugging Face's are."""
    return len(etag) in (40, 64) and all(c in "0123456789abcdef" for c in etag.lower())
