"""Pool events put together to what a reader can follow. Free of Qt."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.api.events import BlockChanged, BlockEventKind, PoolEvent

MAX_ROWS = 300
WRITING = "writing"
_WRITES = {
    (BlockEventKind.FILLED, "computed"),
    (BlockEventKind.STORED, "full"),
    (BlockEventKind.ALLOCATED, "grow"),
}
# A copy is told once, by the block that was written.
_TOLD_ELSEWHERE = {(BlockEventKind.ALLOCATED, "copy"), (BlockEventKind.RELEASED, "copy")}


@dataclass(slots=True, eq=False)
class TapeRow:
    """One or more events of one request for one reason; of what no request did, of a conversation.

    ``what``: kind of the events, or ``WRITING`` for the stream of computing, growing and filling,
    which goes on over many steps. ``num_blocks`` blocks of which ``block_id`` came first;
    ``num_tokens`` as they stand in them. ``owners``: whose content was lost, for evictions.
    """

    first_seq: int
    first_step: int
    last_step: int
    what: str
    cause: str
    request_id: str
    conversation_id: str
    block_id: int
    source_block_id: int = -1
    num_blocks: int = 0
    num_tokens: int = 0
    num_full: int = 0
    owners: list[str] = field(default_factory=list)

    def concerns(self, conversation_id: str) -> bool:
        """Whether it is about this conversation."""
        return conversation_id == self.conversation_id or conversation_id in self.owners


class TapeRows:
    """The latest ``MAX_ROWS`` rows, newest last."""

    def __init__(self) -> None:
        self.rows: deque[TapeRow] = deque(maxlen=MAX_ROWS)
        self._open: dict[tuple[str, str], TapeRow] = {}

    def clear(self) -> None:
        """Forgets everything."""
        self.rows.clear()
        self._open.clear()

    def add(self, events: Iterable[PoolEvent]) -> None:
        """Takes events in order. Block tables change along with blocks, and tell nothing more."""
        for event in events:
            if not isinstance(event, BlockChanged):
                continue
            reason = (event.kind, event.cause)
            if reason in _TOLD_ELSEWHERE or _stays_pinned(event):
                continue
            is_writing = reason in _WRITES
            what = WRITING if is_writing else str(event.kind)
            row = self._open.get(_doer(event.request_id, event.conversation_id))
            if row is None or not _goes_on(row, event, what):
                row = self._begin(event, what, "" if is_writing else event.cause)
            _count(row, event)

    def _begin(self, event: BlockChanged, what: str, cause: str) -> TapeRow:
        row = TapeRow(
            event.seq,
            event.step,
            event.step,
            what,
            cause,
            event.request_id,
            event.conversation_id,
            event.block_id,
            event.source_block_id,
        )
        if len(self.rows) == MAX_ROWS:
            oldest = self.rows[0]
            doer = _doer(oldest.request_id, oldest.conversation_id)
            if self._open.get(doer) is oldest:
                del self._open[doer]
        self.rows.append(row)
        self._open[_doer(row.request_id, row.conversation_id)] = row
        return row


def _doer(request_id: str, conversation_id: str) -> tuple[str, str]:
    """Pins and inspections belong to no request: those of two conversations are two things."""
    return (request_id, "") if request_id else ("", conversation_id)


def _stays_pinned(event: BlockChanged) -> bool:
    """Whether a pin went of a block that has another: who pins anew holds both for a moment."""
    return event.kind is BlockEventKind.UNPINNED and event.after.pins > 0


def _goes_on(row: TapeRow, event: BlockChanged, what: str) -> bool:
    if row.what != what:
        return False
    if what == WRITING:
        return True
    return row.cause == event.cause and row.last_step == event.step


def _count(row: TapeRow, event: BlockChanged) -> None:
    row.last_step = max(row.last_step, event.step)
    kind, before, after = event.kind, event.before, event.after
    if row.what == WRITING:
        row.num_blocks += kind is BlockEventKind.ALLOCATED
        row.num_full += kind is BlockEventKind.STORED
        row.num_tokens += max(0, after.fill - before.fill)
        return
    row.num_blocks += 1
    row.num_tokens += before.fill if kind is BlockEventKind.REMOVED else after.fill
    if kind is BlockEventKind.REMOVED and before.owner and before.owner not in row.owners:
        row.owners.append(before.owner)
