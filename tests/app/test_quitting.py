"""Wherever the program is told to end, its process is gone soon and everything is saved."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers import run_app
from tests.helpers.files_below import files_below
from tests.helpers.starter import starter_gguf

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

CHILD = Path(run_app.__file__).with_name("busy_child.py")
MAX_END_S = 5.0


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "張 庭 é's dir"
    folder.mkdir()
    engine = {"device": "cpu", "dtype": "float32", "num_blocks": 250, "num_threads": 1}
    (folder / "settings.json").write_text(json.dumps({"engine": engine}))
    return folder


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(phase: str, data_dir: Path, models: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(CHILD), phase, str(data_dir), str(models)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def wait_until_there(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "reached\n", process.communicate()[1]


def longest() -> float:
    """``MAX_END_S``, or more where others take most of the machine."""
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    return MAX_END_S * max(1.0, busy)


def end(process: subprocess.Popen[str]) -> None:
    """Tells it to end, and requires that it does."""
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _output, errors = process.communicate(timeout=60)
    assert time.monotonic() - started < longest()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def stored(data_dir: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(data_dir / "conversations.sqlite3")) as database:
        rows = database.execute("SELECT content, status FROM messages ORDER BY created_at")
        return [(row[0], row[1]) for row in rows]


@pytest.mark.parametrize(
    "phase", ["load", "decode", pytest.param("prefill", marks=pytest.mark.slow)]
)
def test_ended_while_the_engine_is_busy_it_is_gone_soon(
    data_dir: Path, processes: list[subprocess.Popen[str]], phase: str, tmp_path: Path
) -> None:
    # Everything is where other programs have failed for the name of a folder.
    models, temporary = tmp_path / "模型 é's", tmp_path / "张 tmp é's"
    models.mkdir()
    temporary.mkdir()
    (models / starter_gguf().name).symlink_to(starter_gguf())
    process = start(phase, data_dir, models, TMPDIR=str(temporary))
    processes.append(process)
    wait_until_there(process)
    end(process)
    if phase != "load":
        question, answer = stored(data_dir)
        assert question[1] == "done"
        assert answer[1] == "interrupted"


class StallingIndex:
    """A package index that takes the request and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/simple"
        self.connected, self.hung_up = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(60.0)
            self.connected.set()
            while connection.recv(65_536):
                pass
            self.hung_up.set()

    def close(self) -> None:
        # Closing alone would not wake a thread that accepts.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10.0)


@pytest.fixture
def index() -> Iterator[StallingIndex]:
    made = StallingIndex()
    yield made
    made.close()


def test_ended_in_a_download_neither_it_nor_its_helper_stays(
    data_dir: Path, processes: list[subprocess.Popen[str]], index: StallingIndex, tmp_path: Path
) -> None:
    models = tmp_path / "no models"
    process = start("fetch", data_dir, models, PIP_INDEX_URL=index.url, PIP_NO_INDEX="0")
    processes.append(process)
    wait_until_there(process)
    assert index.connected.wait(60.0)
    end(process)
    assert index.hung_up.wait(longest())
    assert not files_below(models)
