"""Fetching from a hub that fails, waits, lies or goes away: never a spoilt file."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.fetching.run import MAX_TRIES, State
from tests.helpers.fetching_rig import FILE, GGUF, QUICK, REPO, Rig, fetch_rig
from tests.helpers.hub_server import Repo, cut_after, fine, ignore_range, other_range, spoil, status


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with fetch_rig(tmp_path / "models") as made:
        yield made


def test_a_server_that_ignores_the_range_spoils_nothing(rig: Rig) -> None:
    job_id = rig.pause_at(50_000)
    rig.server.faults = [ignore_range]
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.target.read_bytes() == GGUF


def test_an_ignored_range_that_breaks_off_keeps_what_was_there(rig: Rig) -> None:
    job_id = rig.pause_at(50_000)

    def ignore_and_cut(handler, content, _offset) -> bool:
        return handler.send_content(content, 0, 20_000)

    rig.server.faults = [ignore_and_cut]
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.ranges()[1:] == ["bytes=50000-", "bytes=50000-"]
    assert rig.target.read_bytes() == GGUF


def test_another_range_than_asked_for_begins_anew(rig: Rig) -> None:
    job_id = rig.pause_at(50_000)
    rig.server.faults = [other_range]
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.ranges()[1:] == ["bytes=50000-", ""]
    assert rig.target.read_bytes() == GGUF


def test_a_changed_etag_begins_anew_with_the_new_file(rig: Rig) -> None:
    job_id = rig.pause_at(50_000)
    new = GGUF[::-1]
    rig.server.repos[REPO].files[FILE] = new
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.ranges() == ["", ""]
    assert rig.target.read_bytes() == new
    assert rig.view(job_id).job.files[0].sha256 == hashlib.sha256(new).hexdigest()


def test_an_etag_that_is_no_checksum_and_changes_begins_anew(rig: Rig) -> None:
    rig.server.repos[REPO].etags[FILE] = "v1"
    job_id = rig.pause_at(50_000)
    rig.server.repos[REPO].etags[FILE] = "v2"
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.ranges() == ["", ""]


def test_a_new_commit_with_the_same_file_goes_on(rig: Rig) -> None:
    job_id = rig.pause_at(50_000)
    rig.queue.cancel(job_id, keep_part=True)
    assert rig.queue.views() == []
    rig.server.repos[REPO].commit = "d" * 40
    rig.wait(rig.add(), State.DONE)
    assert rig.ranges() == ["", "bytes=50000-"]


def test_a_truncated_answer_is_continued(rig: Rig) -> None:
    rig.server.faults = [cut_after(40_000), cut_after(30_000)]
    rig.wait(rig.add(), State.DONE)
    assert rig.ranges() == ["", "bytes=40000-", "bytes=70000-"]
    assert rig.target.read_bytes() == GGUF


def test_416_begins_anew(rig: Rig) -> None:
    job_id = rig.pause_at(50_000)
    rig.server.faults = [status(416)]
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.ranges()[1:] == ["bytes=50000-", ""]
    assert rig.target.read_bytes() == GGUF


def test_429_waits_as_long_as_the_server_says(rig: Rig) -> None:
    rig.server.faults = [status(429, Retry_After="1")]
    begun = time.monotonic()
    job_id = rig.add()
    view = rig.wait(job_id, State.WAITING)
    assert view.error is not None
    assert view.error.code == "hub_rate_limited"
    assert 0.0 < view.until - time.monotonic() <= 1.0
    rig.wait(job_id, State.DONE)
    assert time.monotonic() - begun >= 1.0


def test_503_waits_as_long_as_the_server_says(rig: Rig) -> None:
    rig.server.faults = [status(503, Retry_After="600")]
    view = rig.wait(rig.add(), State.WAITING)
    assert 590.0 < view.until - time.monotonic() <= 600.0


def test_a_wait_ends_when_the_user_says_so(rig: Rig) -> None:
    rig.server.faults = [status(429, Retry_After="600")]
    job_id = rig.add()
    rig.wait(job_id, State.WAITING)
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)


def test_500_is_tried_again(rig: Rig) -> None:
    rig.server.faults = [status(500), status(503), status(502)]
    rig.wait(rig.add(), State.DONE)
    assert len(rig.ranges()) == 4
    assert State.WAITING in rig.states


def test_a_server_that_goes_on_failing_is_given_up_and_can_be_tried_again(rig: Rig) -> None:
    rig.server.faults = [status(500)] * MAX_TRIES
    job_id = rig.add()
    view = rig.wait(job_id, State.FAILED)
    assert view.error is not None
    assert view.error.code == "hub_trouble"
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)


def test_progress_gives_a_failing_server_new_patience(rig: Rig) -> None:
    one_more = cut_after(1000)
    rig.server.faults = [one_more] * (2 * MAX_TRIES)
    rig.wait(rig.add(), State.DONE)
    assert rig.target.read_bytes() == GGUF


def test_a_server_that_dies_and_comes_back(rig: Rig) -> None:
    rig.server.stop_at = 60_000
    rig.server.gate.clear()
    job_id = rig.add()
    rig.wait_for(lambda: rig.part, lambda p: p.exists() and p.stat().st_size == 60_000)
    rig.server.stop()
    rig.wait(job_id, State.OFFLINE)
    assert rig.view(job_id).error.code == "hub_unreachable"
    rig.server.gate.set()
    rig.server.start()
    rig.wait(job_id, State.DONE)
    assert rig.ranges()[-1] == "bytes=60000-"
    assert rig.target.read_bytes() == GGUF


def test_what_the_user_paused_stays_paused_when_the_network_is_back(rig: Rig) -> None:
    job = rig.job()
    rig.server.stop()
    job_id = rig.queue.add(job)
    rig.wait(job_id, State.OFFLINE)
    rig.queue.pause(job_id)
    rig.server.start()
    time.sleep(5 * QUICK.offline_s)
    assert rig.view(job_id).state is State.PAUSED
    assert rig.ranges() == []


def test_spoilt_bytes_are_fetched_once_more(rig: Rig) -> None:
    rig.server.faults = [spoil]
    rig.wait(rig.add(), State.DONE)
    assert rig.target.read_bytes() == GGUF


def test_a_checksum_that_never_matches_leaves_no_file(rig: Rig) -> None:
    rig.server.faults = [spoil, spoil]
    job_id = rig.add()
    view = rig.wait(job_id, State.FAILED)
    assert view.error.code == "fetch_checksum"
    assert not rig.target.exists()
    assert not rig.part.exists()


def test_a_small_file_is_checked_by_its_git_checksum(rig: Rig) -> None:
    rig.server.repos["org/hf"] = Repo({"model.safetensors": GGUF, "config.json": b"{}"})
    rig.server.faults = [fine, spoil, spoil]
    view = rig.wait(rig.add("org/hf", "safetensors"), State.FAILED)
    assert view.error.code == "fetch_checksum"
    assert view.error.numbers == (("name", "config.json"),)


def test_a_listing_with_another_size_is_refused_with_both(rig: Rig) -> None:
    rig.server.repos[REPO].lies[FILE] = ("size", len(GGUF) - 5)
    view = rig.wait(rig.add(), State.FAILED)
    assert view.error.code == "fetch_wrong_size"
    assert dict(view.error.numbers)["expected"] == len(GGUF) - 5
    assert not rig.target.exists()


def test_more_bytes_than_promised_are_not_written(rig: Rig) -> None:
    def longer(handler, content, _offset) -> bool:
        return handler.send_content(content + b"more", 0)

    rig.server.faults = [longer, longer]
    view = rig.wait(rig.add(), State.FAILED)
    assert view.error.code == "fetch_wrong_size"
    assert not rig.target.exists()


def test_a_long_time_offline_fills_no_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    job = rig.job()
    rig.server.stop()
    rig.queue.add(job)
    time.sleep(12 * QUICK.offline_s)
    lines = [r for r in caplog.records if "waits" in r.getMessage()]
    assert len(lines) == 1
    rig.server.start()
