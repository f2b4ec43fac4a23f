"""A storm of random commands and faults: never a wrong file, never a fetch that hangs."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from app.fetching.hub import Hub
from app.fetching.jobs import Job, job_for
from app.fetching.queue import FetchQueue
from app.fetching.run import Delays, State
from tests.helpers.files_below import files_below
from tests.helpers.hub_server import (
    HubServer,
    Repo,
    cut_after,
    ignore_range,
    other_range,
    spoil,
    status,
)

QUICK = Delays(first_s=0.005, longest_s=0.02, offline_s=0.05, in_use_s=0.02)
NUM_STEPS = 400
FAULTS = (status(500), status(416), status(429, Retry_After="0"), spoil, ignore_range, other_range)


class Storm:
    """Commands drawn from a seed."""

    def __init__(self, seed: int, models_dir: Path) -> None:
        self.draw = random.Random(seed)
        self.models_dir = models_dir
        self.files = {
            f"m-{key}.gguf": b"GGUF" + self.draw.randbytes(size)
            for key, size in (("Q2_K", 40_000), ("Q4_K_M", 150_000), ("Q8_0", 400_000))
        }
        folder = {"config.json": b"{}", "model.safetensors": b"w" * 200_000}
        self.server = HubServer(
            {"o/a-GGUF": Repo(dict(self.files), tags=("gguf",)), "o/b": Repo(folder)}
        )
        self.server.rate = 4_000_000

    def run(self) -> None:
        self.hub = Hub(self.server.endpoint)
        self.jobs = [
            job_for(repository, choice)
            for repository in (self.hub.repository("o/a-GGUF"), self.hub.repository("o/b"))
            for choice in repository.choices
        ]
        self.queue = self.new_queue()
        is_up = True
        for _ in range(NUM_STEPS):
            step = self.draw.choice("aaapprrrcfffwwwnus")
            if step == "s" and self.draw.random() < 0.3:
                self.server.stop() if is_up else self.server.start()
                is_up = not is_up
            else:
                self.step(step)
            self.check_files()
        if not is_up:
            self.server.start()
        self.calm()

    def new_queue(self) -> FetchQueue:
        return FetchQueue(self.hub, self.models_dir, delays=QUICK)

    def step(self, step: str) -> None:
        views = self.queue.views()
        job_id = self.draw.choice(views).job.job_id if views else ""
        match step:
            case "a":
                self.queue.add(self.draw.choice(self.jobs))
            case "p":
                self.queue.pause(job_id)
            case "r":
                self.queue.resume(job_id)
            case "c":
                self.queue.cancel(job_id, keep_part=self.draw.random() < 0.5)
            case "f":
                cut = cut_after(self.draw.randrange(200_000))
                self.server.faults.append(self.draw.choice([*FAULTS, cut]))
            case "w":
                time.sleep(self.draw.random() * 0.03)
            case "n" if self.draw.random() < 0.3:
                assert self.queue.close(5.0)
                self.queue = self.new_queue()

    def check_files(self) -> None:
        for path in files_below(self.models_dir, "*.gguf"):
            assert path.read_bytes() == self.files[path.name]

    def calm(self) -> None:
        """The faults end: everything is fetched, and nothing else is left behind."""
        self.server.faults.clear()
        self.server.rate = 0
        for job in self.jobs:
            self.queue.add(job)
        deadline = time.monotonic() + 30.0
        while not all(view.state is State.DONE for view in self.queue.views()):
            assert time.monotonic() < deadline, self.queue.views()
            for view in self.queue.views():
                if view.state in (State.FAILED, State.PAUSED):
                    self.queue.resume(view.job.job_id)
            time.sleep(0.01)
        assert self.queue.close(5.0)
        self.check_files()
        assert self.names_left() == self.names_of(self.jobs)

    def names_of(self, jobs: list[Job]) -> list[str]:
        return sorted(file.name for job in jobs for file in job.files)

    def names_left(self) -> list[str]:
        deadline = time.monotonic() + 5.0
        while True:
            found = files_below(self.models_dir)
            # Another thread sweeps.
            if not any(path.suffix == ".fetch-trash" for path in found):
                return sorted(path.name for path in found)
            assert time.monotonic() < deadline


@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_leaves_whole_files_only(seed: int, tmp_path: Path) -> None:
    storm = Storm(seed, tmp_path / "models")
    with storm.server.running():
        try:
            storm.run()
        finally:
            assert storm.queue.close(5.0)
