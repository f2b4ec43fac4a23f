"""Fetches that outlive the program: one small file each in the folder that they fill. Qt-free."""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from app.fetching.catalogue import Choice, Kind, RemoteFile, Repository
from app.fetching.errors import FetchInUseError, FileWriteError, UnsafeNameError
from app.fetching.names import JOB_SUFFIX, TRASH_SUFFIX, folder_name, local_name
from app.fetching.partial import Part
from engine.api.errors import ErrorInfo
from engine.api.files import discard, replace_file

_LOG = logging.getLogger(__name__)
_VERSION = 1
_MAX_JOB_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be fetched. ``commit``: all files are of this one.

    ``finished``: local names of files that this job has completed, not those that it found there.
    ``error``: why it failed, until it is tried again.
    """

    repo_id: str
    commit: str
    key: str
    kind: Kind
    licence: str
    files: tuple[RemoteFile, ...]
    added_at: float
    finished: tuple[str, ...] = ()
    error: ErrorInfo | None = None

    @property
    def job_id(self) -> str:
        """The same for the same choice of the same repository."""
        text = f"{self.repo_id}\n{self.kind}\n{self.key}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def folder(self, models_dir: Path) -> Path:
        """Where its files lie."""
        return models_dir / folder_name(self.repo_id)

    def model_path(self, models_dir: Path) -> Path:
        """What is loaded: the GGUF or its first part, or the folder."""
        folder = self.folder(models_dir)
        return folder / local_name(self.files[0].name) if self.kind is Kind.GGUF else folder

    def with_file(self, file: RemoteFile) -> Job:
        """The same job after the hub changed ``file``."""
        files = tuple(file if old.name == file.name else old for old in self.files)
        return replace(self, files=files)

    def with_finished(self, name: str) -> Job:
        """The same job, ``name`` being complete."""
        return replace(self, finished=(*self.finished, local_name(name)))


def job_for(repository: Repository, choice: Choice, now: float | None = None) -> Job:
    """A new job."""
    return Job(
        repo_id=repository.repo_id,
        commit=repository.commit,
        key=choice.key,
        kind=choice.kind,
        licence=repository.licence,
        files=choice.files,
        added_at=time.time() if now is None else now,
    )


class JobFiles:
    """The jobs that are stored in a model folder."""

    def __init__(self, models_dir: Path) -> None:
        self.models_dir = models_dir

    def load(self) -> list[Job]:
        """All that are stored, the oldest first. One that cannot be read is left where it is."""
        found: list[Job] = []
        with suppress(OSError):
            for path in sorted(self.models_dir.glob(f"*/*{JOB_SUFFIX}")):
                try:
                    found.append(_read(path))
                except (OSError, ValueError, TypeError, KeyError, UnsafeNameError) as error:
                    _LOG.warning("%s cannot be read: %s", path.name, error)
        return sorted(found, key=lambda job: job.added_at)

    def thrown_away(self) -> list[Path]:
        """What was still to be swept when the last program ended."""
        with suppress(OSError):
            return list(self.models_dir.glob(f"*/*{TRASH_SUFFIX}"))
        return []

    def save(self, job: Job) -> None:
        """
        Raises:
            FileWriteError: it cannot be written.
        """
        path = self._path(job)
        values = asdict(job)
        if job.error is None:
            # Versions that know nothing of it read what has not failed.
            del values["error"]
        stored = json.dumps({"version": _VERSION, **values}, indent=1)
        try:
            try:
                _write(path, stored)
            except FileNotFoundError:
                # The folder was empty, and went with another fetch that was cancelled just then.
                _write(path, stored)
        except OSError as error:
            raise FileWriteError(
                f"{path.parent} cannot be written: {error.strerror or error}",
                name=path.parent.name,
                reason=error.strerror or str(error),
            ) from error

    def keep_error(self, job: Job, error: ErrorInfo | None) -> Job:
        """The same job with why it failed, None while it is tried again. Stored if it can be; never
        raises.
        """
        if job.error == error:
            return job
        job = replace(job, error=error)
        try:
            self.save(job)
        except FileWriteError as trouble:
            _LOG.warning("what has become of a fetch is not kept: %s", trouble.message)
        return job

    def forget(self, job: Job) -> None:
        """The job is over; what it fetched stays."""
        with suppress(OSError):
            self._path(job).unlink(missing_ok=True)

    def throw_away(self, job: Job) -> list[Path]:
        """Takes away what the job has fetched, at once; ``sweep`` what is returned, which may take
        long. Files that were there before the job stay, and those another process is fetching.
        """
        thrown: list[Path] = []
        folder = job.folder(self.models_dir)
        for file in job.files:
            part = Part(folder, file)
            leftovers = [part.partial, part.state_file]
            if part.target.name in job.finished:
                leftovers.append(part.target)
            if not any(path.exists() for path in leftovers):
                continue
            with suppress(FetchInUseError, FileWriteError), part.locked():
                for path in filter(Path.exists, leftovers):
                    trash = folder / f"{uuid.uuid4().hex}{TRASH_SUFFIX}"
                    with suppress(OSError):
                        replace_file(path, trash)
                        thrown.append(trash)
        return thrown

    def bytes_there(self, job: Job) -> int:
        """How much of it is on the disk, whole files and parts; unchecked."""
        folder = job.folder(self.models_dir)
        return sum(_bytes_of(Part(folder, file)) for file in job.files)

    def _path(self, job: Job) -> Path:
        return job.folder(self.models_dir) / f"{job.job_id}{JOB_SUFFIX}"


def sweep(paths: Iterable[Path]) -> None:
    """Deletes files, and their folders if nothing else is in them. A large file takes its time."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()


def bytes_there(models_dir: Path, repo_id: str, files: Iterable[RemoteFile]) -> int:
    """How much of ``files`` is on the disk already, whole files and parts; unchecked."""
    folder = models_dir / folder_name(repo_id)
    return sum(_bytes_of(Part(folder, file)) for file in files)


def is_there(models_dir: Path, repo_id: str, files: Iterable[RemoteFile]) -> bool:
    """Whether all of ``files`` are there under their final names, with the right sizes."""
    folder = models_dir / folder_name(repo_id)
    return all(_has(Part(folder, file)) for file in files)


def _has(part: Part) -> bool:
    try:
        return part.target.stat().st_size == part.file.size
    except OSError:
        return False


def _bytes_of(part: Part) -> int:
    try:
        size = part.target.stat().st_size
    except OSError:
        return min(part.num_bytes, part.file.size)
    return size if size == part.file.size else 0


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        replace_file(temporary, path)
    except OSError:
        discard(temporary)
        raise


def _read(path: Path) -> Job:
    if path.stat().st_size > _MAX_JOB_BYTES:
        raise ValueError("it is too large")
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored.pop("version") != _VERSION:
        raise ValueError("it is of another version of Quire")
    files = tuple(RemoteFile(**file) for file in stored.pop("files"))
    error = _error(stored.pop("error", None))
    job = Job(
        **{**stored, "kind": Kind(stored["kind"]), "finished": tuple(stored["finished"])},
        files=files,
        error=error,
    )
    # Whoever can write here could otherwise have files written elsewhere.
    for file in files:
        local_name(file.name)
    if not files or folder_name(job.repo_id) != path.parent.name:
        raise ValueError("it belongs to another folder")
    return job


def _error(stored: Any) -> ErrorInfo | None:
    if stored is None:
        return None
    numbers = tuple((str(name), value) for name, value in stored["numbers"])
    if not all(isinstance(value, str | int | float) for _name, value in numbers):
        raise ValueError("its error makes no sense")
    code, message, action = (str(stored[name]) for name in ("code", "message", "action"))
    return ErrorInfo(code, message, action, numbers)
