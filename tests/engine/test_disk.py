"""Disk space, folders that appear whole, and what is said when the disk is at fault."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.api.errors import ModelFetchError
from engine.loading.disk import partial_folder, remove_leftovers, require_free, writing_errors


def full(code: int) -> OSError:
    return OSError(code, os.strerror(code))


@pytest.mark.parametrize("code", [errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)])
def test_a_disk_that_fills_up_is_told_with_what_is_free(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=7_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    said = r"became full while fetching it: 7 MB"
    with (
        pytest.raises(ModelFetchError, match=said) as caught,
        writing_errors(tmp_path, "fetching it"),
    ):
        raise full(code)
    assert caught.value.numbers == {"free_bytes": 7_000_000}


def test_other_errors_are_told_in_the_systems_words(tmp_path: Path) -> None:
    said = r"^Fetching it failed: Permission denied \("
    gone = tmp_path / "gone"
    with pytest.raises(ModelFetchError, match=said) as caught, writing_errors(gone, "fetching it"):
        raise full(errno.EACCES)
    # The disk of a folder that is not there cannot be asked.
    assert caught.value.numbers == {"free_bytes": 0}
    with pytest.raises(ModelFetchError, match="failed: strange"), writing_errors(tmp_path, "it"):
        raise OSError("strange")


def test_room_for_the_margin_is_asked_for_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    require_free(tmp_path, 30_000_000, "it")
    with pytest.raises(ModelFetchError, match="it needs 40 MB and 67 MB to spare, 100 MB are free"):
        require_free(tmp_path, 40_000_000, "it")


def test_a_folder_is_gone_unless_it_was_moved_away(tmp_path: Path) -> None:
    with partial_folder(tmp_path) as folder:
        (folder / "file").touch()
        # Another one beside it, as by another thread, leaves this one alone.
        with partial_folder(tmp_path):
            assert folder.is_dir()
    assert list(tmp_path.iterdir()) == []
    with partial_folder(tmp_path) as folder:
        folder.rename(tmp_path / "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_leftovers_of_a_process_that_runs_stay(tmp_path: Path) -> None:
    # One of another user's too, as the first of all processes is: Linux 1, Windows 4.
    alive = [os.getpid(), 4 if os.name == "nt" else 1]
    folders = [tmp_path / f".partial-{pid}-abcd" for pid in alive]
    for folder in folders:
        folder.mkdir()
    remove_leftovers(tmp_path)
    assert all(folder.exists() for folder in folders)


def test_leftovers_of_a_process_that_has_ended_go(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    (tmp_path / f".partial-{process.pid}-abcd").mkdir()
    (tmp_path / ".partial-no-number").mkdir()
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []
