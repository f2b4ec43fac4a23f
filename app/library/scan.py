"""Finds the models in folders. Reads names, sizes and times, and nothing of the files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.fetching.names import JOB_SUFFIX
from engine.api.model_files import (
    PICKLED_SUFFIXES,
    WEIGHTS_SUFFIX,
    ModelIdentity,
    PartName,
    files_of_gguf,
    model_identity,
)

MAX_DEPTH = 5
"""Of folders in a watched one: ``<folder>/<organisation>/<name>/<file>`` and some more."""
MAX_FOLDERS = 3000
"""In one watched folder; somebody may choose a whole disk."""

MISSING, DENIED = "missing", "denied"

EXPANDED_NAME = "source.json"
"""In every folder that the engine made from a GGUF, with what it was made from."""
_WEIGHTS = (WEIGHTS_SUFFIX, *PICKLED_SUFFIXES)
_GONE = ModelIdentity(0, 0)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A file or folder that is, or should be, a model. ``exists``: false of one that is gone."""

    path: str
    identity: ModelIdentity = _GONE
    exists: bool = True


@dataclass(frozen=True, slots=True)
class FolderScan:
    """What a watched folder holds.

    ``problem``: why it cannot be read, ``MISSING``, ``DENIED`` or the system's own words; else
    empty. ``visited``: all folders that were looked into. ``is_cut``: it has more folders than were
    looked into.
    """

    folder: str
    models: tuple[FoundModel, ...] = ()
    problem: str = ""
    visited: tuple[str, ...] = ()
    is_cut: bool = False


def scan_folder(folder: Path) -> FolderScan:
    """The models in ``folder`` and the folders in it. Never raises.

    GGUF files, of those in several parts the first that is there, and folders in Hugging Face's
    format. Damaged and incomplete ones too, so that they can be named; not what is being fetched,
    nor what the engine expanded for itself, and nothing hidden.
    """
    try:
        with os.scandir(folder):
            pass
    except FileNotFoundError:
        return FolderScan(str(folder), problem=MISSING)
    except PermissionError:
        return FolderScan(str(folder), problem=DENIED)
    except OSError as error:
        return FolderScan(str(folder), problem=error.strerror or str(error))
    models: list[FoundModel] = []
    visited: list[str] = []
    walk = _walk(folder)
    for place, files in walk:
        if len(visited) == MAX_FOLDERS:
            return FolderScan(str(folder), tuple(models), "", tuple(visited), is_cut=True)
        visited.append(str(place))
        models += _models_in(place, files)
    return FolderScan(str(folder), tuple(models), "", tuple(visited))


def look_at(path: Path) -> FoundModel:
    """A model that was opened by its path. Never raises."""
    try:
        if path.is_dir():
            return _as_folder(path, _files_in(path)[0])
        return _as_file(path)
    except OSError:
        return FoundModel(str(path), exists=False)


def files_of(path: Path) -> list[Path]:
    """What a model consists of: its folder, its file, or all parts of it, the first one first, also
    those that are not there.
    """
    return [path] if path.is_dir() else files_of_gguf(path)


def _models_in(place: Path, files: Sequence[os.DirEntry[str]]) -> Iterator[FoundModel]:
    names = {entry.name for entry in files}
    if EXPANDED_NAME in names:
        return
    suffixes = {os.path.splitext(name)[1].lower() for name in names}
    if "config.json" in names and suffixes.intersection(_WEIGHTS):
        yield _as_folder(place, files)
    is_fetched_to = any(name.endswith(JOB_SUFFIX) for name in names)
    seen: set[tuple[str, int]] = set()
    for entry in sorted(files, key=lambda entry: entry.name):
        if not entry.name.lower().endswith(".gguf"):
            continue
        part = PartName.of(entry.name)
        if part is not None:
            # The parts come in their order: this is the first one, or the first that is there.
            if (part.whole, part.count) in seen:
                continue
            seen.add((part.whole, part.count))
            if is_fetched_to and not names.issuperset(part.names()):
                continue
        try:
            yield _as_file(Path(entry.path))
        except OSError:
            continue


def _as_file(path: Path) -> FoundModel:
    return FoundModel(str(path), model_identity(path))


def _as_folder(place: Path, files: Sequence[os.DirEntry[str]]) -> FoundModel:
    size = newest = 0
    for entry in files:
        suffix = os.path.splitext(entry.name)[1].lower()
        if suffix in _WEIGHTS or suffix == ".json":
            try:
                stat = entry.stat()
            except OSError:
                # A link that leads nowhere, or a file that has gone meanwhile.
                continue
            newest = max(newest, stat.st_mtime_ns)
            size += stat.st_size if suffix in _WEIGHTS else 0
    return FoundModel(str(place), ModelIdentity(size, newest))


def _files_in(place: Path) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]]]:
    """(files, folders), none of them hidden."""
    files: list[os.DirEntry[str]] = []
    folders: list[os.DirEntry[str]] = []
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            # Of a link in a circle nobody can tell; it is no model, and the others are.
            with suppress(OSError):
                (folders if entry.is_dir() else files).append(entry)
    return files, folders


def _walk(folder: Path) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
    """Every folder once, whatever links lead to it; those that cannot be read are left out."""
    seen: set[str] = set()
    waiting = [(folder, 0)]
    while waiting:
        place, depth = waiting.pop()
        real = os.path.realpath(place)
        if real in seen:
            continue
        seen.add(real)
        try:
            files, folders = _files_in(place)
        except OSError:
            continue
        yield place, files
        if depth < MAX_DEPTH:
            waiting += [(Path(entry.path), depth + 1) for entry in folders]
