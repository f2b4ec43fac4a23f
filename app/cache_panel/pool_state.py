"""The pool at one moment, as columns and tables: what the panel reads. Free of Qt."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from app.cache_panel.pool_values import GhostTable, LiveTable, PoolCounts
from engine.api.events import BlockState, BlockView
from engine.api.snapshot import CACHED, FREE, USED, Snapshot

STATES = (BlockState.FREE, BlockState.CACHED, BlockState.USED)
COLUMNS = (
    "state", "ref_count", "pins", "owner", "fill", "last_step", "last_use", "block_hash",
)  # fmt: skip

NOBODY, UNKNOWN = -1, -2

Array = npt.NDArray[Any]


class PoolState:
    """Columns, tables and ghosts of the pool at ``last_seq``.

    Columns are numpy arrays with one entry a block: ``state`` (codes of ``engine.api.snapshot``),
    ``ref_count``, ``pins``, ``owner`` (index into ``owners`` or -1), ``fill`` (tokens),
    ``last_step`` (that wrote it; of the commit, once events tell), ``last_use`` (step in which it
    was last written, found or given back) and ``block_hash`` (0 for none). Only ``PoolModel``
    writes to them. ``saved_blocks``: how many more blocks the tables would need if
    none were shared. ``copied_from``: of blocks in use that began as copies, the block copied.
    ``owner`` is who took a block last, and stays when others go on with it: ``holder_of`` tells
    whose a block in use is.
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
        self.last_use: Array = self.last_step.copy()
        self.block_hash: Array = np.frombuffer(pool.block_hash, "<u8").astype(np.uint64)
        self.owners: list[str] = list(snapshot.owners)
        self.tables: dict[str, LiveTable] = {}
        self.ghosts: dict[str, GhostTable] = {}
        self.hit_tokens: dict[str, int] = {}
        self._forked: set[str] = set()
        self.table_version = 0
        self.dirty: set[int] = set()
        self.written: set[int] = set()
        self.inconsistency = ""
        self.copied_from: dict[int, int] = {}
        self._owner_index = {name: index for index, name in enumerate(self.owners)}
        self._holder: Array = np.full(self.num_blocks, NOBODY, np.int32)
        self._bind()
        self._counts = self._count_all()
        self.saved_blocks = 0
        # Not the reference counts: pins and inspections hold references too, and save nothing.
        self._entries: dict[int, int] = {}
        self.note(snapshot)
        for row in snapshot.requests:
            if row.num_cached_tokens:
                self.hit_tokens[row.request_id] = row.num_cached_tokens
            if row.block_table:
                self.tables[row.request_id] = LiveTable(
                    row.request_id, row.conversation_id, list(row.block_table)
                )
                self._holder[list(row.block_table)] = self._index_of_owner(row.conversation_id)
                self._note_entries((), row.block_table)

    def _bind(self) -> None:
        """Scalar access through a memoryview is several times faster than through the array."""
        self._cells = tuple(
            column.data
            for column in (
                self.state, self.ref_count, self.pins, self.owner, self.fill, self.block_hash,
            )
        )  # fmt: skip
        self._last_step = self.last_step.data
        self._last_use = self.last_use.data

    def copy(self) -> Self:
        """Another one of the same moment, which goes its own way from there."""
        made = copy.copy(self)
        for name in COLUMNS:
            setattr(made, name, getattr(self, name).copy())
        made.owners = list(self.owners)
        made.tables = {k: replace(t, blocks=list(t.blocks)) for k, t in self.tables.items()}
        made.ghosts, made.hit_tokens = dict(self.ghosts), dict(self.hit_tokens)
        made.dirty, made.written = set(), set()
        made._forked = set(self._forked)
        made.copied_from = dict(self.copied_from)
        made._owner_index, made._counts = dict(self._owner_index), list(self._counts)
        made._holder, made._entries = self._holder.copy(), dict(self._entries)
        made._bind()
        return made

    def note(self, snapshot: Snapshot) -> None:
        """Takes what no event carries: limits, measured rates, the engine's own check."""
        self.watermark_blocks = snapshot.watermark_blocks
        self.context_length = snapshot.context_length
        self.prefill_tokens_per_s = snapshot.prefill_tokens_per_s
        self.invariant_violations = snapshot.invariant_violations
        self.invariant_message = snapshot.invariant_message

    def _index_of_owner(self, owner: str) -> int:
        index = self._owner_index.get(owner)
        if index is None:
            index = self._owner_index[owner] = len(self.owners)
            self.owners.append(owner)
        return index

    def _note_holders(
        self, conversation_id: str, left: tuple[int, ...], taken: tuple[int, ...]
    ) -> None:
        """Blocks left a table of a conversation, others were taken into it."""
        index, holder = self._index_of_owner(conversation_id), self._holder
        for block in left:
            if holder[block] == index:
                # Somebody else may hold it too: found out when it is asked for.
                holder[block] = UNKNOWN
        for block in taken:
            holder[block] = index

    def _note_entries(self, left: tuple[int, ...], taken: tuple[int, ...]) -> None:
        """Keeps ``saved_blocks``: all entries of a block but one."""
        entries = self._entries
        for block in left:
            entries[block] -= 1
            if entries[block]:
                self.saved_blocks -= 1
            else:
                del entries[block]
        for block in taken:
            count = entries[block] = entries.get(block, 0) + 1
            self.saved_blocks += count > 1

    def holder_of(self, chosen: Array | slice) -> Array:
        """int32, index into ``owners``: whose table a block of one table stands in; of a block in
        several one of them, of one in none a negative number.
        """
        holders: Array = self._holder[chosen]
        if bool(((holders == UNKNOWN) & (self.state[chosen] == USED)).any()):
            self._find_holders()
            holders = self._holder[chosen]
        return holders

    def _find_holders(self) -> None:
        holder = self._holder
        wanted = (holder == UNKNOWN) & (self.state == USED)
        holder[wanted] = NOBODY
        for table in self.tables.values():
            blocks = np.array(table.blocks, np.int64)
            holder[blocks[wanted[blocks]]] = self._index_of_owner(table.conversation_id)

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
