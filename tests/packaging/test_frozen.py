"""The build in dist/, as a user has it: in another place, as another user, without a network.

Needs `python3 packaging/dev.py build` before; ``QUIRE_BUNDLE`` names a bundle elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import build
import bundle_checks
import sizes
import spec_common
from app.early_check import NO_WINDOW

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = Path(os.environ.get("QUIRE_BUNDLE", ROOT / "dist" / build.NAME))
PROGRAM = f"{build.NAME}.exe" if sys.platform == "win32" else build.NAME
ODD_NAME = "é 張 build"
TOO_SLOW = re.compile(r"self-test: (first_paint|gui_load_gap|gui_max_gap)_ms is ")
"""What says more of a busy machine than of the program; tried by a test of its own."""

USER = 54321
"""Somebody who owns nothing on this machine, so that all that is his was written in the test."""

pytestmark = [
    pytest.mark.frozen,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (BUNDLE / PROGRAM).is_file(), reason=f"no build in {BUNDLE}: run dev.py build"
    ),
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="modes, users and namespaces of Linux")


@dataclass
class Machine:
    """A copy of the bundle in an odd place, and a user's folders beside it."""

    folder: Path
    bundle: Path
    home: Path
    temp: Path
    prefix: list[str] = field(default_factory=list)

    def run(
        self, *arguments: str, timeout_s: float = 600, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """The program with nothing of ours in its environment."""
        env = {**build.clean_environment(self.home), "TMPDIR": str(self.temp), "LANG": "C.UTF-8"}
        env |= {"TEMP": str(self.temp), "TMP": str(self.temp), **environ}
        return subprocess.run(
            [*self.prefix, str(self.bundle / PROGRAM), *arguments],
            cwd=self.home,
            env=env,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout_s,
            check=False,
        )

    def self_test(self, **environ: str) -> dict[str, object]:
        """The report of a self-test that has found nothing wrong but that it took long."""
        path = self.home / "report.json"
        done = self.run("--self-test", "--json", str(path), **environ)
        faults = [line for line in done.stderr.splitlines() if line.startswith("self-test: ")]
        assert [line for line in faults if not TOO_SLOW.match(line)] == []
        assert path.is_file(), f"status {done.returncode}: {done.stderr[-2000:]}"
        report: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
        assert report["ok"] is (not faults)
        return report


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """The copy shares the files' contents with the original, which nobody writes to."""
    folder = tmp_path / ODD_NAME
    bundle, home, temp = folder / "quire", folder / "home é", folder / "temp 張"
    shutil.copytree(BUNDLE, bundle, symlinks=True, copy_function=os.link)
    for place in (home, temp):
        place.mkdir()
    yield Machine(folder, bundle, home, temp)
    # The folders of pytest stay for some runs: hundreds of megabytes must not.
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def stranger(machine: Machine) -> Iterator[Machine]:
    """The same for an ordinary user without a network, who may read the program and no more."""
    unshare, setpriv = shutil.which("unshare"), shutil.which("setpriv")
    if os.geteuid() != 0 or unshare is None or setpriv is None:
        pytest.skip("needs root, setpriv and unshare, to become another user without a network")
    # Nobody else may enter pytest's own folders.
    place = Path("/var/tmp") / f"quire {uuid.uuid4().hex[:8]} é 張"
    machine.folder.rename(place)
    machine.bundle, machine.home, machine.temp = (
        place / path.relative_to(machine.folder)
        for path in (machine.bundle, machine.home, machine.temp)
    )
    machine.folder = place
    place.chmod(0o755)
    for own in (machine.home, machine.temp):
        os.chown(own, USER, USER)
    machine.prefix = [unshare, "--net", setpriv, f"--reuid={USER}", f"--regid={USER}"]
    machine.prefix += ["--clear-groups", "--no-new-privs"]
    try:
        yield machine
    finally:
        shutil.rmtree(place, ignore_errors=True)


# --- the bundle itself ---


def test_bundle_is_whole() -> None:
    bundle_checks.check_bundle(BUNDLE)


def test_bundle_is_within_its_budget() -> None:
    total = sum(sizes.sizes(BUNDLE).values())
    assert sizes.is_within_budget(total, sizes.BUDGET_MB[variant()])


def test_archive_is_within_its_budget_and_has_its_sum() -> None:
    found = [*BUNDLE.parent.glob("quire-*.tar.xz"), *BUNDLE.parent.glob("quire-*.zip")]
    if not found:
        pytest.skip("built with --no-archive")
    for archive in found:
        limit = sizes.ARCHIVE_BUDGET_MB["cuda" if "cuda" in archive.name else "cpu"]
        assert sizes.is_within_budget(archive.stat().st_size, limit)
        assert archive.with_name(archive.name + ".sha256").is_file()


def test_cpu_bundle_has_no_triton() -> None:
    if variant() != "cpu":
        pytest.skip("a CUDA build")
    assert not (BUNDLE / bundle_checks.INTERNAL / "triton").exists()


def test_nothing_under_the_gpl_alone_is_in_the_bundle() -> None:
    names = [path.name for path in (BUNDLE / bundle_checks.INTERNAL).rglob("*.so*")]
    assert [n for n in names if n.startswith(("libreadline", "libgdbm", "readline."))] == []


@linux
def test_what_is_imported_late_is_in_the_bundle() -> None:
    readers = pytest.importorskip("PyInstaller.archive.readers")
    archive = readers.CArchiveReader(str(BUNDLE / PROGRAM))
    (name,) = (name for name in archive.toc if name.lower().startswith("pyz"))
    modules = set(archive.open_embedded_archive(name).toc)
    late = {"engine.worker", "app.self_test", *spec_common.HIDDEN_IMPORTS}
    # The user's keys: the desktop's own store, through its bus.
    late |= {"keyring.backends.SecretService", "secretstorage", "truststore", "httpcore2"}
    assert late - modules == set()


def variant() -> str:
    """Of the bundle in hand."""
    return "cuda" if (BUNDLE / bundle_checks.INTERNAL / "triton").exists() else "cpu"


# --- as a user has it ---


@linux
@pytest.mark.slow
def test_another_user_can_chat_offline_from_a_read_only_folder(stranger: Machine) -> None:
    """And nothing is written but in the user's own folders and the temporary one."""
    report = stranger.self_test()
    assert report["device"] == "cpu"
    assert report["invariant_violations"] == 0
    tabs = report["tabs"]
    assert isinstance(tabs, list)
    assert len(tabs) == 4
    assert all(len(tab["text"]) > 50 for tab in tabs)
    command = ["find", "/", "-xdev", "-uid", str(USER), "-not", "-path", f"{stranger.folder}/*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    for place in ("/dev/shm", "/tmp", "/run"):
        command = ["find", place, "-uid", str(USER)]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""
    # The expanded model is all that stays.
    kept = {path.relative_to(stranger.home).parts[0] for path in stranger.home.rglob("*")}
    assert kept == {"Quire", "report.json"}
    assert list(stranger.temp.iterdir()) == []


@pytest.mark.slow
def test_second_start_paints_in_time(machine: Machine) -> None:
    machine.self_test()
    # The best of some: a busy machine makes a start slower, never faster.
    paints = (float(str(machine.self_test()["first_paint_ms"])) for _ in range(build.ATTEMPTS))
    assert any(paint < build.MAX_WARM_FIRST_PAINT_MS for paint in paints)


@linux
def test_program_reads_nothing_of_the_sources(machine: Machine) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("no strace")
    trace = machine.folder / "trace"
    machine.prefix = [strace, "-f", "-e", "trace=openat,execve", "-o", str(trace)]
    done = machine.run("--help")
    assert done.returncode == 0, done.stderr
    opened = trace.read_text(encoding="utf-8", errors="replace")
    assert "libQt6Widgets" in opened
    for folder in (ROOT, Path(sys.prefix)):
        assert f'"{folder}/' not in opened


def test_help_is_printed(machine: Machine) -> None:
    if sys.platform == "win32":
        pytest.skip("a windowed program prints nothing there")
    done = machine.run("--help")
    assert done.returncode == 0
    assert "--self-test" in done.stdout


# --- what is broken is said in words ---


@linux
def test_a_missing_plugin_is_said_in_words(machine: Machine) -> None:
    plugin = machine.bundle / "_internal/PySide6/Qt/plugins/platforms/libqoffscreen.so"
    plugin.unlink()
    done = machine.run(timeout_s=100)
    assert done.returncode == NO_WINDOW
    assert "Qt's plugin for the display is missing" in done.stderr
    assert "unpack or install it again" in done.stderr
    assert "Traceback" not in done.stderr


@linux
def test_a_plugin_without_a_library_is_said_in_words(machine: Machine) -> None:
    internal = machine.bundle / "_internal"
    for path in internal.rglob("libxcb-cursor.so*"):
        path.unlink()
    done = machine.run(timeout_s=100, QT_QPA_PLATFORM="xcb", DISPLAY=":4711")
    assert done.returncode == NO_WINDOW
    # The machine of the test may have the library itself.
    said = ("libxcb-cursor.so.0", "The display cannot be reached (xcb :4711).")
    assert any(words in done.stderr for words in said)


@linux
def test_a_missing_library_of_qt_is_said_in_words(machine: Machine) -> None:
    for path in machine.bundle.rglob("libQt6Widgets.so*"):
        path.unlink()
    done = machine.run(timeout_s=100)
    assert done.returncode == NO_WINDOW
    assert "A library that the window needs is missing: libQt6Widgets.so.6." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_removed_model_is_said_in_words(machine: Machine) -> None:
    shutil.rmtree(machine.bundle / "_internal" / "starter")
    done = machine.run("--self-test", timeout_s=300)
    assert done.returncode == 1
    assert "does not carry the starter model" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


@linux
def test_a_broken_torch_is_said_in_words(machine: Machine) -> None:
    (machine.bundle / "_internal/torch/lib/libtorch_cpu.so").unlink()
    done = machine.run("--self-test", timeout_s=300)
    assert done.returncode == 1
    said = "A library of the engine cannot be loaded: libtorch_cpu.so: cannot open"
    assert said in done.stderr
    assert "unpack or install it again" in done.stderr
    assert "Traceback" not in done.stderr
