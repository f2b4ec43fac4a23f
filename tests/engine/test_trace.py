"""Recordings: what is read back folds to the same pool at every step."""

import io
import json

import pytest

from engine.api.errors import TraceError
from engine.api.trace import TraceWriter, read_trace
from engine.snapshotter import Snapshotter
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.pool_fold import PoolFold


def recorded(tmp_path, start_after: int = 0):
    """A small storm, recorded; the engine and the path of the recording."""
    engine = CheckedEngine(12)
    for name, first in (("a", 0), ("b", 5), ("c", 0)):
        engine.add(name, [(first + i) % 90 for i in range(20)], max_tokens=12)
    for _ in range(start_after):
        engine.step()
    file = io.StringIO()
    writer = TraceWriter(file, Snapshotter(engine.core, 128).snapshot(0.0))
    seen = len(engine.fold.events)
    engine.run()
    writer.write(engine.fold.events[seen:])
    path = tmp_path / "trace.ndjson"
    path.write_text(file.getvalue(), encoding="utf-8")
    return engine, path


def test_replay_equals_the_live_events(tmp_path):
    engine, path = recorded(tmp_path)
    snapshot, events = read_trace(path)
    assert snapshot.num_blocks == 12
    fold = PoolFold(12)
    fold.apply(tuple(events))
    fold.check(engine.core.pool, {})
    assert fold.events == engine.fold.events
    fold.rewind()


def test_recording_that_starts_in_the_middle(tmp_path):
    engine, path = recorded(tmp_path, start_after=6)
    snapshot, events = read_trace(path)
    replayed = list(events)
    assert snapshot.last_seq > 0
    assert replayed == engine.fold.events[snapshot.last_seq :]
    assert snapshot.requests[0].block_table


def test_snapshot_survives_the_round_trip(tmp_path):
    _engine, path = recorded(tmp_path)
    first, events = read_trace(path)
    file = io.StringIO()
    TraceWriter(file, first).write(events)
    assert file.getvalue() == path.read_text(encoding="utf-8")


def test_events_that_the_snapshot_holds_are_left_out(tmp_path):
    engine, path = recorded(tmp_path, start_after=3)
    snapshot, _events = read_trace(path)
    file = io.StringIO()
    writer = TraceWriter(file, snapshot)
    writer.write(engine.fold.events)
    assert file.getvalue() == path.read_text(encoding="utf-8")


def test_gap_is_refused_when_writing(tmp_path):
    _engine, path = recorded(tmp_path)
    snapshot, events = read_trace(path)
    with pytest.raises(TraceError, match="Event 2 follows 0"):
        TraceWriter(io.StringIO(), snapshot).write(list(events)[1:])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: ["{}"], "not a recording"),
        (lambda lines: [], "not a recording"),
        (lambda lines: ['{"format":"quire-trace","version":99}'], "version 99"),
        (lambda lines: [lines[0]], "Line 2 .* no snapshot"),
        (lambda lines: [lines[0], "[]"], "Line 2 .* no JSON object"),
        (lambda lines: [*lines[:3], lines[3][:20]], "Line 4 .* no JSON"),
        (lambda lines: [*lines[:3], *lines[4:]], "event 3 where 2 is due"),
        (lambda lines: [*lines[:3], '{"seq":2}'], "Line 4 .* no event"),
    ],
)
def test_damaged_recording_names_the_line(tmp_path, damage, words):
    _, path = recorded(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(damage(lines)), encoding="utf-8")
    with pytest.raises(TraceError, match=words):
        list(read_trace(path)[1])


def test_every_line_is_one_json_object(tmp_path):
    _, path = recorded(tmp_path)
    for line in path.read_text(encoding="utf-8").splitlines():
        assert isinstance(json.loads(line), dict)


def changed(lines, number, *path, value):
    """The line with that number, counted from 1, with a value in it replaced."""
    line = json.loads(lines[number - 1])
    *way, last = path
    place = line
    for key in way:
        place = place[key]
    place[last] = value
    return [*lines[: number - 1], json.dumps(line), *lines[number:]]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("seq",), True),
        (("step",), 2**31),
        (("step",), "3"),
        (("cause",), None),
        (("request_id",), 5),
        (("conversation_id",), ["c1"]),
        (("kind",), "burnt"),
        (("block_id",), -1),
        (("block_id",), 2**40),
        (("block_id",), 1.0),
        (("source_block_id",), -2),
        (("after",), 7),
        (("after", 0), "lost"),
        (("after", 1), -1),
        (("after", 1), 65_536),
        (("after", 2), "00ff"),
        (("after", 2), "zz"),
        (("after", 3), 4),
        (("after", 4), 65_536),
        (("after", 4), float("nan")),
        (("before", 5), True),
        (("before", 5), 2**70),
    ],
)
def test_event_with_a_value_that_no_pool_has_names_the_line(tmp_path, path, value):
    _, file = recorded(tmp_path)
    lines = file.read_text(encoding="utf-8").splitlines()
    number = next(n for n, line in enumerate(lines, 1) if '"kind":"filled"' in line)
    file.write_text("\n".join(changed(lines, number, *path, value=value)), encoding="utf-8")
    _snapshot, events = read_trace(file)
    for _ in range(number - 3):
        next(events)
    with pytest.raises(TraceError, match=f"Line {number} of .* no event"):
        next(events)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("start",), -1),
        (("start",), "0"),
        (("removed",), 5),
        (("removed",), ["a"]),
        (("added",), [-1]),
        (("added",), [True]),
        (("added",), [2**31]),
    ],
)
def test_table_with_a_value_that_no_pool_has_names_the_line(tmp_path, path, value):
    _, file = recorded(tmp_path)
    lines = file.read_text(encoding="utf-8").splitlines()
    number = next(n for n, line in enumerate(lines, 1) if '"added"' in line)
    file.write_text("\n".join(changed(lines, number, *path, value=value)), encoding="utf-8")
    with pytest.raises(TraceError, match=f"Line {number} of .* no event"):
        list(read_trace(file)[1])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("last_seq",), 0.5),
        (("step",), 2**31),
        (("num_blocks",), 13),
        (("num_blocks",), -12),
        (("block_size",), 0),
        (("prefill_tokens_per_s",), float("nan")),
        (("decode_tokens_per_s",), float("inf")),
        (("time_s",), "now"),
        (("invariant_message",), None),
        (("owners",), [1]),
        (("owners",), []),
        (("pool",), []),
        (("pool", "fill"), "00"),
        (("pool", "state"), "07" * 12),
        (("pool", "owner"), "ff7f0000" * 12),
        (("requests",), [[]]),
        (("requests", 0, "block_table"), [12]),
        (("requests", 0, "block_table"), [-1]),
        (("requests", 0, "num_tokens"), "20"),
        (("requests", 0, "phase"), 1),
    ],
)
def test_snapshot_with_a_value_that_no_pool_has_is_refused(tmp_path, path, value):
    _, file = recorded(tmp_path, start_after=6)
    lines = file.read_text(encoding="utf-8").splitlines()
    lines = changed(lines, 2, "snapshot", *path, value=value)
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(TraceError, match=r"Line 2 of .* no snapshot"):
        read_trace(file)


def test_line_that_is_nested_without_end_is_no_json(tmp_path):
    _, file = recorded(tmp_path)
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([*lines[:3], "[" * 200_000]), encoding="utf-8")
    with pytest.raises(TraceError, match=r"Line 4 of .* no JSON"):
        list(read_trace(file)[1])
