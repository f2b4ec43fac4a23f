"""A queue of fetches over a hub on this machine, and what tests ask of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.fetching.hub import Hub
from app.fetching.jobs import Job, job_for
from app.fetching.queue import FetchQueue, JobView
from app.fetching.run import Delays, State
from tests.helpers.files_below import files_below
from tests.helpers.hub_server import HubServer, Repo

GGUF = b"GGUF" + bytes(range(256)) * 1200
REPO = "org/tiny-GGUF"
FILE = "tiny-Q4_K_M.gguf"
QUICK = Delays(first_s=0.01, longest_s=0.02, offline_s=0.05, in_use_s=0.05)


class Rig:
    """A queue over a server."""

    def __init__(self, server: HubServer, models_dir: Path, token: str = "") -> None:
        self.server = server
        self.models_dir = models_dir
        self.hub = Hub(server.endpoint, lambda: token)
        self.fetched: list[Path] = []
        self.states: list[State] = []
        self.queue = self.new_queue()

    def new_queue(self) -> FetchQueue:
        self.queue = FetchQueue(
            self.hub, self.models_dir, self._on_changed, self.fetched.append, QUICK
        )
        return self.queue

    def _on_changed(self) -> None:
        for view in self.queue.views():
            if not self.states or self.states[-1] is not view.state:
                self.states.append(view.state)

    def job(self, repo_id: str = REPO, key: str = "Q4_K_M") -> Job:
        repository = self.hub.repository(repo_id)
        choice = next(c for c in repository.choices if c.key == key)
        return job_for(repository, choice)

    def add(self, repo_id: str = REPO, key: str = "Q4_K_M") -> str:
        return self.queue.add(self.job(repo_id, key))

    def view(self, job_id: str) -> JobView:
        return next(view for view in self.queue.views() if view.job.job_id == job_id)

    def wait(self, job_id: str, *states: State, timeout: float = 10.0) -> JobView:
        return self.wait_for(lambda: self.view(job_id), lambda v: v.state in states, timeout)

    def wait_for(self, get: Callable, is_it: Callable, timeout: float = 10.0):
        deadline = time.monotonic() + timeout
        while not is_it(found := get()):
            assert time.monotonic() < deadline, found
            time.sleep(0.005)
        return found

    @property
    def target(self) -> Path:
        return self.models_dir / "org--tiny-GGUF" / FILE

    @property
    def part(self) -> Path:
        return self.target.with_name(f"{FILE}.partial")

    def ranges(self) -> list[str]:
        return [seen.range for seen in self.server.content_requests()]

    def pause_at(self, num_bytes: int) -> str:
        """A fetch that was paused after ``num_bytes``."""
        self.server.stop_at = num_bytes
        self.server.gate.clear()
        job_id = self.add()
        self.wait_for(lambda: self.part, lambda p: p.exists() and p.stat().st_size == num_bytes)
        self.queue.pause(job_id)
        self.wait_for(lambda: self.queue._thread, lambda thread: thread is None)
        self.server.gate.set()
        return job_id


@contextmanager
def fetch_rig(models_dir: Path, token: str = "") -> Iterator[Rig]:
    """A rig over a hub with one model; its thread has ended when this is left."""
    server = HubServer({REPO: Repo({FILE: GGUF, "README.md": b"x"}, tags=("gguf",))})
    with server.running():
        made = Rig(server, models_dir, token)
        yield made
        assert made.queue.close(5.0)


def leftovers(models_dir: Path) -> list[str]:
    return sorted(path.name for path in files_below(models_dir))
