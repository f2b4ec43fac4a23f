"""A model in several parts is fetched as one: all of it, or it is not there."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from gguf.constants import GGMLQuantizationType as Kind
from pytestqt.qtbot import QtBot

from app.fetching import partial
from app.fetching.errors import DiskFullError
from app.fetching.partial import SPARE_BYTES
from app.fetching.run import State
from app.library.scan import scan_folder
from engine.loading.describe import describe
from tests.helpers.fetching_page import Stage, models_hub
from tests.helpers.fetching_rig import Rig, fetch_rig, leftovers
from tests.helpers.hub_server import Handler, HubServer, Repo, fine, spoil, status
from tests.helpers.split_gguf import split_gguf
from tests.helpers.tiny_gguf import TinyGguf

REPO = "org/big-GGUF"
pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A hub with a model in three parts, named in another order, in a folder of the repository."""
    whole = TinyGguf(weight_type=Kind.Q8_0).write(tmp_path / "whole.gguf")
    parts = split_gguf(whole, tmp_path / "big-Q8_0.gguf", (6, 13))
    files = {f"Q8_0/{path.name}": path.read_bytes() for path in reversed(parts)}
    with fetch_rig(tmp_path / "models") as made:
        made.server.repos[REPO] = Repo(files, tags=("gguf",))
        yield made


def sizes(rig: Rig) -> list[int]:
    return [len(content) for _name, content in sorted(rig.server.repos[REPO].files.items())]


def names(rig: Rig) -> list[str]:
    return sorted(name.replace("/", "--") for name in rig.server.repos[REPO].files)


def listed(rig: Rig) -> list[str]:
    """What the library lists."""
    return [Path(model.path).name for model in scan_folder(rig.models_dir).models]


def test_all_parts_are_one_fetch_with_the_size_of_all(rig: Rig) -> None:
    view = rig.wait(rig.add(REPO, "Q8_0"), State.DONE)
    assert view.job.total_bytes == view.done_bytes == sum(sizes(rig))
    assert leftovers(rig.models_dir) == names(rig)
    assert view.path.name == "Q8_0--big-Q8_0-00001-of-00003.gguf"
    rig.wait_for(lambda: rig.fetched, lambda fetched: fetched == [view.path])
    assert listed(rig) == [view.path.name]
    assert describe(view.path).name == "Q8_0--big-Q8_0"


def test_what_is_there_of_it_is_no_model_until_all_is(rig: Rig) -> None:
    def hold(_handler: Handler, _content: bytes, _offset: int) -> bool:
        rig.server.gate.clear()
        return False

    rig.server.faults = [fine, hold]
    rig.server.stop_at = 1000
    job_id = rig.add(REPO, "Q8_0")
    second = rig.models_dir / "org--big-GGUF" / f"{names(rig)[1]}.partial"
    rig.wait_for(lambda: second, lambda p: p.exists() and p.stat().st_size == 1000)
    assert listed(rig) == []
    rig.queue.pause(job_id)
    rig.wait_for(lambda: rig.queue._thread, lambda thread: thread is None)
    rig.server.gate.set()
    assert (rig.view(job_id).done_bytes, listed(rig)) == (sizes(rig)[0] + 1000, [])
    assert rig.queue.close(5.0)
    rig.new_queue()
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.ranges() == ["", "", "bytes=1000-", ""]
    assert listed(rig) == [names(rig)[0]]


def test_after_a_failure_between_two_parts_only_the_rest_is_fetched(rig: Rig) -> None:
    rig.server.faults = [fine, status(404)]
    job_id = rig.add(REPO, "Q8_0")
    rig.wait(job_id, State.FAILED)
    assert rig.view(job_id).done_bytes == sizes(rig)[0]
    assert (rig.models_dir / "org--big-GGUF" / names(rig)[0]).is_file()
    assert (listed(rig), rig.fetched) == ([], [])
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    paths = [seen.path for seen in rig.server.content_requests()]
    assert [sum(f"-0000{n}-of" in path for path in paths) for n in (1, 2, 3)] == [1, 2, 1]


def test_a_part_that_comes_damaged_is_fetched_again(rig: Rig) -> None:
    rig.server.faults = [fine, spoil]
    view = rig.wait(rig.add(REPO, "Q8_0"), State.DONE)
    told = [hashlib.sha256(file).hexdigest() for file in rig.server.repos[REPO].files.values()]
    found = [
        hashlib.sha256((view.path.parent / name).read_bytes()).hexdigest() for name in names(rig)
    ]
    assert sorted(found) == sorted(told)
    assert len(rig.server.content_requests()) == 4


def test_a_part_that_stays_damaged_leaves_the_fetch_failed(rig: Rig) -> None:
    rig.server.faults = [fine, spoil, spoil]
    job_id = rig.add(REPO, "Q8_0")
    view = rig.wait(job_id, State.FAILED)
    assert view.error is not None
    assert view.error.code == "fetch_checksum"
    assert (listed(rig), rig.fetched) == ([], [])
    rig.queue.cancel(job_id, keep_part=False)
    rig.wait_for(lambda: leftovers(rig.models_dir), lambda left: left == [])


def test_room_is_asked_for_all_parts_before_the_first(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(rig.models_dir.parent)
    free = SPARE_BYTES + sum(sizes(rig)) - 1
    monkeypatch.setattr(partial.shutil, "disk_usage", lambda _path: usage._replace(free=free))
    with pytest.raises(DiskFullError) as caught:
        rig.add(REPO, "Q8_0")
    assert caught.value.numbers["needed"] == sum(sizes(rig))
    assert rig.server.content_requests() == []
    monkeypatch.setattr(partial.shutil, "disk_usage", lambda _path: usage._replace(free=free + 1))
    rig.add(REPO, "Q8_0")


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with models_hub() as server:
        yield server


@pytest.fixture
def stage(qtbot: QtBot, hub: HubServer, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(qtbot, hub, tmp_path)
    yield made
    assert made.service.close(5.0)


def test_the_page_offers_all_parts_in_one_line(stage: Stage) -> None:
    stage.choose("org/split")
    (row,) = stage.view.model.rows()
    assert stage.view.model.index(0).data() == "Q4_0 (2 parts)"
    assert (row.fit, row.tone) == ("fits", "muted")
    assert stage.view.button.text().startswith("Fetch (")
    stage.view.button.click()
    view = stage.wait(State.DONE)
    assert view.path.name == "s-Q4_0-00001-of-00002.gguf"
    assert stage.view.button.text() == "Load"


def test_the_page_says_which_parts_the_hub_lacks(stage: Stage) -> None:
    del stage.hub.repos["org/split"].files["s-Q4_0-00001-of-00002.gguf"]
    stage.choose("org/split")
    (row,) = stage.view.model.rows()
    assert row.fit == "incomplete"
    assert stage.view.fit.text() == "Part 1 of 2 is not on the hub."
    assert not stage.view.button.isEnabled()
