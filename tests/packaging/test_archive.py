"""What users fetch: the name tells all, nothing is lost on the way, the sum is right."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import archive

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes and links")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "quire"
    (folder / "_internal").mkdir(parents=True)
    (folder / "quire").write_bytes(b"program")
    (folder / "quire").chmod(0o700)
    (folder / "_internal" / "data é 張").write_bytes(b"data" * 1000)
    if sys.platform != "win32":
        os.symlink("data é 張", folder / "_internal" / "link")
    return folder


def test_name_tells_version_platform_and_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert archive.archive_name("quire", "0.1.0", "cpu", "linux") == "quire-0.1.0-linux-x86_64-cpu"
    monkeypatch.setattr(platform, "machine", lambda: "AMD64")
    name = archive.archive_name("quire", "0.1.0", "cuda", "win32")
    assert name == "quire-0.1.0-windows-x86_64-cuda"


@posix
@pytest.mark.parametrize("xz", [True, False])
def test_tar_keeps_links_modes_and_names(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, xz: bool
) -> None:
    if not xz:
        monkeypatch.setattr(archive.shutil, "which", lambda _name: None)
    elif archive.shutil.which("xz") is None:
        pytest.skip("no xz here")
    made = archive.make_archive(bundle, tmp_path / "quire-1.0.0-linux", "linux")
    assert made.name == "quire-1.0.0-linux.tar.xz"
    with tarfile.open(made) as packed:
        entries = {entry.name: entry for entry in packed}
        packed.extractall(tmp_path / "out", filter="data")
    out = tmp_path / "out" / "quire-1.0.0-linux"
    assert (out / "_internal" / "link").read_bytes() == b"data" * 1000
    assert (out / "_internal" / "link").is_symlink()
    program = entries["quire-1.0.0-linux/quire"]
    assert (program.mode, program.uid, program.uname) == (0o755, 0, "root")
    assert entries["quire-1.0.0-linux/_internal/data é 張"].mode & 0o444 == 0o444
    assert not list(tmp_path.glob("*.partial"))


def test_zip_holds_one_folder(bundle: Path, tmp_path: Path) -> None:
    made = archive.make_archive(bundle, tmp_path / "quire-1.0.0-windows", "win32")
    assert made.name == "quire-1.0.0-windows.zip"
    with zipfile.ZipFile(made) as packed:
        assert packed.testzip() is None
        assert {name.split("/")[0] for name in packed.namelist()} == {"quire-1.0.0-windows"}
        assert packed.read("quire-1.0.0-windows/quire") == b"program"


def test_sum_is_the_archives(tmp_path: Path) -> None:
    made = tmp_path / "quire.zip"
    made.write_bytes(b"x" * 3_000_000)
    digest = archive.write_sum(made)
    assert digest == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    listed = tmp_path / "quire.zip.sha256"
    assert listed.read_bytes() == f"{digest}  quire.zip\n".encode()
    if archive.shutil.which("sha256sum"):
        check = ["sha256sum", "-c", listed.name]
        assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 0


@posix
def test_a_packer_that_fails_leaves_no_archive(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive.shutil, "which", lambda _name: "false")
    with pytest.raises(OSError, match=r"ended with status 1|Broken pipe"):
        archive.make_archive(bundle, tmp_path / "quire-1", "linux")
    assert not (tmp_path / "quire-1.tar.xz").exists()
