"""Disk space, and folders that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from engine.api.errors import ModelFetchError

MARGIN_BYTES = 64 << 20
"""Left free on the disk beside what we write, for the user's own data."""

_PARTIAL = ".partial-"


def megabytes(num_bytes: int) -> str:
    """``num_bytes`` as text in units of 10^6 bytes."""
    return f"{num_bytes / 1e6:,.0f} MB"


def require_free(folder: Path, num_bytes: int, purpose: str) -> None:
    """Checks that ``folder``'s disk has room for ``num_bytes`` more bytes and a margin.

    Raises:
        ModelFetchError: it has not; the error gives both numbers.
    """
    free = shutil.disk_usage(folder).free
    if free < num_bytes + MARGIN_BYTES:
        raise ModelFetchError(
            f"The disk of {folder} is too full: {purpose} needs {megabytes(num_bytes)} and "
            f"{megabytes(MARGIN_BYTES)} to spare, {megabytes(free)} are free.",
            action="Free some disk space, or choose another model folder.",
            needed_bytes=num_bytes + MARGIN_BYTES,
            free_bytes=free,
        )


@contextmanager
def writing_errors(folder: Path, purpose: str) -> Iterator[None]:
    """Turns an ``OSError`` while writing into an error that names cause, numbers and remedy.

    Raises:
        ModelFetchError: instead of the ``OSError``.
    """
    try:
        yield
    except OSError as error:
        free = 0
        with suppress(OSError):
            free = shutil.disk_usage(folder).free
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            raise ModelFetchError(
                f"The disk became full while {purpose}: {megabytes(free)} are free on the disk of "
                f"{folder}. Nothing half-done was kept.",
                action="Free some disk space, or choose another model folder.",
                free_bytes=free,
            ) from error
        raise ModelFetchError(
            f"{purpose[:1].upper()}{purpose[1:]} failed: {error.strerror or error} ({folder}).",
            action="Check that the model folder can be written to, or choose another.",
            free_bytes=free,
        ) from error


@contextmanager
def partial_folder(parent: Path) -> Iterator[Path]:
    """A fresh folder in ``parent`` that is gone afterwards, unless it was moved away whole.

    Leftovers of earlier tries whose process has ended are removed first.
    """
    remove_leftovers(parent)
    folder = parent / f"{_PARTIAL}{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(parent: Path) -> None:
    """Removes what processes that have ended left behind half-done in ``parent``."""
    for folder in parent.glob(f"{_PARTIAL}*"):
        pid = folder.name.removeprefix(_PARTIAL).split("-")[0]
        if not (pid.isdigit() and psutil.pid_exists(int(pid))):
            shutil.rmtree(folder, ignore_errors=True)
