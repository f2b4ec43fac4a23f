"""What fetching keeps safe: the token, the folder of models, and room on the disk."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.fetching import partial
from app.fetching.errors import DiskFullError, UnsafeNameError
from app.fetching.run import State
from tests.helpers.fetching_rig import FILE, GGUF, REPO, Rig, fetch_rig, leftovers
from tests.helpers.hub_server import Repo, cut_after, spoil, status

TOKEN = "hf_secretsecretsecret"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with fetch_rig(tmp_path / "models") as made:
        yield made


def test_a_full_disk_is_said_before_anything_is_fetched(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = rig.job()
    usage = shutil.disk_usage(rig.models_dir.parent)
    monkeypatch.setattr(partial.shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    with pytest.raises(DiskFullError) as caught:
        rig.queue.add(job)
    assert caught.value.numbers["free"] == 1000
    assert caught.value.numbers["needed"] == len(GGUF)
    assert rig.queue.views() == []
    assert leftovers(rig.models_dir) == []


def test_what_waits_its_turn_counts_for_the_room_on_the_disk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.server.repos["org/b-GGUF"] = Repo({"b-Q8_0.gguf": GGUF}, tags=("gguf",))
    second = rig.job("org/b-GGUF", "Q8_0")
    rig.server.stop_at = 10
    rig.server.gate.clear()
    first = rig.add()
    rig.wait(first, State.FETCHING)
    usage = shutil.disk_usage(rig.models_dir.parent)
    free = partial.SPARE_BYTES + len(GGUF) + 5000
    monkeypatch.setattr(partial.shutil, "disk_usage", lambda _path: usage._replace(free=free))
    with pytest.raises(DiskFullError):
        rig.queue.add(second)
    rig.queue.pause(first)
    rig.queue.add(second)


def test_a_disk_that_fills_up_keeps_the_part_and_goes_on_when_there_is_room(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullAfter:
        def __init__(self, out) -> None:
            self.out = out

        def __enter__(self):
            return self

        def __exit__(self, *_error: object) -> None:
            self.out.close()

        def write(self, data: bytes) -> int:
            if self.out.tell() + len(data) > 100_000:
                raise OSError(28, "No space left on device")
            return self.out.write(data)

        def flush(self) -> None:
            self.out.flush()

        def close(self) -> None:
            self.out.close()

    opened = Path.open

    def open_full(path: Path, mode: str = "r", *args, **kwargs):
        file = opened(path, mode, *args, **kwargs)
        return FullAfter(file) if path == rig.part and mode == "ab" else file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_full)
        job_id = rig.add()
        view = rig.wait(job_id, State.FAILED)
    assert view.error.code == "fetch_disk_full"
    kept = rig.part.stat().st_size
    assert 0 < kept <= 100_000
    rig.queue.resume(job_id)
    rig.wait(job_id, State.DONE)
    assert rig.ranges()[-1] == f"bytes={kept}-"
    assert rig.target.read_bytes() == GGUF


def test_a_gated_model_needs_the_token(rig: Rig) -> None:
    rig.server.repos[REPO].gated = True
    rig.server.token = TOKEN
    view = rig.wait(rig.add(), State.FAILED)
    assert view.error.code == "hub_gated"


def test_the_token_opens_a_gated_model(tmp_path: Path) -> None:
    with fetch_rig(tmp_path / "models", TOKEN) as rig:
        rig.server.repos[REPO].gated = True
        rig.server.token = TOKEN
        rig.wait(rig.add(), State.DONE)


def test_a_redirect_to_another_host_does_not_get_the_token(tmp_path: Path) -> None:
    with fetch_rig(tmp_path / "models", TOKEN) as rig:
        hub = rig.server
        hub.via_other_host = True
        job_id = rig.pause_at(50_000)
        rig.queue.resume(job_id)
        rig.wait(job_id, State.DONE)
    own = [s for s in hub.seen if s.port == hub.port and "/resolve/" in s.path]
    other = [s for s in hub.seen if s.port != hub.port]
    assert [s.headers.get("authorization") for s in own] == [f"Bearer {TOKEN}"] * len(own)
    assert [s.range for s in other] == ["", "bytes=50000-"]
    assert all("authorization" not in s.headers for s in other)


def test_neither_token_nor_signed_addresses_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with fetch_rig(tmp_path / "models", TOKEN) as rig:
        rig.server.via_other_host = True
        rig.server.faults = [status(500), cut_after(10), spoil, status(403)]
        view = rig.wait(rig.add(), State.FAILED)
    assert view.error.code == "hub_token_refused"
    said = caplog.text + repr(view) + repr(rig.hub)
    assert "fetch of org/tiny-GGUF" in said
    assert TOKEN not in said
    assert "secret-signature" not in said


def test_the_hub_learns_nothing_of_this_machine(rig: Rig) -> None:
    rig.wait(rig.add(), State.DONE)
    agents = {seen.headers["user-agent"] for seen in rig.server.seen}
    assert not [agent for agent in agents if "torch" in agent or "agent/" in agent]
    assert not [seen.path for seen in rig.server.seen if REPO not in seen.path]


@pytest.mark.parametrize(
    "name",
    ["../evil.gguf", "/etc/evil.gguf", "a/../../b.gguf", "C:\\x.gguf", "nul.gguf", "x:y.gguf"],
)
def test_a_name_that_leaves_the_folder_is_refused(rig: Rig, name: str) -> None:
    rig.server.repos[REPO].files[name] = GGUF
    with pytest.raises(UnsafeNameError) as caught:
        rig.hub.repository(REPO)
    assert caught.value.numbers["name"] == name


def test_a_stored_fetch_that_names_another_folder_is_not_taken(rig: Rig) -> None:
    job_id = rig.pause_at(50_000)
    stored = rig.target.parent / f"{job_id}.fetch.json"
    text = json.loads(stored.read_text())
    text["files"][0]["name"] = "../../evil.gguf"
    stored.write_text(json.dumps(text))
    assert rig.new_queue().views() == []
    text["files"][0]["name"] = FILE
    text["repo_id"] = "other/place"
    stored.write_text(json.dumps(text))
    assert rig.new_queue().views() == []
    stored.write_text("{ damaged")
    assert rig.new_queue().views() == []


def test_the_folder_may_have_any_name(tmp_path: Path) -> None:
    with fetch_rig(tmp_path / "張 庭 é's dir") as rig:
        rig.wait(rig.add(), State.DONE)
    assert rig.target.read_bytes() == GGUF


def test_a_folder_that_cannot_be_written_is_said(rig: Rig) -> None:
    job = rig.job()
    rig.models_dir.parent.mkdir(exist_ok=True)
    rig.models_dir.write_text("a file where the folder should be")
    with pytest.raises(Exception, match="cannot be written") as caught:
        rig.queue.add(job)
    assert caught.value.code == "fetch_write"
