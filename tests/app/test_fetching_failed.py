"""A fetch that failed says so and why after a restart too, until it is tried again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from pytestqt.qtbot import QtBot

from app.fetching import jobs, partial
from app.fetching.jobs import JOB_SUFFIX, JobFiles
from app.fetching.queue import JobView
from app.fetching.run import MAX_TRIES, State
from app.widgets.fetching.words import job_words
from engine.api.errors import ErrorInfo
from tests.helpers.fetching_page import shown_page
from tests.helpers.fetching_rig import GGUF, Rig, fetch_rig, leftovers
from tests.helpers.hub_server import Answer, spoil, status


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with fetch_rig(tmp_path / "models") as made:
        yield made


def restarted(rig: Rig, job_id: str) -> JobView:
    assert rig.queue.close(5.0)
    rig.new_queue()
    return rig.view(job_id)


def note_of(rig: Rig) -> Path:
    (path,) = rig.models_dir.rglob(f"*{JOB_SUFFIX}")
    return path


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ([spoil, spoil], "fetch_checksum"),
        ([status(500)] * MAX_TRIES, "hub_trouble"),
        ([status(404)], "hub_not_found"),
    ],
)
def test_after_a_restart_it_has_failed_for_the_same_cause(
    rig: Rig, faults: list[Answer], code: str
) -> None:
    rig.server.faults = list(faults)
    job_id = rig.add()
    before = rig.wait(job_id, State.FAILED)
    num_requests = len(rig.server.seen)
    after = restarted(rig, job_id)
    assert (after.state, after.error) == (State.FAILED, before.error)
    assert after.error is not None
    assert after.error.code == code
    assert job_words(after, "hub") == job_words(before, "hub")
    # Nothing is tried before somebody asks for it.
    assert len(rig.server.seen) == num_requests
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.target.read_bytes() == GGUF


def test_what_was_tried_again_and_did_not_end_is_paused(rig: Rig) -> None:
    rig.server.faults = [status(404)]
    job_id = rig.add()
    rig.wait(job_id, State.FAILED)
    rig.server.stop_at = 50_000
    rig.server.gate.clear()
    rig.queue.resume(job_id)
    rig.wait_for(lambda: rig.view(job_id), lambda view: view.done_bytes == 50_000)
    after = restarted(rig, job_id)
    assert (after.state, after.error) == (State.PAUSED, None)


def test_what_is_chosen_again_after_it_failed_has_not_failed(rig: Rig) -> None:
    rig.server.faults = [status(404)]
    rig.wait(rig.add(), State.FAILED)
    rig.server.stop_at = 50_000
    rig.server.gate.clear()
    job_id = rig.add()
    assert rig.view(job_id).error is None
    rig.wait_for(lambda: rig.view(job_id), lambda view: view.done_bytes == 50_000)
    assert restarted(rig, job_id).state is State.PAUSED


def test_one_that_failed_and_was_taken_out_of_the_list_stays_away(rig: Rig) -> None:
    rig.server.faults = [status(404)]
    job_id = rig.add()
    rig.wait(job_id, State.FAILED)
    rig.queue.cancel(job_id, keep_part=True)
    assert rig.queue.close(5.0)
    assert rig.new_queue().views() == []


def test_notes_of_versions_that_kept_no_cause_are_read(rig: Rig) -> None:
    job_id = rig.pause_at(50_000)
    assert rig.queue.close(5.0)
    assert "error" not in json.loads(note_of(rig).read_text(encoding="utf-8"))
    rig.new_queue()
    assert rig.view(job_id).state is State.PAUSED


@pytest.mark.parametrize("error", ["x", {"code": "hub_trouble"}, {"numbers": [["n", {}]]}])
def test_a_cause_that_makes_no_sense_is_no_trouble(rig: Rig, error: object) -> None:
    rig.server.faults = [status(404)]
    rig.wait(rig.add(), State.FAILED)
    assert rig.queue.close(5.0)
    stored = json.loads(note_of(rig).read_text(encoding="utf-8"))
    note_of(rig).write_text(json.dumps({**stored, "error": error}), encoding="utf-8")
    rig.new_queue()
    assert rig.queue.views() == []


def test_figures_of_another_kind_leave_the_cause_in_its_own_words(rig: Rig) -> None:
    error = ErrorInfo("fetch_disk_full", "The disk is full.", "Free some.", (("needed", "much"),))
    job = rig.job()
    files = JobFiles(rig.models_dir)
    files.save(job)
    files.keep_error(job, error)
    rig.new_queue()
    assert job_words(rig.view(job.job_id), "hub") == "The disk is full. Free some."


def test_a_folder_that_cannot_be_written_keeps_the_note_that_it_has(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_temporary: Path, _path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    job = rig.job()
    files = JobFiles(rig.models_dir)
    files.save(job)
    monkeypatch.setattr(jobs, "replace_file", refuse)
    error = ErrorInfo("hub_trouble", "It has trouble.", "Try again.")
    assert files.keep_error(job, error).error == error
    assert files.load() == [job]
    assert leftovers(rig.models_dir) == [note_of(rig).name]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 400 KB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400K", "none", str(folder)]
    if os.name == "nt" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_the_cause_is_kept_on_a_disk_that_is_full_to_the_last_byte(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "SPARE_BYTES", 0)
    with fetch_rig(small_disk / "models") as rig:
        rig.server.stop_at = 100_000
        rig.server.gate.clear()
        job_id = rig.add()
        rig.wait_for(lambda: rig.part, lambda p: p.exists() and p.stat().st_size == 100_000)
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        assert shutil.disk_usage(small_disk).free == 0
        rig.server.gate.set()
        rig.wait(job_id, State.FAILED)
        after = restarted(rig, job_id)
        assert after.state is State.FAILED
        assert after.error is not None
        assert after.error.code == "fetch_disk_full"
        assert 0 < after.done_bytes < len(GGUF)
        assert not [name for name in leftovers(rig.models_dir) if name.endswith(".tmp")]
        filler.unlink()
        rig.queue.resume(job_id)
        rig.wait(job_id, State.DONE)
        assert rig.target.read_bytes() == GGUF


@pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")
def test_the_row_says_why_and_offers_to_try_again(qtbot: QtBot, tmp_path: Path) -> None:
    with shown_page(qtbot, tmp_path) as stage:
        stage.hub.faults = [spoil, spoil]
        stage.fetch()
        stage.wait(State.FAILED)
        said = stage.row.status.text()
        assert said.startswith("tiny-Q4_K_M.gguf came damaged:")
        assert stage.service.close(5.0)
        stage.page.close()
        stage.open()
        row = stage.row
        assert (row.status.text(), row.status.property("tone")) == (said, "error")
        name = QAccessible.queryAccessibleInterface(row.resume_button).text(QAccessible.Text.Name)
        assert name == "Try org/tiny-GGUF · Q4_K_M now"
        qtbot.mouseClick(row.resume_button, Qt.MouseButton.LeftButton)
        stage.wait(State.DONE)
