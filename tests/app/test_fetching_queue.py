"""Fetches over a hub on this machine: begun, paused, gone on with, cancelled."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.fetching import jobs
from app.fetching.catalogue import Kind
from app.fetching.jobs import Job, JobFiles
from app.fetching.run import State
from tests.helpers.fetching_rig import FILE, GGUF, REPO, Rig, fetch_rig, leftovers
from tests.helpers.hub_server import Repo, fine, spoil, status


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with fetch_rig(tmp_path / "models") as made:
        yield made


def test_a_file_appears_whole_and_nothing_else_stays(rig: Rig) -> None:
    view = rig.wait(rig.add(), State.DONE)
    assert rig.target.read_bytes() == GGUF
    assert leftovers(rig.models_dir) == [FILE]
    rig.wait_for(lambda: rig.fetched, lambda fetched: fetched == [rig.target] == [view.path])
    assert view.done_bytes == view.job.total_bytes == len(GGUF)


def test_a_pause_keeps_the_part_and_resuming_asks_for_the_rest_only(rig: Rig) -> None:
    job_id = rig.pause_at(50_000)
    assert rig.view(job_id).state is State.PAUSED
    assert rig.view(job_id).done_bytes == 50_000
    assert not rig.target.exists()
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.ranges() == ["", "bytes=50000-"]
    assert rig.target.read_bytes() == GGUF


def test_a_pause_is_quick_while_the_server_is_silent(rig: Rig) -> None:
    begun = time.monotonic()
    rig.pause_at(50_000)
    assert time.monotonic() - begun < 5.0


def test_after_a_restart_it_is_listed_as_paused_and_goes_on(rig: Rig) -> None:
    job_id = rig.pause_at(50_000)
    assert rig.queue.close(5.0)
    num_requests = len(rig.server.seen)
    rig.new_queue()
    assert rig.view(job_id).state is State.PAUSED
    assert rig.view(job_id).done_bytes == 50_000
    # The network is not used before somebody asks for it.
    assert len(rig.server.seen) == num_requests
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.ranges()[-1] == "bytes=50000-"
    assert rig.target.read_bytes() == GGUF


def test_what_has_come_is_shown_while_the_server_is_silent(rig: Rig) -> None:
    rig.server.stop_at = 50_000
    rig.server.gate.clear()
    job_id = rig.add()
    view = rig.wait_for(lambda: rig.view(job_id), lambda v: v.done_bytes == 50_000)
    assert view.state is State.FETCHING


def test_closing_in_the_middle_ends_the_thread_soon(rig: Rig) -> None:
    rig.server.stop_at = 1000
    rig.server.gate.clear()
    rig.add()
    rig.wait_for(lambda: rig.part, lambda p: p.exists() and p.stat().st_size == 1000)
    begun = time.monotonic()
    assert rig.queue.close(5.0)
    assert time.monotonic() - begun < 2.0
    assert rig.part.stat().st_size == 1000


def test_a_folder_gets_its_config_last_and_only_the_bad_file_again(rig: Rig) -> None:
    files = {
        "config.json": b'{"a": 1}',
        "model-00001-of-00002.safetensors": GGUF,
        "model-00002-of-00002.safetensors": GGUF[::-1],
        "model.safetensors.index.json": b"{}",
        "pytorch_model.bin": b"pickle",
        "tokenizer.json": b"{} ",
        "train.py": b"import os",
    }
    rig.server.repos["org/hf"] = Repo(files)
    rig.server.faults = [fine, spoil]
    view = rig.wait(rig.add("org/hf", "safetensors"), State.DONE)
    folder = rig.models_dir / "org--hf"
    assert view.path == folder
    names = [seen.path.rpartition("/")[2] for seen in rig.server.content_requests()]
    second = "model-00002-of-00002.safetensors"
    assert names[:3] == ["model-00001-of-00002.safetensors", second, second]
    assert names[-1] == "config.json"
    assert leftovers(folder) == sorted(files.keys() - {"pytorch_model.bin", "train.py"})


def test_files_that_are_there_are_not_fetched_again(rig: Rig) -> None:
    rig.wait(rig.add(), State.DONE)
    num = len(rig.ranges())
    rig.wait(rig.add(), State.DONE)
    assert len(rig.ranges()) == num


def test_a_file_that_was_changed_by_hand_is_replaced_whole(rig: Rig) -> None:
    rig.target.parent.mkdir(parents=True)
    rig.target.write_bytes(GGUF[:-1] + b"!")
    rig.wait(rig.add(), State.DONE)
    assert rig.target.read_bytes() == GGUF


def test_cancelling_deletes_the_part_and_the_folder(rig: Rig) -> None:
    rig.server.stop_at = 10_000
    rig.server.gate.clear()
    job_id = rig.add()
    rig.wait_for(lambda: rig.part, lambda p: p.exists() and p.stat().st_size == 10_000)
    rig.queue.cancel(job_id, keep_part=False)
    assert rig.queue.views() == []
    rig.wait_for(lambda: rig.target.parent, lambda folder: not folder.exists())


def test_what_was_to_be_deleted_is_deleted_by_the_next_start(rig: Rig) -> None:
    trash = rig.target.parent / "x.fetch-trash"
    trash.parent.mkdir(parents=True)
    trash.write_bytes(b"x")
    rig.new_queue()
    rig.wait_for(lambda: trash, lambda path: not path.exists())


def test_cancelling_can_keep_the_part(rig: Rig) -> None:
    job_id = rig.pause_at(10_000)
    rig.queue.cancel(job_id, keep_part=True)
    assert rig.part.stat().st_size == 10_000
    assert rig.new_queue().views() == []


def test_cancelling_keeps_files_that_were_there_before(rig: Rig) -> None:
    rig.server.repos["org/hf"] = Repo({"model.safetensors": GGUF, "config.json": b"{}"})
    folder = rig.models_dir / "org--hf"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    rig.server.faults = [fine, status(404)]
    job_id = rig.add("org/hf", "safetensors")
    rig.wait(job_id, State.FAILED)
    assert (folder / "model.safetensors").exists()
    rig.queue.cancel(job_id, keep_part=False)
    rig.wait_for(lambda: leftovers(folder), lambda names: names == ["notes.txt"])


def test_several_are_fetched_one_after_another(rig: Rig) -> None:
    rig.server.repos["org/b-GGUF"] = Repo({"b-Q8_0.gguf": GGUF}, tags=("gguf",))
    rig.server.stop_at = 10
    rig.server.gate.clear()
    first, second = rig.add(), rig.add("org/b-GGUF", "Q8_0")
    rig.wait(first, State.FETCHING)
    assert rig.view(second).state is State.QUEUED
    rig.server.gate.set()
    rig.wait(second, State.DONE)
    assert rig.view(first).state is State.DONE
    assert [seen.path.split("/")[2] for seen in rig.server.content_requests()] == [
        "tiny-GGUF",
        "b-GGUF",
    ]


def test_no_thread_is_left_when_there_is_nothing_to_do(rig: Rig) -> None:
    rig.wait(rig.add(), State.DONE)
    rig.wait_for(threading.enumerate, lambda ts: all(t.name != "quire-fetch" for t in ts))


def test_a_fetch_is_noted_although_its_folder_goes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another fetch into the same folder, cancelled just then, takes the empty folder away."""
    gone: list[Path] = []

    def replace_later(temporary: Path, path: Path) -> None:
        if not gone:
            gone.append(path.parent)
            shutil.rmtree(path.parent)
        os.replace(temporary, path)

    monkeypatch.setattr(jobs, "replace_file", replace_later)
    job = Job(REPO, "c" * 40, "Q4_K_M", Kind.GGUF, "mit", (), added_at=1.0)
    files = JobFiles(tmp_path)
    files.save(job)
    assert gone
    found = tmp_path.rglob(f"*{jobs.JOB_SUFFIX}")
    assert [path.parent.name for path in found] == ["org--tiny-GGUF"]
