"""The application is killed at random moments: while it streams, edits, forks, deletes, renames."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.helpers.kill_check import KillCheck

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the journal wants POSIX appends")


def kill(folder: Path, times: int, seed: int) -> None:
    """``times`` kills of profiles of up to ten starts each."""
    draw = random.Random(seed)
    held = interrupted = 0
    for start in range(0, times, 10):
        home = folder / str(start)
        home.mkdir()
        check = KillCheck(home, draw.getrandbits(32))
        for _ in range(min(10, times - start)):
            check.kill_once()
        held += check.findings.promises_held
        interrupted += check.findings.interrupted
        print(f"seed {seed}: {check.findings}")
    assert held > times
    assert interrupted > 0


class TinyDisk:
    """A file system of 12 MB that something else fills."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def full(self) -> Iterator[None]:
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        yield
        filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[TinyDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12M", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield TinyDisk(folder)
    # Lazily: a test that fails leaves files open.
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_nothing_committed_is_lost_by_kills_on_a_full_disk(disk: TinyDisk, tmp_path: Path) -> None:
    check = KillCheck(tmp_path, 11, disk.folder / "張 庭 é's dir")
    for _ in range(4):
        check.kill_once(disk.full())
    print(check.findings)
    assert check.findings.promises_held > 0


def test_nothing_committed_is_lost_by_twenty_kills(tmp_path: Path) -> None:
    kill(tmp_path, 20, seed=5)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_committed_is_lost_by_two_hundred_kills(tmp_path: Path) -> None:
    kill(tmp_path, 200, seed=random.SystemRandom().getrandbits(32))
