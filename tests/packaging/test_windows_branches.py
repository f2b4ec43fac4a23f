"""What the program does on Windows alone, run here with the platform mocked."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QObject, Signal
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app import (
    helper_process,
    notifications,
    raise_window,
    standard_streams,
    without_qt,
)
from app.application import QuireApplication
from app.command_line import Options
from app.exporting_read import is_moment
from app.paths import Profile
from app.process_age import process_age_s
from app.settings import Settings
from app.signals_to_qt import TerminationSignals
from app.store import Store
from engine.cuda_probe import has_nvidia_driver
from engine.loading.pip_download import download_wheel
from engine.torch_preload import preload_torch
from tests.helpers.fake_engine import FakeEngine
from tests.helpers.windows_libraries import Library, libraries

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")


# --- a program without a console ------------------------------------------------------------------


@contextmanager
def no_console() -> Iterator[None]:
    """The streams of a windowed program."""
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = None  # type: ignore[assignment]
    try:
        yield
    finally:
        opened, (sys.stdout, sys.stderr) = (sys.stdout, sys.stderr), before
        for stream in opened:
            stream.close()


def test_without_a_console_what_is_printed_goes_nowhere(
    windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries(monkeypatch, kernel32=Library(AttachConsole=0))
    with no_console():
        standard_streams.restore_standard_streams()
        print("張")
        sys.stderr.write("張")
        names = sys.stdout.name, sys.stderr.name
    assert names == (os.devnull, os.devnull)


def test_started_from_a_terminal_it_prints_there(
    windows: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    libraries(monkeypatch, kernel32=Library(AttachConsole=1))
    monkeypatch.setattr(standard_streams, "_CONSOLE", str(tmp_path / "console"))
    with no_console():
        standard_streams.restore_standard_streams()
        print("張")
    assert (tmp_path / "console").read_text(encoding="utf-8") == "張\n"


def test_console_that_cannot_be_opened_is_done_without(
    windows: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    libraries(monkeypatch, kernel32=Library(AttachConsole=1))
    monkeypatch.setattr(standard_streams, "_CONSOLE", str(tmp_path / "none" / "console"))
    with no_console():
        standard_streams.restore_standard_streams()
        print("x")
        name = sys.stdout.name
    assert name == os.devnull


def test_streams_that_are_there_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    standard_streams.restore_standard_streams()
    assert (sys.stdout, sys.stderr) == (out, err)


def test_text_that_a_pipe_of_windows_lacks_is_printed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(data, encoding="cp1252", newline="\n"))
    standard_streams.restore_standard_streams()
    print("é 張", flush=True)
    assert data.getvalue() == b"\xe9 \\u5f35\n"


WITHOUT_CONSOLE = """
import sys
out, sys.stdout, sys.stderr, sys.stdin = sys.stdout, None, None, None
sys.argv = ["quire", *{arguments!r}]
import runpy
try:
    runpy.run_module("app", run_name="__main__")
except SystemExit as end:
    out.write(str(end.code))
"""


@pytest.mark.parametrize(("argument", "status"), [("--help", "0"), ("--no-such-thing", "2")])
def test_program_without_a_console_ends_as_asked(
    tmp_path: Path, argument: str, status: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CONSOLE.format(arguments=[argument])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stdout == status, done.stderr


# --- processes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["quire.exe"], False),
        (["quire.exe", "--model", "C:\\m.gguf"], False),
        (["quire.exe", "--multiprocessing-fork", "parent_pid=1", "pipe_handle=2"], True),
        (["quire", "-B", "-c", "from multiprocessing.resource_tracker import main;main(5)"], True),
    ],
)
def test_helper_of_a_library_is_told_from_a_start(arguments: list[str], expected: bool) -> None:
    assert helper_process.is_helper(arguments) is expected


def test_helper_of_a_frozen_program_opens_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr("multiprocessing.freeze_support", lambda: asked.append(True))
    monkeypatch.setattr(sys, "argv", ["quire.exe", "--multiprocessing-fork"])
    helper_process.run_if_helper()
    assert asked == []
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    helper_process.run_if_helper()
    assert asked == [True]


def test_second_start_lets_the_first_come_to_the_front(
    windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    user32 = Library(AllowSetForegroundWindow=1)
    libraries(monkeypatch, user32=user32)
    raise_window._give_up_the_foreground()
    assert user32.calls == [("AllowSetForegroundWindow", -1)]


@pytest.mark.qt_log_ignore("This plugin does not support")
def test_end_of_a_windows_session_is_no_crash(qtbot: QtBot, tmp_path: Path) -> None:
    profile = Profile(tmp_path)
    application = QuireApplication(Options(), Settings(None), Store(profile), FakeEngine)
    application.show()
    qtbot.waitUntil(lambda: application.first_paint_ms is not None)
    assert profile.restore_file.exists()
    application.on_session_end()
    # Windows ends the process after this signal; nothing of main() runs any more.
    instance = QCoreApplication.instance()
    assert instance is not None
    instance.aboutToQuit.emit()
    was_noted = profile.restore_file.exists()
    application.close()
    assert not was_noted


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot raise the stand-in")
def test_ctrl_break_ends_the_program_where_there_is_no_hangup(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = signal.SIGUSR1
    monkeypatch.delattr(signal, "SIGHUP")
    monkeypatch.setattr(signal, "SIGBREAK", stand_in, raising=False)
    arrived: list[bool] = []
    signals = TerminationSignals(lambda: arrived.append(True))
    try:
        signal.raise_signal(stand_in)
        qtbot.waitUntil(lambda: bool(arrived), timeout=5000)
    finally:
        signals.restore()
    assert signal.getsignal(stand_in) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Chinese (Simplified)_China", True),
        ("zh_CN", True),
        ("English_United States", False),
        (None, False),
    ],
)
def test_language_of_windows_is_asked_of_its_locale(
    windows: None, monkeypatch: pytest.MonkeyPatch, name: str | None, expected: bool
) -> None:
    for variable in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("locale.getlocale", lambda: (name, "cp936"))
    assert without_qt._speaks_chinese() is expected


def test_fault_before_the_window_is_told_in_a_box_of_windows(
    windows: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    user32 = Library(MessageBoxW=1)
    libraries(monkeypatch, user32=user32)
    monkeypatch.setattr("app.paths.data_dir", lambda: tmp_path)
    without_qt.say("Cause.", "Action.", {})
    ((name, _window, text, title, _icon),) = user32.calls
    assert (name, text, title) == ("MessageBoxW", "Cause.\n\nAction.", "Quire")
    assert "Cause. Action." in (tmp_path / "quire.log").read_text(encoding="utf-8")


class Tray(QObject):
    """The part of QSystemTrayIcon that is used, and what was shown."""

    messageClicked = Signal()
    is_there = True
    made: list[Tray]

    def __init__(self, _icon: QIcon) -> None:
        super().__init__()
        self.shown: list[tuple[str, str]] = []
        self.is_visible = False
        Tray.made.append(self)

    @staticmethod
    def isSystemTrayAvailable() -> bool:
        return Tray.is_there

    def show(self) -> None:
        self.is_visible = True

    def hide(self) -> None:
        self.is_visible = False

    def showMessage(self, title: str, text: str) -> None:
        self.shown.append((title, text))


@pytest.fixture
def tray(windows: None, monkeypatch: pytest.MonkeyPatch) -> type[Tray]:
    monkeypatch.setattr(notifications, "QSystemTrayIcon", Tray)
    monkeypatch.setattr(Tray, "made", [], raising=False)
    return Tray


def test_windows_notifies_from_the_tray(qtbot: QtBot, tray: type[Tray]) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    notifier = notifications.DesktopNotifier(window)
    notifier.notify("c1", "Title", "<b>text</b>", "Open")
    notifier.notify("c2", "Title", "more", "Open")
    (shown,) = tray.made
    assert shown.shown == [("Title", "<b>text</b>"), ("Title", "more")]
    with qtbot.waitSignal(notifier.clicked) as clicked:
        shown.messageClicked.emit()
    assert clicked.args == ["c2"]
    notifier.close()
    assert not shown.is_visible


def test_windows_without_a_tray_blinks_in_the_task_bar(
    qtbot: QtBot, tray: type[Tray], monkeypatch: pytest.MonkeyPatch
) -> None:
    alerted: list[QWidget] = []
    monkeypatch.setattr(Tray, "is_there", False)
    monkeypatch.setattr(notifications.QApplication, "alert", alerted.append)
    window = QWidget()
    qtbot.addWidget(window)
    notifications.DesktopNotifier(window).notify("c1", "Title", "text", "Open")
    assert alerted == [window]


def test_age_of_the_process_is_asked_of_psutil_elsewhere_than_on_linux(windows: None) -> None:
    assert 0.0 < process_age_s() < 24 * 3600.0


def test_pip_opens_no_black_window(
    windows: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags: list[int] = []

    def popen(*_command: object, creationflags: int, **_more: object) -> object:
        flags.append(creationflags)
        raise OSError("no process is started here")

    monkeypatch.setattr(subprocess, "CREATE_NO_WINDOW", 0x08000000, raising=False)
    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(OSError, match="no process"):
        download_wheel("x==1", tmp_path, 1, lambda *_told: None, lambda: False)
    assert flags == [0x08000000]


@pytest.mark.parametrize("found", [None, "C:\\Windows\\System32\\nvcuda.dll"])
def test_driver_of_a_gpu_is_a_library_of_windows(
    windows: None, monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    monkeypatch.setattr("ctypes.util.find_library", {"nvcuda": found}.get)
    assert has_nvidia_driver() is (found is not None)


def test_torch_loads_its_own_libraries_on_windows(windows: None) -> None:
    assert preload_torch() == []


@pytest.mark.parametrize(("seconds", "expected"), [(0, True), (32_503_680_000, False), (-1, False)])
def test_imported_moment_is_one_that_windows_can_show(seconds: float, expected: bool) -> None:
    # 32,503,680,000 is the first of January 3000.
    assert is_moment(seconds) is expected
