"""Recordings played back: the panel's model is the engine's state at every step, both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cache_panel.trace_player import TracePlayer
from engine.api.errors import TraceError
from tests.helpers.recorded_run import RecordedRun, record_run, state_of, truth_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return record_run(tmp_path_factory.mktemp("trace") / "run.ndjson")


def loaded(path: Path) -> TracePlayer:
    player = TracePlayer(path)
    assert player.load(60.0)
    return player


def damaged(run: RecordedRun, path: Path, change: Callable[[list[str]], None]) -> Path:
    lines = run.path.read_text(encoding="utf-8").splitlines(keepends=True)
    change(lines)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_the_run_has_all_that_matters(run: RecordedRun) -> None:
    wanted = {
        ("hit", "prefix"), ("hit", "fork"), ("copied", "copy"), ("removed", "grow"),
        ("released", "preempt"), ("released", "cancel"), ("released", "finish"),
    }  # fmt: skip
    assert wanted <= run.reasons
    assert len(run.truths) > 60


def test_model_equals_the_engine_after_every_step_forwards_and_backwards(run: RecordedRun) -> None:
    player = loaded(run.path)
    assert len(player.events) == run.num_events
    places = sorted(run.truths)
    truths = {seq: truth_of(run.truths[seq]) for seq in places}
    for seq in [*places, *reversed(places)]:
        assert player.seek(seq)
        assert player.model.last_seq == seq
        assert state_of(player.model) == truths[seq], seq
    assert player.position == 0
    assert player.trouble == ""


def test_starts_lie_where_the_engine_stood_between_steps(run: RecordedRun) -> None:
    player = loaded(run.path)
    newest, wanted = player.events[0].step, [0]
    for position, event in enumerate(player.events):
        if event.step > newest:
            newest = event.step
            wanted.append(position)
    assert player.starts == [*wanted, run.num_events]
    assert player.num_steps == len({event.step for event in player.events})


def test_seeking_in_slices_arrives(run: RecordedRun) -> None:
    player = loaded(run.path)
    calls = 0
    while not player.seek(run.num_events, budget_s=0.0):
        calls += 1
    assert calls > 2
    assert player.position == run.num_events


def test_truncated_recording_names_the_line_and_shows_what_is_before(
    run: RecordedRun, tmp_path: Path
) -> None:
    def cut(lines: list[str]) -> None:
        del lines[101:]
        lines[100] = lines[100][:30]

    player = loaded(damaged(run, tmp_path / "cut.ndjson", cut))
    assert "at line 101." in player.trouble
    assert "cut.ndjson" in player.trouble
    assert len(player.events) == 98
    assert player.seek(10_000)
    assert player.position == 98
    assert player.seek(0)
    assert state_of(player.model) == truth_of(run.truths[0])


def test_bytes_that_are_no_text_name_the_line(run: RecordedRun, tmp_path: Path) -> None:
    path = tmp_path / "bytes.ndjson"
    head = b"".join(run.path.read_bytes().splitlines(keepends=True)[:50])
    path.write_bytes(head + b"\xff\xfe\n")
    player = loaded(path)
    assert "at line 51." in player.trouble
    assert len(player.events) == 48


def test_inconsistent_event_stops_there_and_the_way_back_stays_open(
    run: RecordedRun, tmp_path: Path
) -> None:
    player = loaded(damaged(run, tmp_path / "planted.ndjson", plant(150)))
    assert player.seek(len(player.events))
    assert player.position == player.end == 150
    assert "Line 153 does not fit" in player.trouble
    assert player.seek(0)
    assert state_of(player.model) == truth_of(run.truths[0])
    assert player.seek(10_000)
    assert player.position == 150
    assert "Line 153" in player.trouble


def test_number_that_no_pool_has_stops_there_and_the_way_back_stays_open(
    run: RecordedRun, tmp_path: Path
) -> None:
    number = 0

    def overfill(lines: list[str]) -> None:
        nonlocal number
        number = next(n for n in range(100, len(lines)) if '"kind":"filled"' in lines[n]) + 1
        value = json.loads(lines[number - 1])
        value["after"][4] += 65_536
        lines[number - 1] = json.dumps(value) + "\n"

    player = loaded(damaged(run, tmp_path / "overfilled.ndjson", overfill))
    assert f"at line {number}." in player.trouble
    assert player.seek(len(player.events))
    assert player.position == number - 3
    assert player.seek(0)
    assert state_of(player.model) == truth_of(run.truths[0])


def plant(at: int) -> Callable[[list[str]], None]:
    """Puts a wrong ``before`` into the event at that index."""

    def change(lines: list[str]) -> None:
        value = json.loads(lines[at + 2])
        if "before" in value:
            value["before"][1] += 3
        else:
            value["start"] += 500
        lines[at + 2] = json.dumps(value) + "\n"

    return change


@pytest.mark.parametrize("text", ["", "{}\n", "hello\n", '{"format":"quire-trace","version":1}\n'])
def test_what_is_no_recording_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.ndjson"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TraceError, match=r"x\.ndjson"):
        TracePlayer(path)
