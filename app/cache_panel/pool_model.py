"""The panel's picture of the pool: a pure fold over pool events, from a snapshot on. Free of Qt."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from app.cache_panel.pool_state import Array as Array
from app.cache_panel.pool_state import PoolState
from app.cache_panel.pool_values import LiveTable, Undo, category
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


class PoolModel(PoolState):
    """The pool's state, and how events change it, forwards and backwards.

    ``inconsistency`` says in words what did not fit: a gap in ``seq``, or an event whose ``before``
    is not what the model holds. From then on the model does not change: start from a new snapshot.
    """

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

    # --- folding ---

    def apply(
        self,
        batch: BlockEvents | Iterable[PoolEvent],
        keep: Callable[[PoolEvent, Undo], None] | None = None,
    ) -> bool:
        """Folds events forwards, skipping those up to ``last_seq``. False: inconsistent.

        ``keep`` is given what the way back needs.
        """
        events = batch.events if isinstance(batch, BlockEvents) else batch
        for event in events:
            if event.seq > self.last_seq:
                undo = self.forward(event)
                if undo is None:
                    return False
                if keep is not None:
                    keep(event, undo)
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
        kind, request_id = event.kind, event.request_id
        is_settled = kind is BlockEventKind.FILLED and request_id in self._forked
        undo = Undo(
            last_step=self._last_step[block],
            step=self.step,
            copied_from=self.copied_from.get(block, -1),
            last_use=self._last_use[block],
            hit_tokens=self.hit_tokens.get(request_id, 0) if is_settled else 0,
        )
        if is_use(event):
            self._last_use[block] = event.step
        if kind is BlockEventKind.COPIED:
            self.copied_from[block] = event.source_block_id
        elif undo.copied_from >= 0 and event.after.state != BlockState.USED:
            del self.copied_from[block]
        if writes_kv(event):
            self._last_step[block] = event.step
            self.written.add(block)
        if kind is BlockEventKind.HIT:
            self._add_hit_tokens(request_id, event.after.fill)
            if event.cause == "fork":
                self._forked.add(request_id)
        elif is_settled:
            self._settle_hit_tokens(event)
        return undo

    def _backward_block(self, event: BlockChanged, undo: Undo) -> bool:
        if not self._replace(event, event.after, event.before):
            return False
        self._last_step[event.block_id] = undo.last_step
        self._last_use[event.block_id] = undo.last_use
        self.written.discard(event.block_id)
        if undo.copied_from >= 0:
            self.copied_from[event.block_id] = undo.copied_from
        else:
            self.copied_from.pop(event.block_id, None)
        if event.kind is BlockEventKind.HIT:
            self._add_hit_tokens(event.request_id, -event.after.fill)
        elif undo.hit_tokens:
            self.hit_tokens[event.request_id] = undo.hit_tokens
            self._forked.add(event.request_id)
        return True

    def _add_hit_tokens(self, request_id: str, num_tokens: int) -> None:
        total = self.hit_tokens.pop(request_id, 0) + num_tokens
        if total:
            self.hit_tokens[request_id] = total

    def _settle_hit_tokens(self, event: BlockChanged) -> None:
        """Of the last block that it shares a fork may use less than is in it: the first token that
        it computes itself says where its own begin.
        """
        self._forked.discard(event.request_id)
        table = self.tables.get(event.request_id)
        if table is None or event.block_id not in table.blocks:
            return
        begun = table.blocks.index(event.block_id) * self.block_size + max(0, event.after.fill - 1)
        found = self.hit_tokens.get(event.request_id, 0)
        self._add_hit_tokens(event.request_id, min(begun, found) - found)

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
            self._forked.discard(event.request_id)
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
        if was[:3] != now[:3]:
            # Most events only write into a block.
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
        if new and (min(new) < 0 or max(new) >= self.num_blocks):
            self.inconsistency = f"event {event.seq}: blocks {new} of {self.num_blocks}"
            return False
        blocks[event.start : end] = new
        self._note_holders(event.conversation_id, old, new)
        self._note_entries(old, new)
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
        state, owner, block_hash = view.state, view.owner, view.block_hash
        return (
            USED if state == BlockState.USED else CACHED if state == BlockState.CACHED else FREE,
            view.ref_count,
            view.pins,
            self._index_of_owner(owner) if owner else -1,
            view.fill,
            int.from_bytes(block_hash, "little") if block_hash else 0,
        )


def writes_kv(event: BlockChanged) -> bool:
    """Whether the event wrote KV into its block: computed tokens, or a copy."""
    return event.kind in (BlockEventKind.FILLED, BlockEventKind.COPIED)


def is_use(event: BlockChanged) -> bool:
    """Whether somebody worked with the block: wrote into it, found it, or gave it back."""
    kind = event.kind
    return (
        kind is BlockEventKind.FILLED
        or kind is BlockEventKind.HIT
        or kind is BlockEventKind.RELEASED
        or kind is BlockEventKind.COPIED
    )
