"""The panel's picture of the pool: a pure fold over pool events, from a snapshot on. Free of Qt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from app.cache_panel.pool_values import GhostTable, LiveTable, PoolCounts, Undo, category
from engine.api.events import (
    BlockChanged,
    BlockEventKind,
    BlockEvents,
    BlockState,
    BlockView,
    PoolEvent,
    TableChanged,
)
from engine.api.snapshot import CACHED, FREE, USED, Snapshot

STATES = (BlockState.FREE, BlockState.CACHED, BlockState.USED)

Array = npt.NDArray[Any]


class PoolModel:
    """Columns, tables and ghosts of the pool at ``last_seq``.

    Columns are numpy arrays with one entry a block: ``state`` (codes of ``engine.api.snapshot``),
    ``ref_count``, ``pins``, ``owner`` (index into ``owners`` or -1), ``fill`` (tokens),
    ``last_step`` (of the commit, once events tell) and ``block_hash`` (0 for none). Only this
    class writes to them.

    ``inconsistency`` says in words what did not fit: a gap in ``seq``, or an event whose ``before``
    is not what the model holds. From then on the model does not change: start from a new snapshot.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        pool = snapshot.pool
        self.num_blocks = snapshot.num_blocks
        self.block_size = snapshot.block_size
        self.block_bytes = snapshot.block_bytes
        self.last_seq = snapshot.last_seq
        self.step = snapshot.step
        self.state: Array = np.frombuffer(pool.state, "u1").copy()
        self.ref_count: Array = np.frombuffer(pool.ref_count, "<u2").astype(np.uint16)
        self.pins: Array = np.frombuffer(pool.pins, "u2").copy()
        self.owner: Array = np.frombuffer(pool.owner, "<i4").astype(np.int32)
        self.fill: Array = np.frombuffer(pool.fill, "<u2").astype(np.uint16)
        self.last_step: Array = np.frombuffer(pool.last_step, "<i4").astype(np.int32)
        self.block_hash: Array = np.frombuffer(pool.block_hash, "<u8").astype(np.uint64)
        self.owners: list[str] = list(snapshot.owners)
        self.tables: dict[str, LiveTable] = {}
        self.ghosts: dict[str, GhostTable] = {}
        self.hit_tokens: dict[str, int] = {}
        self.table_version = 0
        self.dirty: set[int] = set()
        self.written: set[int] = set()
        self.inconsistency = ""
        self._owner_index = {name: index for index, name in enumerate(self.owners)}
        # Scalar access through a memoryview is several times faster than through the array.
        self._cells = tuple(
            column.data
            for column in (
                self.state, self.ref_count, self.pins, self.owner, self.fill, self.block_hash,
            )
        )  # fmt: skip
        self._last_step = self.last_step.data
        self._counts = self._count_all()
        self.note(snapshot)
        for row in snapshot.requests:
            if row.num_cached_tokens:
                self.hit_tokens[row.request_id] = row.num_cached_tokens
            if row.block_table:
                self.tables[row.request_id] = LiveTable(
                    row.request_id, row.conversation_id, list(row.block_table)
                )

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, previous: PoolModel | None = None) -> PoolModel:
        """The pool as the snapshot says, with ``previous``'s ghosts (hashes guard them)."""
        model = cls(snapshot)
        if previous is not None and previous.num_blocks == model.num_blocks:
            model.ghosts = dict(previous.ghosts)
            for table in previous.tables.values():
                if table.request_id not in model.tables:
                    model.ghosts[table.conversation_id] = previous.ghost_of(table, "missed")
        return model

    def note(self, snapshot: Snapshot) -> None:
        """Takes what no event carries: limits, measured rates, the engine's own check."""
        self.watermark_blocks = snapshot.watermark_blocks
        self.context_length = snapshot.context_length
        self.prefill_tokens_per_s = snapshot.prefill_tokens_per_s
        self.invariant_violations = snapshot.invariant_violations
        self.invariant_message = snapshot.invariant_message

    # --- folding ---

    def apply(self, batch: BlockEvents | Iterable[PoolEvent]) -> bool:
        """Folds events forwards, skipping those up to ``last_seq``. False: inconsistent."""
        events = batch.events if isinstance(batch, BlockEvents) else batch
        for event in events:
            if event.seq > self.last_seq and self.forward(event) is None:
                return False
        return True

    def forward(self, event: PoolEvent) -> Undo | None:
        """Folds one event. Returns what ``backward`` needs, or None if the event did not fit."""
        if self.inconsistency:
            return None
        if event.seq != self.last_seq + 1:
            self.inconsistency = f"event {self.last_seq + 1} is missing: {event.seq} came"
            return None
        if isinstance(event, BlockChanged):
            undo = self._forward_block(event)
        else:
            undo = self._forward_table(event)
        if undo is not None:
            self.last_seq = event.seq
            self.step = max(self.step, event.step)
        return undo

    def backward(self, event: PoolEvent, undo: Undo) -> bool:
        """Takes back the newest event. False: it is not the newest, or does not fit."""
        if self.inconsistency:
            return False
        if event.seq != self.last_seq:
            self.inconsistency = f"event {event.seq} is not the newest, which is {self.last_seq}"
            return False
        if isinstance(event, BlockChanged):
            fits = self._backward_block(event, undo)
        else:
            fits = self._backward_table(event, undo)
        if fits:
            self.last_seq -= 1
            self.step = undo.step
        return fits

    def _forward_block(self, event: BlockChanged) -> Undo | None:
        block = event.block_id
        if not self._replace(event, event.before, event.after):
            return None
        undo = Undo(last_step=self._last_step[block], step=self.step)
        if writes_kv(event):
            self._last_step[block] = event.step
            self.written.add(block)
        if event.kind is BlockEventKind.HIT:
            self._add_hit_tokens(event.request_id, event.after.fill)
        return undo

    def _backward_block(self, event: BlockChanged, undo: Undo) -> bool:
        if not self._replace(event, event.after, event.before):
            return False
        self._last_step[event.block_id] = undo.last_step
        self.written.discard(event.block_id)
        if event.kind is BlockEventKind.HIT:
            self._add_hit_tokens(event.request_id, -event.after.fill)
        return True

    def _add_hit_tokens(self, request_id: str, num_tokens: int) -> None:
        total = self.hit_tokens.pop(request_id, 0) + num_tokens
        if total:
            self.hit_tokens[request_id] = total

    def _forward_table(self, event: TableChanged) -> Undo | None:
        undo = Undo(ghost=self.ghosts.get(event.conversation_id), step=self.step)
        old = self.tables.get(event.request_id)
        before = list(old.blocks) if old is not None else []
        if not self._splice(event, event.removed, event.added):
            return None
        if before and event.request_id not in self.tables:
            gone = LiveTable(event.request_id, event.conversation_id, before)
            self.ghosts[event.conversation_id] = self.ghost_of(gone, event.cause)
            self.hit_tokens.pop(event.request_id, None)
        return undo

    def _backward_table(self, event: TableChanged, undo: Undo) -> bool:
        came_back = event.request_id not in self.tables and bool(event.removed)
        if not self._splice(event, event.added, event.removed):
            return False
        if came_back:
            ghost = self.ghosts.pop(event.conversation_id)
            if ghost.cached_tokens:
                self.hit_tokens[event.request_id] = ghost.cached_tokens
            if undo.ghost is not None:
                self.ghosts[event.conversation_id] = undo.ghost
        return True

    def _replace(self, event: BlockChanged, old: BlockView, new: BlockView) -> bool:
        block = event.block_id
        if not 0 <= block < self.num_blocks:
            self.inconsistency = f"event {event.seq}: block {block} of {self.num_blocks}"
            return False
        was, now = self._values(old), self._values(new)
        held = tuple([cell[block] for cell in self._cells])
        if held != was:
            self.inconsistency = f"event {event.seq}: block {block} is {held}, not {was}"
            return False
        self._counts[category(*was[:3])] -= 1
        self._counts[category(*now[:3])] += 1
        for cell, value in zip(self._cells, now, strict=True):
            cell[block] = value
        self.dirty.add(block)
        return True

    def _splice(self, event: TableChanged, old: tuple[int, ...], new: tuple[int, ...]) -> bool:
        table = self.tables.get(event.request_id)
        blocks = table.blocks if table is not None else []
        end = event.start + len(old)
        if event.start > len(blocks) or tuple(blocks[event.start : end]) != old:
            self.inconsistency = (
                f"event {event.seq}: table of {event.request_id} does not hold {old} "
                f"from logical block {event.start} on"
            )
            return False
        blocks[event.start : end] = new
        if not blocks:
            self.tables.pop(event.request_id, None)
        elif table is None:
            self.tables[event.request_id] = LiveTable(
                event.request_id, event.conversation_id, blocks
            )
        self.table_version += 1
        return True

    def _values(self, view: BlockView) -> tuple[int, int, int, int, int, int]:
        # Compared, not looked up: hashing an enum member runs Python code.
        state = view.state
        return (
            USED if state == BlockState.USED else CACHED if state == BlockState.CACHED else FREE,
            view.ref_count,
            view.pins,
            self._index_of_owner(view.owner),
            view.fill,
            int.from_bytes(view.block_hash, "little"),
        )

    def _index_of_owner(self, owner: str) -> int:
        if not owner:
            return -1
        index = self._owner_index.get(owner)
        if index is None:
            index = self._owner_index[owner] = len(self.owners)
            self.owners.append(owner)
        return index

    # --- reading ---

    @property
    def counts(self) -> PoolCounts:
        return PoolCounts(*self._counts)

    def take_dirty(self) -> tuple[set[int], set[int]]:
        """Blocks changed since the last call, and those of them whose KV was written."""
        dirty, written = self.dirty, self.written
        self.dirty, self.written = set(), set()
        return dirty, written

    def view(self, block_id: int) -> BlockView:
        """One block, as events show it."""
        state, ref_count, pins, owner, fill, block_hash = (cell[block_id] for cell in self._cells)
        return BlockView(
            STATES[state],
            ref_count,
            block_hash.to_bytes(8, "little") if block_hash else b"",
            self.owners[owner] if owner >= 0 else "",
            fill,
            pins,
        )

    def num_touched(self) -> int:
        """Blocks from this id on are all free."""
        in_use = np.flatnonzero(self.state)
        return int(in_use[-1]) + 1 if len(in_use) else 0

    def places_of(self, block_id: int) -> list[tuple[LiveTable, int]]:
        """The live tables that hold a block, each with its logical index."""
        return [
            (table, table.blocks.index(block_id))
            for table in self.tables.values()
            if block_id in table.blocks
        ]

    def ghost_of(self, table: LiveTable, cause: str) -> GhostTable:
        """What is left of a table when its request ends now."""
        return GhostTable(
            table.request_id,
            table.conversation_id,
            tuple(table.blocks),
            tuple(self.block_hash[table.blocks].tolist()),
            self.hit_tokens.get(table.request_id, 0),
            cause,
        )

    def ghost_alive(self, ghost: GhostTable) -> Array:
        """bool[len(ghost.blocks)]: which blocks still hold that conversation's tokens."""
        hashes = np.array(ghost.hashes, np.uint64)
        alive: Array = (hashes != 0) & (self.block_hash[list(ghost.blocks)] == hashes)
        return alive

    def _count_all(self) -> list[int]:
        pinned = self.pins > 0
        used = self.state == USED
        shared = used & ~pinned & (self.ref_count > 1)
        return [
            int(np.count_nonzero(self.state == FREE)),
            int(np.count_nonzero(self.state == CACHED)),
            int(np.count_nonzero(used & ~pinned & ~shared)),
            int(np.count_nonzero(shared)),
            int(np.count_nonzero(used & pinned)),
        ]


def writes_kv(event: BlockChanged) -> bool:
    """Whether the event wrote KV into its block: computed tokens, or a copy."""
    return event.kind in (BlockEventKind.FILLED, BlockEventKind.COPIED)
