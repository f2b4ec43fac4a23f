"""Starting and ending the application, in processes of their own."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.command_line import parse
from tests.helpers import run_app

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


class Running:
    """The application in a process of its own, once its engine was started."""

    def __init__(self, data_dir: Path, fault: str = "none") -> None:
        self.data_dir = data_dir
        before = self.log().count("engine started")
        self.process = run_app.start("--data-dir", str(data_dir), fault=fault)
        self.wait_for(lambda: self.log().count("engine started") > before)

    def log(self) -> str:
        file = self.data_dir / "quire.log"
        return file.read_text("utf-8") if file.exists() else ""

    def wait_for(self, done: Callable[[], bool], timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < deadline, self.log()
            assert self.process.poll() is None, self.end()
            time.sleep(0.05)

    def end(self) -> tuple[int, str]:
        """Waits for the end: the exit status and stderr."""
        _output, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "張 庭 é's dir"


@pytest.fixture
def running(data_dir: Path) -> Iterator[Running]:
    running = Running(data_dir)
    yield running
    if running.process.poll() is None:
        running.process.kill()
    running.process.communicate()


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends(running: Running, number: signal.Signals) -> None:
    started = time.monotonic()
    running.process.send_signal(number)
    status, _errors = running.end()
    assert status == 0
    assert time.monotonic() - started < 5.0
    assert "WARNING" not in running.log()
    with closing(sqlite3.connect(running.data_dir / "conversations.sqlite3")) as database:
        assert database.execute("SELECT count(*) FROM conversations").fetchone()[0] == 1


@posix
def test_an_engine_that_does_not_end_does_not_hold_the_process(data_dir: Path) -> None:
    running = Running(data_dir, fault="never-ends")
    started = time.monotonic()
    running.process.send_signal(signal.SIGTERM)
    status, _errors = running.end()
    assert status == 0
    assert time.monotonic() - started < 5.0
    assert "still busy" in running.log()


@posix
def test_a_second_start_raises_the_first_window_and_ends(running: Running) -> None:
    second = run_app.run("--data-dir", str(running.data_dir))
    assert second.returncode == 0
    assert "already open" in second.stderr
    running.wait_for(lambda: "asked to come to the front" in running.log())


@posix
def test_a_second_start_at_the_same_moment_waits_for_the_first_window(data_dir: Path) -> None:
    started = [run_app.start("--data-dir", str(data_dir)) for _ in range(2)]
    deadline = time.monotonic() + 30.0
    while all(process.poll() is None for process in started):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second = next(process for process in started if process.poll() is not None)
    first = next(process for process in started if process is not second)
    _output, errors = second.communicate()
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=20)
    assert (second.returncode, first.returncode) == (0, 0), errors
    assert "already open" in errors


@posix
def test_after_a_kill_the_next_start_has_the_profile_and_can_be_raised(running: Running) -> None:
    running.process.kill()
    running.process.communicate()
    # What a kill leaves behind: the lock's file, the socket's file, the database's other files.
    again = Running(running.data_dir)
    try:
        second = run_app.run("--data-dir", str(running.data_dir))
        assert second.returncode == 0
        assert "already open" in second.stderr
        again.wait_for(lambda: "asked to come to the front" in again.log())
    finally:
        again.process.send_signal(signal.SIGTERM)
        assert again.end()[0] == 0


@posix
def test_two_profiles_are_open_at_once(running: Running, tmp_path: Path) -> None:
    other = Running(tmp_path / "other")
    for process in (other.process, running.process):
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
    assert other.end()[0] == 0
    assert running.end()[0] == 0


def test_a_profile_that_cannot_be_made_is_refused_with_the_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = run_app.run("--data-dir", str(tmp_path / "file" / "profile"))
    assert done.returncode == 3
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_newer_database_is_refused_with_the_cause(data_dir: Path) -> None:
    data_dir.mkdir(parents=True)
    with closing(sqlite3.connect(data_dir / "conversations.sqlite3")) as database:
        database.execute("PRAGMA user_version = 99")
    done = run_app.run("--data-dir", str(data_dir))
    assert done.returncode == 3
    assert "schema 99" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "x.ndjson", "--model", "m.gguf"], "without an engine, so --model is void"),
        (["--trace", "x.ndjson", "--self-test"], "without an engine, so --self-test is void"),
        (["--tabs", "3"], "--tabs goes with --self-test"),
        (["--self-test", "--tabs", "1"], "--tabs 1: 2 to 32"),
        (["--self-test", "--data-dir", "x"], "temporary profile"),
        (["--what"], "unrecognized arguments"),
    ],
)
def test_arguments_that_make_no_sense_end_with_a_message_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_relative_paths_are_those_of_the_start(tmp_path: Path) -> None:
    options = parse(["--model", "a.gguf", "--models-dir", "models"])
    assert options.model == str(Path.cwd() / "a.gguf")
    assert options.models_dir == Path.cwd() / "models"
    assert (options.data_dir, options.self_test, options.tabs) == (None, False, 4)


def test_of_a_model_in_parts_the_first_one_stands_for_all(tmp_path: Path) -> None:
    parts = [tmp_path / f"big-0000{n}-of-00002.gguf" for n in (1, 2)]
    for path in parts:
        path.write_bytes(b"GGUF")
    assert parse(["--model", str(parts[1])]).model == str(parts[0])


def test_importing_the_application_loads_no_engine_no_torch_and_no_numpy() -> None:
    program = (
        "import sys, app.main; unwanted = ('torch', 'transformers', 'engine.worker', 'numpy'); "
        "print([m for m in sys.modules if m in unwanted])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=run_app.REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
