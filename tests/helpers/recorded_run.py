"""A real run of the engine, recorded, with the pool's true state after every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from app.cache_panel.pool_model import PoolModel
from engine.api.events import BlockChanged, BlockView
from engine.api.snapshot import Snapshot
from engine.api.trace import TraceWriter
from engine.snapshotter import Snapshotter
from tests.helpers.engine_cases import CheckedEngine

NUM_BLOCKS, BLOCK_SIZE = 32, 8
PREFIX = [7] * 40


@dataclass
class RecordedRun:
    """``truths[seq]``: the snapshot that the engine itself made after event ``seq``."""

    path: Path
    truths: dict[int, Snapshot] = field(default_factory=dict)
    reasons: set[tuple[str, str]] = field(default_factory=set)
    num_events: int = 0


def record_run(path: Path) -> RecordedRun:
    """Four conversations with one prefix in a pool that is too small for them.

    Among them are a fork with a copy, an edit, a cancel, evictions and preemptions.
    """
    engine = CheckedEngine(NUM_BLOCKS, BLOCK_SIZE, token_budget=32)
    snapshots = Snapshotter(engine.core, block_bytes=1024)
    run = RecordedRun(path)
    with path.open("w", encoding="utf-8") as file:
        first = snapshots.snapshot(0.0)
        run.truths[first.last_seq] = first
        writer = TraceWriter(file, first)

        def follow() -> None:
            events = engine.fold.events[run.num_events :]
            writer.write(events)
            run.num_events += len(events)
            run.reasons |= {(str(e.kind), e.cause) for e in events if isinstance(e, BlockChanged)}
            run.truths[engine.core.log.seq] = snapshots.snapshot(0.0)

        def step(count: int) -> None:
            for _ in range(count):
                engine.step()
                follow()

        def ask(conversation: int, turn: int, own: list[int], max_tokens: int) -> None:
            engine.add(
                f"r{conversation}.{turn}", PREFIX + own, max_tokens,
                conversation_id=f"c{conversation}",
            )  # fmt: skip

        for conversation in (1, 2, 3, 4):
            ask(conversation, 1, [100 * conversation + i for i in range(12)], 60)
        step(12)
        engine.core.fork("r1.1", "r1.fork", "c5", seed=None)
        follow()
        step(6)
        engine.cancel("r4.1")
        follow()
        step(25)
        # An edit: the second conversation's question ends in another way.
        ask(2, 2, [*[200 + i for i in range(8)], 991, 992, 993], 20)
        while engine.core.has_work:
            step(1)
    return run


def state_of(model: PoolModel) -> tuple[object, ...]:
    """Everything of the model that a snapshot tells too."""
    blocks: list[BlockView] = [model.view(block) for block in range(model.num_blocks)]
    tables = {t.request_id: (t.conversation_id, t.blocks[:]) for t in model.tables.values()}
    return blocks, tables, model.counts, model.last_step.tolist()


def truth_of(snapshot: Snapshot) -> tuple[object, ...]:
    """The same of the engine."""
    return state_of(PoolModel.from_snapshot(snapshot))
