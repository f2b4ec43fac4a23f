"""Ending the program in the middle of fetching: soon, with nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.fetching.hub import Hub
from app.fetching.queue import FetchQueue
from app.fetching.run import State
from tests.helpers import fetching_child
from tests.helpers.hub_server import HubServer, Repo

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
CONTENT = b"GGUF" + bytes(range(256)) * 1000
SENT = 100_000
MAX_END_S = 5.0


@pytest.fixture
def hub() -> Iterator[HubServer]:
    server = HubServer({"org/tiny-GGUF": Repo({"tiny-Q4_K_M.gguf": CONTENT}, tags=("gguf",))})
    server.stop_at = SENT
    server.gate.clear()
    with server.running():
        yield server


def test_a_fetch_outlives_its_window_and_its_program_which_ends_soon(
    hub: HubServer, tmp_path: Path
) -> None:
    models = tmp_path / "張 models"
    models.mkdir()
    command = [sys.executable, fetching_child.__file__, str(tmp_path / "profile"), str(models)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_ENDPOINT": hub.endpoint},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "reached\n", process.communicate()[1]
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _output, errors = process.communicate(timeout=60)
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert time.monotonic() - begun < MAX_END_S * busy
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()
    queue = FetchQueue(Hub(hub.endpoint), models)
    (view,) = queue.views()
    kept = view.done_bytes
    assert view.state is State.PAUSED
    assert 0 < kept <= SENT
    hub.gate.set()
    queue.resume(view.job.job_id)
    deadline = time.monotonic() + 10.0
    while queue.views()[0].state is not State.DONE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert queue.close(5.0)
    assert hub.content_requests()[-1].range == f"bytes={kept}-"
    assert view.path.read_bytes() == CONTENT
