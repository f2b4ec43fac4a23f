"""The archive that users fetch: its name, its compression and its SHA-256."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CHUNK = 1 << 20
XZ_PRESET: Final = 2
"""Makes 281 MB of a CPU bundle of 762. Higher ones take several times as long for some percent."""


def archive_name(name: str, version: str, variant: str, system: str = sys.platform) -> str:
    """``quire-1.2.3-linux-x86_64-cpu``, without the ending."""
    systems = {"linux": "linux", "win32": "windows", "darwin": "macos"}
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return f"{name}-{version}-{systems.get(system, system)}-{machine}-{variant}"


def make_archive(bundle: Path, stem: Path, system: str = sys.platform) -> Path:
    """Packs ``bundle`` into ``stem`` + ending, as one folder of the stem's name.

    A zip on Windows, which opens it without a tool; a tar.xz elsewhere, which keeps links and
    modes. Appears whole or not at all. Takes minutes.
    """
    target = stem.with_name(stem.name + (".zip" if system == "win32" else ".tar.xz"))
    partial = target.with_name(target.name + ".partial")
    if system == "win32":
        _zip(bundle, partial, stem.name)
    else:
        _tar(bundle, partial, stem.name)
    partial.replace(target)
    return target


def write_sum(archive: Path) -> str:
    """Writes ``<archive>.sha256`` in the form that ``sha256sum -c`` reads, and returns the sum."""
    digest = hashlib.sha256()
    with archive.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    line = f"{digest.hexdigest()}  {archive.name}\n"
    archive.with_name(archive.name + ".sha256").write_text(line, encoding="ascii", newline="\n")
    return digest.hexdigest()


def _files(bundle: Path) -> Iterator[Path]:
    # Sorted, so that the same bundle gives the same archive.
    yield from sorted(bundle.rglob("*"))


def _zip(bundle: Path, target: Path, folder: str) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in _files(bundle):
            if path.is_file():
                archive.write(path, f"{folder}/{path.relative_to(bundle).as_posix()}")


def _tar(bundle: Path, target: Path, folder: str) -> None:
    xz = shutil.which("xz")
    if xz is None:
        with tarfile.open(target, "w:xz", preset=XZ_PRESET) as archive:
            _fill(archive, bundle, folder)
        return
    # On all cores, and with the interpreter out of the way.
    command = [xz, f"-{XZ_PRESET}", "-T0", "-c"]
    with (
        target.open("wb") as file,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file) as process,
    ):
        assert process.stdin is not None
        with tarfile.open(fileobj=process.stdin, mode="w|") as archive:
            _fill(archive, bundle, folder)
        process.stdin.close()
        if process.wait() != 0:
            raise OSError(f"xz ended with status {process.returncode}")


def _fill(archive: tarfile.TarFile, bundle: Path, folder: str) -> None:
    for path in _files(bundle):
        name = f"{folder}/{path.relative_to(bundle).as_posix()}"
        archive.add(path, name, recursive=False, filter=_nobody)


def _nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The builder's user is nobody's business; everybody may read."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode |= 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        entry.mtime = int(epoch)
    return entry
