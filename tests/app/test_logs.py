"""The log file, and errors that nobody caught."""

from __future__ import annotations

import io
import logging
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer, qWarning
from pytestqt.qtbot import QtBot

from app import logs


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    root = logging.getLogger()
    level, raising = root.level, logging.raiseExceptions
    logs.open_log(tmp_path / "quire.log")
    yield tmp_path / "quire.log"
    logs.close_log()
    root.setLevel(level)
    logging.raiseExceptions = raising


@pytest.fixture
def reported(log: Path) -> Iterator[list[tuple[str, str]]]:
    hooks = sys.excepthook, threading.excepthook
    found: list[tuple[str, str]] = []
    logs.catch_uncaught(lambda thread, line: found.append((thread, line)))
    yield found
    sys.excepthook, threading.excepthook = hooks


def test_messages_go_to_the_file(log: Path) -> None:
    logging.getLogger("app.test").info("hello %s", "é")
    assert "INFO MainThread app.test: hello é" in log.read_text("utf-8")


def test_warnings_of_qt_go_to_the_file(log: Path) -> None:
    qWarning("a complaint")
    assert "a complaint" in log.read_text("utf-8")


def test_a_long_log_is_kept_once(tmp_path: Path) -> None:
    file = tmp_path / "quire.log"
    file.write_bytes(b"x" * (logs.MAX_LOG_BYTES + 1))
    logs.open_log(file)
    logs.close_log()
    assert file.stat().st_size == 0
    assert (tmp_path / "quire.log.1").stat().st_size == logs.MAX_LOG_BYTES + 1


def test_a_log_that_cannot_be_written_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.open_log(tmp_path / "no such folder" / "quire.log")
    logging.getLogger("app.test").warning("still here")
    logs.close_log()
    assert "still here" in capsys.readouterr().err
    assert not (tmp_path / "no such folder").exists()


def test_an_uncaught_error_of_a_thread_is_reported_with_its_name(
    reported: list[tuple[str, str]], log: Path
) -> None:
    def fail() -> None:
        raise RuntimeError("first line\nsecond line")

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join()
    assert reported == [("worker", "RuntimeError: first line")]
    assert "Traceback" in log.read_text("utf-8")


def test_an_uncaught_error_of_a_slot_is_reported(
    reported: list[tuple[str, str]], log: Path, qtbot: QtBot
) -> None:
    def fail() -> None:
        raise ValueError("in a slot")

    with qtbot.captureExceptions():
        # pytest-qt put its own hook in place; the one under test goes back for this call.
        logs.catch_uncaught(lambda thread, line: reported.append((thread, line)))
        QTimer.singleShot(0, fail)
        qtbot.waitUntil(lambda: bool(reported))
    assert reported == [("main", "ValueError: in a slot")]


def test_an_error_that_repeats_is_told_once_in_a_while(
    reported: list[tuple[str, str]], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in (0.0, 1.0, logs.REPEAT_S + 0.5):
        monkeypatch.setattr("app.logs.time.monotonic", lambda seconds=seconds: 100.0 + seconds)
        sys.excepthook(ValueError, ValueError("again"), None)
    sys.excepthook(ValueError, ValueError("another"), None)
    assert [line for _thread, line in reported] == [
        *("ValueError: again", "ValueError: again"),
        "ValueError: another",
    ]
    assert log.read_text("utf-8").count("uncaught in thread main") == 3


def test_an_error_of_a_slot_keeps_nothing_alive(
    reported: list[tuple[str, str]], qtbot: QtBot
) -> None:
    class Held:
        pass

    held: list[weakref.ref[Held]] = []

    def fail() -> None:
        local = Held()
        held.append(weakref.ref(local))
        raise ValueError("in a slot")

    with qtbot.captureExceptions():
        logs.catch_uncaught(lambda thread, line: reported.append((thread, line)))
        QTimer.singleShot(0, fail)
        qtbot.waitUntil(lambda: bool(reported))
    assert held[0]() is None


def test_a_stderr_that_is_closed_stops_nothing(
    reported: list[tuple[str, str]], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    sys.excepthook(ValueError, ValueError("unheard"), None)
    assert reported == [("main", "ValueError: unheard")]
    assert "unheard" in log.read_text("utf-8")


def test_ctrl_c_is_no_error(reported: list[tuple[str, str]]) -> None:
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert reported == []
