"""The panel's fold equals the engine's pool, forwards and backwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import Undo, category
from engine.api.events import (
    BlockChanged,
    BlockEventKind,
    BlockEvents,
    BlockState,
    BlockView,
    PoolEvent,
    TableChanged,
)
from engine.api.snapshot import PoolColumns, Snapshot
from tests.helpers.scripted_pool import ScriptedPool, four_conversations

NUM_BLOCKS = 24
BLOCK_SIZE = 8

operation = st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(1, 40))


def state_of(model: PoolModel) -> dict[str, Any]:
    """Everything that the fold keeps, owners by name."""
    return {
        "blocks": [model.view(block) for block in range(model.num_blocks)],
        "last_step": model.last_step.tolist(),
        "tables": {t.request_id: (t.conversation_id, t.blocks[:]) for t in model.tables.values()},
        "ghosts": dict(model.ghosts),
        "hits": dict(model.hit_tokens),
        "counts": model.counts,
        "seq": model.last_seq,
        "step": model.step,
    }


def run(scripted: ScriptedPool, kind: int, who: int, amount: int) -> None:
    """One random operation on the real pool; impossible ones do nothing."""
    request_id, pool = f"r{who}", scripted.pool
    running = request_id in scripted.requests
    if kind <= 1 and not running:
        shared = list(range(min(amount, 20)))
        scripted.admit(request_id, f"c{who}", [*shared, *(100 * who + i for i in range(amount))])
    elif kind in (2, 3) and running:
        scripted.compute(request_id, amount)
    elif kind == 4 and running and not scripted.compute(request_id):
        for i in range(amount % 12):
            scripted.append(request_id, 500 + amount + i)
    elif kind == 5 and running:
        scripted.finish(request_id, "preempted" if amount % 2 else "finished")
    elif kind == 6:
        block = amount % pool.num_blocks
        if pool.view(block).pins:
            pool.unpin(block, f"c{who}")
        elif pool.hash_of(block) is not None:
            pool.pin(block, f"c{who}")
        elif amount > 36:
            pool.drop_cached("cleared")


def assert_equals_pool(model: PoolModel, scripted: ScriptedPool) -> None:
    pool = scripted.pool
    assert [model.view(b) for b in range(pool.num_blocks)] == [
        pool.view(b) for b in range(pool.num_blocks)
    ]
    assert model.last_step.tobytes() == pool.columns().last_step
    tables = {r.request_id: r.block_table for r in scripted.requests.values() if r.block_table}
    assert {t.request_id: t.blocks for t in model.tables.values()} == tables
    for request in scripted.requests.values():
        assert model.hit_tokens.get(request.request_id, 0) == request.num_cached_tokens
    counts = model.counts
    assert (counts.free, counts.cached, counts.used) == (
        pool.num_free, pool.num_cached, pool.num_used,
    )  # fmt: skip
    views = [pool.view(b) for b in range(pool.num_blocks)]
    codes = {BlockState.FREE: 0, BlockState.CACHED: 1, BlockState.USED: 2}
    kinds = [category(codes[v.state], v.ref_count, v.pins) for v in views]
    assert [counts.free, counts.cached, counts.private, counts.shared, counts.pinned] == [
        kinds.count(k) for k in range(5)
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(operation, max_size=40), st.integers(0, 10))
def test_fold_equals_the_real_pool_after_every_operation_and_backwards(
    operations: list[tuple[int, int, int]], late: int
) -> None:
    scripted = ScriptedPool(NUM_BLOCKS, BLOCK_SIZE)
    for arguments in operations[:late]:
        run(scripted, *arguments)
    scripted.drain()
    model = PoolModel.from_snapshot(scripted.snapshot())
    assert_equals_pool(model, scripted)
    history: list[tuple[dict[str, Any], PoolEvent, Undo]] = []
    for arguments in operations[late:]:
        run(scripted, *arguments)
        for event in scripted.drain():
            before = state_of(model)
            undo = model.forward(event)
            assert undo is not None, model.inconsistency
            history.append((before, event, undo))
        assert_equals_pool(model, scripted)
    for before, event, undo in reversed(history):
        assert model.backward(event, undo), model.inconsistency
        assert state_of(model) == before


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_fold_takes_any_event_of_the_interface(data: st.DataObject) -> None:
    """Copies, truncations and states that today's pool never makes, against plain dictionaries."""
    blocks = {b: BlockView(BlockState.FREE, 0, b"", "", 0) for b in range(6)}
    tables: dict[str, list[int]] = {}
    model = PoolModel.from_snapshot(empty_snapshot(6))
    view = st.builds(
        BlockView,
        state=st.sampled_from(BlockState),
        ref_count=st.integers(0, 65535),
        block_hash=st.one_of(st.just(b""), st.binary(min_size=8, max_size=8).filter(any)),
        owner=st.sampled_from(["", "c1", "c2"]),
        fill=st.integers(0, 256),
        pins=st.integers(0, 255),
    )
    undos: list[tuple[dict[str, Any], PoolEvent, Undo]] = []
    for seq in range(1, data.draw(st.integers(1, 25)) + 1):
        event: PoolEvent
        if data.draw(st.booleans()):
            block, after = data.draw(st.integers(0, 5)), data.draw(view)
            kind = data.draw(st.sampled_from(BlockEventKind))
            event = BlockChanged(seq, seq, kind, "test", block, "r", "c1", blocks[block], after)
            blocks[block] = after
        else:
            name = data.draw(st.sampled_from(["r1", "r2"]))
            table = tables.setdefault(name, [])
            start = data.draw(st.integers(0, len(table)))
            removed = table[start : start + data.draw(st.integers(0, 3))]
            added = data.draw(st.lists(st.integers(0, 5), max_size=3))
            table[start : start + len(removed)] = added
            event = TableChanged(
                seq, seq, "test", name, f"c{name}", start, tuple(removed), tuple(added)
            )
        before = state_of(model)
        undo = model.forward(event)
        assert undo is not None, model.inconsistency
        undos.append((before, event, undo))
        assert {b: model.view(b) for b in range(6)} == blocks
        assert {n: t.blocks for n, t in model.tables.items()} == {
            n: t for n, t in tables.items() if t
        }
    for before, event, undo in reversed(undos):
        assert model.backward(event, undo)
        assert state_of(model) == before


def empty_snapshot(num_blocks: int) -> Snapshot:
    return ScriptedPool(num_blocks).snapshot()


def test_events_up_to_last_seq_are_skipped() -> None:
    scripted = four_conversations()
    events = scripted.drain()
    model = PoolModel.from_snapshot(scripted.snapshot())
    assert model.apply(BlockEvents(events))
    assert_equals_pool(model, scripted)


def test_gap_in_seq_is_detected_and_changes_nothing() -> None:
    scripted = four_conversations()
    scripted.drain()
    model = PoolModel.from_snapshot(scripted.snapshot())
    before = state_of(model)
    scripted.append("r1", 7)
    scripted.append("r1", 8)
    assert not model.apply(scripted.drain()[1:])
    assert "missing" in model.inconsistency
    assert state_of(model) == before


@pytest.mark.parametrize(
    "change", [{"ref_count": 9}, {"fill": 3}, {"owner": "someone"}, {"block_hash": b"12345678"}]
)
def test_event_whose_before_does_not_match_is_detected(change: dict[str, Any]) -> None:
    scripted = four_conversations()
    scripted.drain()
    model = PoolModel.from_snapshot(scripted.snapshot())
    scripted.finish("r1")
    event = next(e for e in scripted.drain() if isinstance(e, BlockChanged))
    wrong = replace(event, before=replace(event.before, **change))
    assert model.forward(wrong) is None
    assert f"block {event.block_id}" in model.inconsistency


def test_table_event_that_does_not_fit_is_detected() -> None:
    model = PoolModel.from_snapshot(empty_snapshot(4))
    event = TableChanged(1, 1, "test", "r", "c", 0, removed=(2,), added=(3,))
    assert model.forward(event) is None
    assert "table of r" in model.inconsistency


def test_block_outside_the_pool_is_detected() -> None:
    model = PoolModel.from_snapshot(empty_snapshot(4))
    free = BlockView(BlockState.FREE, 0, b"", "", 0)
    event = BlockChanged(1, 1, BlockEventKind.RELEASED, "test", 4, "r", "c", free, free)
    assert model.forward(event) is None
    assert "block 4 of 4" in model.inconsistency


def test_dirty_blocks_are_those_changed_since_the_last_paint() -> None:
    scripted = four_conversations()
    scripted.drain()
    model = PoolModel.from_snapshot(scripted.snapshot())
    assert model.take_dirty() == (set(), set())
    scripted.append("r1", 7)
    last = scripted.requests["r1"].block_table[-1]
    assert model.apply(scripted.drain())
    dirty, written = model.take_dirty()
    assert last in dirty
    assert written == {last}
    assert model.take_dirty() == (set(), set())


def test_ghost_keeps_the_last_table_and_knows_what_is_still_cached() -> None:
    scripted = ScriptedPool(8, 8)
    scripted.admit("r1", "c1", range(28))
    scripted.compute("r1")
    scripted.drain()
    model = PoolModel.from_snapshot(scripted.snapshot())
    table = scripted.requests["r1"].block_table[:]
    scripted.finish("r1")
    model.apply(scripted.drain())
    ghost = model.ghosts["c1"]
    assert list(ghost.blocks) == table
    assert model.ghost_alive(ghost).tolist() == [True, True, True, False]

    scripted.admit("r2", "c2", [900 + i for i in range(6 * 8)])
    model.apply(scripted.drain())
    alive = model.ghost_alive(ghost)
    assert alive.tolist() == [True, True, False, False]
    pool_hashes = [scripted.pool.hash_of(b) for b in table]
    assert [h is not None for h in pool_hashes] == alive.tolist()


def test_ghosts_survive_a_new_snapshot_of_the_same_pool() -> None:
    scripted = four_conversations()
    scripted.drain()
    before = PoolModel.from_snapshot(scripted.snapshot())
    held = scripted.requests["r1"].block_table[:]
    scripted.finish("r1")
    model = PoolModel.from_snapshot(scripted.snapshot(), before)
    assert list(model.ghosts["c1"].blocks) == held
    full = sum(scripted.pool.hash_of(b) is not None for b in held)
    assert int(model.ghost_alive(model.ghosts["c1"]).sum()) == full


def test_columns_of_a_snapshot_are_read_little_endian() -> None:
    columns = PoolColumns(
        state=bytes([0, 2]),
        ref_count=bytes([0, 0, 2, 1]),
        pins=bytes([0, 0, 1, 0]),
        owner=bytes([255, 255, 255, 255, 1, 0, 0, 0]),
        fill=bytes([0, 0, 16, 0]),
        last_step=bytes([255, 255, 255, 255, 0, 1, 0, 0]),
        block_hash=bytes(8) + bytes([1, 2, 3, 4, 5, 6, 7, 8]),
    )
    snapshot = replace(empty_snapshot(2), owners=("a", "b"), pool=columns)
    model = PoolModel.from_snapshot(snapshot)
    assert model.view(1) == BlockView(BlockState.USED, 258, bytes(range(1, 9)), "b", 16, 1)
    assert model.view(0) == BlockView(BlockState.FREE, 0, b"", "", 0)
    assert model.last_step.tolist() == [-1, 256]
