"""The last minute of the pool: packed, folded back and forth, forgotten in time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.cache_panel import words
from app.cache_panel.history import MAX_EVENTS, SPAN_S, History, Moment
from app.cache_panel.looks import PRIVATE_CELL, Looks, decode
from app.cache_panel.past import Past
from app.cache_panel.pool_feed import PoolFeed
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import PoolCounts
from engine.api.events import BlockChanged, BlockEventKind, TableChanged
from engine.api.trace import read_trace
from engine.snapshotter import Snapshotter
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.panel_names import Numbers
from tests.helpers.recorded_run import RecordedRun, record_run, state_of, truth_of
from tests.helpers.scripted_pool import ScriptedPool, four_conversations


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return record_run(tmp_path_factory.mktemp("history") / "run.ndjson")


def lived(run: RecordedRun) -> PoolFeed:
    """The panel's feed after the run has come in deliveries of some events each."""
    snapshot, events = read_trace(run.path)
    feed = PoolFeed()
    feed.take(snapshot)
    waiting = list(events)
    while waiting:
        feed.take(snapshot, waiting[:7])
        del waiting[:7]
    assert feed.restarts == 0
    return feed


def followed(scripted: ScriptedPool) -> tuple[PoolModel, History]:
    """A model of the pool that has seen everything so far."""
    scripted.drain()
    return PoolModel.from_snapshot(scripted.snapshot()), History()


def moment(time_s: float, position: int) -> Moment:
    return Moment(time_s, position, position, PoolCounts(1, 0, 0, 0, 0), 0)


def test_the_past_equals_the_engine_after_every_step_forwards_and_backwards(
    run: RecordedRun,
) -> None:
    feed = lived(run)
    assert feed.model is not None
    past = Past(feed.model, feed.history)
    places = sorted(run.truths)
    truths = {seq: truth_of(run.truths[seq]) for seq in places}
    for seq in [*reversed(places), *places]:
        assert past.seek(seq - places[0])
        assert past.model.last_seq == seq
        assert state_of(past.model) == truths[seq], seq
    assert state_of(feed.model) == truths[places[-1]]


def test_packed_events_are_the_same_events(run: RecordedRun) -> None:
    feed = lived(run)
    _snapshot, events = read_trace(run.path)
    assert feed.history.events(0, feed.history.end) == list(events)


def test_saved_blocks_are_logical_minus_physical_ones_at_each_step(run: RecordedRun) -> None:
    feed = lived(run)
    assert feed.model is not None
    past = Past(feed.model, feed.history)
    places = sorted(run.truths)
    most = 0
    for seq in reversed(places):
        past.seek(seq - places[0])
        tables = [block for table in past.model.tables.values() for block in table.blocks]
        assert past.model.saved_blocks == len(tables) - len(set(tables))
        most = max(most, past.model.saved_blocks)
    assert most > 10


def test_what_an_inspection_or_a_pin_holds_is_not_saved_by_sharing() -> None:
    engine = CheckedEngine(32, 8)
    snapshots = Snapshotter(engine.core, block_bytes=1024)
    model = PoolModel.from_snapshot(snapshots.snapshot(0.0))
    engine.add("a", [1] * 20, max_tokens=9)
    engine.step()
    hold = engine.core.holds.keep(engine.core.requests["a"].block_table[:2])
    engine.core.pins.pin("a", [1] * 20)
    engine.check()
    assert model.apply(engine.fold.events)
    assert model.counts.pinned == 2
    assert model.saved_blocks == 0
    assert PoolModel.from_snapshot(snapshots.snapshot(0.0)).saved_blocks == 0
    engine.core.holds.release(hold)
    engine.check()


def test_copies_are_known_while_they_are_in_use_forwards_and_backwards(run: RecordedRun) -> None:
    feed = lived(run)
    assert feed.model is not None
    assert feed.model.copied_from == {}
    past = Past(feed.model, feed.history)
    copies = [
        (position, event)
        for position, event in enumerate(feed.history.events(0, feed.history.end))
        if isinstance(event, BlockChanged) and event.kind is BlockEventKind.COPIED
    ]
    assert copies
    for position, event in reversed(copies):
        past.seek(position + 1)
        assert past.model.copied_from[event.block_id] == event.source_block_id
        said = words.block(past.model, Numbers(), event.block_id)
        assert any(f"copy of block {event.source_block_id}" in line for line in said)
        past.seek(position)
        assert event.block_id not in past.model.copied_from
    past.seek(0)
    assert past.model.copied_from == {}


def test_last_use_is_known_forwards_and_backwards(run: RecordedRun) -> None:
    feed = lived(run)
    assert feed.model is not None
    past = Past(feed.model, feed.history)
    places = range(0, past.position + 1, 9)
    past.seek(0)
    seen = {}
    for place in places:
        past.seek(place)
        seen[place] = past.model.last_use.tolist()
    assert len({tuple(row) for row in seen.values()}) > 20
    for place in reversed(places):
        past.seek(place)
        assert past.model.last_use.tolist() == seen[place]


def test_a_block_given_back_was_used_later_than_it_was_written() -> None:
    scripted = four_conversations()
    model, history = followed(scripted)
    block = scripted.requests["r1"].block_table[0]
    scripted.append("r2", 1)
    scripted.finish("r1", "finish")
    assert model.apply(scripted.drain(), history.add)
    step = scripted.log.step
    assert words.block(model, Numbers(), block)[-1].endswith(f"last used in step {step:,}")


def test_the_past_goes_its_own_way() -> None:
    scripted = four_conversations()
    model, history = followed(scripted)
    scripted.append("r1", 5)
    assert model.apply(scripted.drain(), history.add)
    past = Past(model, history)
    past.seek(0)
    before = state_of(past.model)
    scripted.finish("r2")
    assert model.apply(scripted.drain(), history.add)
    assert state_of(past.model) == before
    past.seek(history.end)
    assert state_of(past.model) == state_of(model)


def test_seeking_in_slices_arrives(run: RecordedRun) -> None:
    feed = lived(run)
    assert feed.model is not None
    past = Past(feed.model, feed.history)
    calls = 1
    while not past.seek(0, budget_s=0.0):
        calls += 1
    assert calls > 2
    assert past.position == 0


def test_one_step_is_all_events_of_an_engine_step(run: RecordedRun) -> None:
    history = lived(run).history
    position, steps = history.end, []
    while position > history.first:
        start = history.step_start(position, -1)
        found = {event.step for event in history.events(start, position)}
        assert len(found) == 1
        steps.extend(found)
        assert history.step_start(start, 1) == position
        position = start
    assert steps == sorted(set(steps), reverse=True)


def test_what_is_older_than_a_minute_is_forgotten() -> None:
    scripted = four_conversations()
    model, history = followed(scripted)
    history.mark(moment(0.0, 0))
    for second in range(1, 200):
        for token in range(20):
            scripted.append("r1", token)
            if token == 9:
                assert model.apply(scripted.drain(), history.add)
        assert model.apply(scripted.drain(), history.add)
        history.mark(moment(float(second), history.end))
        history.drop(history.droppable(float(second)))
    oldest = next(m for m in history.moments if m.position >= history.first)
    assert 199 - SPAN_S - 30 < oldest.time_s <= 199 - SPAN_S
    assert history.end - history.first < 200 * 25


def test_more_than_can_be_kept_is_forgotten_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cache_panel.history.MAX_EVENTS", 1000)
    scripted = four_conversations()
    model, history = followed(scripted)
    for token in range(2500):
        assert scripted.append("r1", token)
        assert model.apply(scripted.drain(), history.add)
        history.mark(moment(token / 1000, history.end))
        history.drop(history.droppable(token / 1000))
    assert history.end > 2500
    assert 1000 <= history.end - history.first < 1600
    assert history.moments[0].position >= history.first


def test_a_packed_event_takes_less_than_160_bytes() -> None:
    """So that the most that is ever kept fits into 64 MB."""
    scripted = four_conversations()
    model, history = followed(scripted)
    for token in range(40):
        scripted.append("r1", token)
        assert model.apply(scripted.drain(), history.add)
    sizes = [sys.getsizeof(entry) for entry in history._entries if isinstance(entry, bytes)]
    assert max(sizes) + 8 < 160
    assert MAX_EVENTS * (max(sizes) + 8) < 56_000_000


def test_a_new_snapshot_begins_a_new_history(tmp_path: Path) -> None:
    scripted = four_conversations()
    scripted.drain()
    feed = PoolFeed()
    first = scripted.snapshot()
    feed.take(first)
    scripted.append("r1", 1)
    feed.take(first, scripted.drain())
    assert feed.history.end > 0
    feed.begin(first)
    feed.take(scripted.snapshot())
    assert (feed.history.first, feed.history.end, feed.history.moments) == (0, 0, [])


def test_a_private_block_has_the_number_of_who_holds_it(run: RecordedRun) -> None:
    """Who took it last may have left, and the one before goes on with it."""
    snapshot, events = read_trace(run.path)
    model, history = PoolModel.from_snapshot(snapshot), History()
    numbers: dict[str, int] = {}
    looks = Looks(lambda name: numbers.setdefault(name, len(numbers) + 1))
    taken_over = 0

    def look_at_all() -> int:
        others = 0
        for block, code in enumerate(looks.codes(model).tolist()):
            kind, _, label = decode(code)
            held = {numbers.get(t.conversation_id) for t, _ in model.places_of(block)}
            if kind == PRIVATE_CELL and held:
                assert label in held, (model.step, block)
                others += numbers.get(model.view(block).owner) not in held
        return others

    for event in events:
        step = model.step
        assert model.apply((event,), history.add)
        if model.step != step:
            taken_over += look_at_all()
    assert taken_over
    past = Past(model, history)
    model = past.model
    for position in range(history.end, -1, -7):
        past.seek(position)
        look_at_all()


def test_a_table_with_a_block_that_is_not_there_does_not_fit() -> None:
    scripted = four_conversations()
    model, _ = followed(scripted)
    event = TableChanged(model.last_seq + 1, 9, "grow", "r9", "c9", 0, (), (512,))
    assert model.forward(event) is None
    assert "512" in model.inconsistency
