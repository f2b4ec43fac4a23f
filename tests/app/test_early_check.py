"""What is said when no window can open: the true reason, in words, in the user's language."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app import early_check, without_qt
from app.frozen import restore_library_path, trust_the_system
from app.paths import MODELS_DIR_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="the names of Linux's libraries")


@pytest.fixture(autouse=True)
def _english_and_no_users_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    monkeypatch.setattr(without_qt.paths, "data_dir", lambda: tmp_path / "profile")


def start(tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, its data in ``tmp_path`` and no tool in reach."""
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    env |= {MODELS_DIR_VARIABLE: str(tmp_path), "LANG": "C.UTF-8", **environ}
    return subprocess.run(
        [sys.executable, "-m", "app"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env=env,
        timeout=100,
        check=False,
    )


@linux
def test_a_start_without_a_display_is_refused_in_words(tmp_path: Path) -> None:
    done = start(tmp_path)
    assert done.returncode == early_check.NO_WINDOW
    assert "There is no display: neither DISPLAY nor WAYLAND_DISPLAY is set." in done.stderr
    assert "xvfb-run" in done.stderr
    assert "Traceback" not in done.stderr
    log = (tmp_path / "Quire" / "profile" / "quire.log").read_text(encoding="utf-8")
    assert "There is no display" in log


@linux
def test_a_display_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = start(tmp_path, DISPLAY=":4711")
    assert done.returncode == early_check.NO_WINDOW
    assert "The display cannot be reached (xcb :4711)." in done.stderr


@linux
def test_it_is_said_in_chinese_where_the_desktop_speaks_it(tmp_path: Path) -> None:
    done = start(tmp_path, QT_QPA_PLATFORM="nonsense", LANG="zh_CN.UTF-8")
    assert "缺少用于显示的 Qt 插件" in done.stderr
    assert "libqnonsense.so" in done.stderr


@linux
def test_a_missing_plugin_is_named(tmp_path: Path) -> None:
    cause, action = early_check.explain_no_platform({"DISPLAY": ":0"}, tmp_path)
    assert cause == f"Qt's plugin for the display is missing: {tmp_path / 'libqxcb.so'}."
    assert "unpack or install it again" in action


@linux
def test_a_plugin_that_cannot_be_loaded_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "libqxcb.so").write_bytes(b"no library at all, only some text")
    cause, _action = early_check.explain_no_platform({"DISPLAY": ":0"}, tmp_path)
    assert cause.startswith("A library that the window needs cannot be loaded: ")
    assert "libqxcb.so" in cause


def test_a_missing_library_of_the_system_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    message = "libEGL.so.1: cannot open shared object file: No such file or directory"
    assert early_check.explain_import_error(ImportError(message)) == early_check.NO_WINDOW
    said = capsys.readouterr().err
    assert "A library that the window needs is missing: libEGL.so.1." in said
    assert "Install the package of your system that holds it" in said


def test_a_missing_part_of_the_program_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    early_check.explain_import_error(ModuleNotFoundError("No module", name="PySide6.QtSvg"))
    said = capsys.readouterr().err
    assert "A part of the program is missing: PySide6.QtSvg." in said


@linux
@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, []),
        ({"DISPLAY": ":0"}, ["xcb"]),
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, ["wayland", "xcb"]),
        ({"QT_QPA_PLATFORM": "wayland;xcb:scale=2", "DISPLAY": ":0"}, ["wayland", "xcb"]),
    ],
)
def test_the_platforms_that_qt_tries(environ: dict[str, str], names: list[str]) -> None:
    assert early_check.wanted_platforms(environ) == names


# --- without Qt ---


@pytest.mark.parametrize("tool", ["zenity", "kdialog", "xmessage"])
def test_the_desktops_own_box_is_used(tool: str, tmp_path: Path) -> None:
    path = tmp_path / tool
    path.write_text("#!/bin/sh\n", encoding="ascii")
    path.chmod(0o755)
    command = without_qt.box_command("<b>why", {"DISPLAY": ":0", "PATH": str(tmp_path)})
    assert command[0] == tool
    assert command[-1] == "<b>why"
    assert without_qt.box_command("why", {"PATH": str(tmp_path)}) == ()


def test_an_x_program_is_no_use_under_wayland_alone(tmp_path: Path) -> None:
    path = tmp_path / "xmessage"
    path.write_text("#!/bin/sh\n", encoding="ascii")
    path.chmod(0o755)
    environ = {"WAYLAND_DISPLAY": "wayland-0", "PATH": str(tmp_path)}
    assert without_qt.box_command("why", environ) == ()


def test_a_log_that_cannot_be_written_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(without_qt.paths, "data_dir", lambda: tmp_path / "file" / "profile")
    without_qt.say("cause", "action", {})
    assert capsys.readouterr().err == "cause\naction\n"


# --- the environment of a frozen program ---


def test_children_get_the_users_own_library_path() -> None:
    environ = {"LD_LIBRARY_PATH": "/opt/quire/_internal", "LD_LIBRARY_PATH_ORIG": "/usr/local/lib"}
    restore_library_path(environ)
    assert environ == {"LD_LIBRARY_PATH": "/usr/local/lib"}


def test_children_get_no_library_path_where_there_was_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_MEIPASS", "/opt/quire/_internal", raising=False)
    environ = {"LD_LIBRARY_PATH": "/opt/quire/_internal"}
    restore_library_path(environ)
    assert environ == {}


def test_a_library_path_of_a_source_tree_stays() -> None:
    environ = {"LD_LIBRARY_PATH": "/usr/local/lib"}
    restore_library_path(environ)
    assert environ == {"LD_LIBRARY_PATH": "/usr/local/lib"}


@linux
def test_certificates_are_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "ca.crt"
    there.touch()
    files = (str(tmp_path / "other.crt"), str(there))
    environ: dict[str, str] = {}
    trust_the_system(environ, files)
    assert environ == {}, "a source tree's Python knows its own"
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    trust_the_system(environ, files)
    assert environ == {"SSL_CERT_FILE": str(there)}
    chosen = {"SSL_CERT_FILE": "/mine"}
    trust_the_system(chosen, files)
    assert chosen == {"SSL_CERT_FILE": "/mine"}
