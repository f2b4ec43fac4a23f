"""Two processes fetch the same model: once, and neither spoils what the other does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.fetching.run import State
from tests.helpers.fetching_rig import GGUF, Rig, fetch_rig

CHILD = """
import sys, time
from pathlib import Path
from app.fetching.hub import Hub
from app.fetching.jobs import job_for
from app.fetching.queue import FetchQueue
from app.fetching.run import Delays, State
hub = Hub(sys.argv[1])
queue = FetchQueue(hub, Path(sys.argv[2]), delays=Delays(0.01, 0.02, 0.05, 0.05))
repository = hub.repository("org/tiny-GGUF")
job_id = queue.add(job_for(repository, repository.choices[0]))
seen = set()
while (view := queue.views()[0]).state is not State.DONE:
    seen.add(str(view.error.code) if view.error else str(view.state))
    time.sleep(0.01)
print("DONE", sorted(seen), flush=True)
"""


def child(rig: Rig) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, rig.server.endpoint, str(rig.models_dir)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with fetch_rig(tmp_path / "models") as made:
        yield made


def test_what_another_process_fetches_is_not_taken_away(rig: Rig) -> None:
    job_id = rig.pause_at(10_000)
    rig.server.stop_at = 10_000
    rig.server.gate.clear()
    with child(rig) as other:
        rig.wait_for(lambda: rig.part, lambda p: p.exists() and p.stat().st_size == 20_000, 30.0)
        rig.queue.cancel(job_id, keep_part=False)
        rig.server.gate.set()
        out, _ = other.communicate(timeout=30)
    assert out.startswith("DONE")
    assert rig.target.read_bytes() == GGUF


def test_two_processes_fetch_the_same_file_once(rig: Rig) -> None:
    rig.server.stop_at = 20_000
    rig.server.gate.clear()
    job_id = rig.add()
    rig.wait_for(lambda: rig.part, lambda p: p.exists() and p.stat().st_size == 20_000)
    with child(rig) as other:
        # It has listed the repository, so it is about to wait for the lock.
        rig.wait_for(lambda: rig.server.seen, lambda seen: _num_listings(seen) == 2, 30.0)
        time.sleep(0.3)
        rig.server.gate.set()
        out, _ = other.communicate(timeout=30)
    rig.wait(job_id, State.DONE)
    assert out.startswith("DONE")
    assert "fetch_in_use" in out
    assert rig.ranges() == [""]
    assert rig.target.read_bytes() == GGUF


def _num_listings(seen) -> int:
    return sum("/api/models/" in s.path for s in seen)


def test_a_killed_process_leaves_a_part_that_goes_on(rig: Rig) -> None:
    rig.server.stop_at = 30_000
    rig.server.gate.clear()
    with child(rig) as other:
        rig.wait_for(
            lambda: rig.part, lambda p: p.exists() and p.stat().st_size == 30_000, timeout=30.0
        )
        other.kill()
        other.communicate(timeout=30)
    rig.server.gate.set()
    queue = rig.new_queue()
    (view,) = queue.views()
    assert view.state is State.PAUSED
    queue.resume(view.job.job_id)
    rig.wait(view.job.job_id, State.DONE)
    assert rig.ranges() == ["", "bytes=30000-"]
    assert rig.target.read_bytes() == GGUF
