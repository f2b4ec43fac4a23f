"""Windows' rule for files, on Linux: what is open, or mapped, can be neither moved nor removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def open_paths() -> set[str]:
    """The files that this process has open or mapped into memory."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # the listing's own
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found |= {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/" in line}
    return found


def refuse_if_open(path: object) -> None:
    """Raises PermissionError if ``path``, or a file in that folder, is open."""
    real = os.path.realpath(os.fspath(path))  # type: ignore[call-overload]
    held = [name for name in open_paths() if name == real or name.startswith(f"{real}/")]
    # A folder may be open itself: what lists it.
    held = [name for name in held if not os.path.isdir(name)]
    if held:
        raise PermissionError(13, f"The process cannot access the file: {held}", str(path))


def apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes moving and removing follow the rule for the rest of a test."""
    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, _checked(getattr(os, name), arguments=2))
    for name in ("unlink", "remove"):
        monkeypatch.setattr(os, name, _checked(getattr(os, name), arguments=1))
    real_rmtree = shutil.rmtree

    def rmtree(path: Any, ignore_errors: bool = False, **more: Any) -> None:
        try:
            refuse_if_open(path)
        except PermissionError:
            if not ignore_errors:
                raise
            return
        real_rmtree(path, ignore_errors, **more)

    monkeypatch.setattr(shutil, "rmtree", rmtree)


def _checked(act: Callable[..., None], arguments: int) -> Callable[..., None]:
    def checked(*paths: Any, **more: Any) -> None:
        # With a folder's descriptor the name alone says nothing; rmtree is looked at as a whole.
        if more.get("dir_fd") is None:
            for path in paths[:arguments]:
                refuse_if_open(path)
        act(*paths, **more)

    return checked


def everything_below(folder: Path) -> list[str]:
    """Names of all files under ``folder``, with slashes."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
