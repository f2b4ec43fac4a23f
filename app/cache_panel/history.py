"""The last minute of the pool: its events, packed, and how full it was. Free of Qt."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from app.cache_panel.lane import NO_WORK, LaneRow, StepWork
from app.cache_panel.pool_values import PoolCounts, Undo
from engine.api.events import (
    BlockChanged,
    BlockEventKind,
    BlockState,
    BlockView,
    PoolEvent,
    TableChanged,
)

SPAN_S = 60.0
MAX_EVENTS = 400_000
"""About 50 MB packed: where more happens in a minute, less than a minute is kept."""

_DROP_AT_LEAST = 512
_STATES = tuple(BlockState)
_KINDS = tuple(BlockEventKind)
_KIND_CODES = {str(kind): code for code, kind in enumerate(_KINDS)}
_STATE_CODES = {str(state): code for code, state in enumerate(_STATES)}
# seq, step, block, source, kind, cause, request, conversation; twice: state, ref_count, pins, fill,
# owner, hash; last step, step, source of a copy, last use and tokens found before.
_PACKED = struct.Struct("<qiii B HII BHHHI8s BHHHI8s iiiii")


@dataclass(frozen=True, slots=True)
class Moment:
    """The pool as one delivery left it: ``position`` events were folded then.

    ``time_s``: a monotonic clock's. ``rows``: what each request was doing, ``work`` what a step
    was. ``saved_blocks``: logical minus physical blocks.
    """

    time_s: float
    position: int
    step: int
    counts: PoolCounts
    saved_blocks: int
    rows: tuple[LaneRow, ...] = ()
    work: StepWork = NO_WORK


class _Codes(dict[str, int]):
    """A number for each text; ``texts`` in the order of their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def __missing__(self, text: str) -> int:
        self[text] = code = len(self.texts)
        self.texts.append(text)
        return code


class History:
    """What has happened since ``first``: positions count events from the beginning on.

    An event as an object takes some 500 bytes and slows every garbage collection; packed it takes
    about 120 and nobody looks at it.
    """

    def __init__(self) -> None:
        self.first = 0
        self.moments: list[Moment] = []
        self._entries: list[bytes | tuple[TableChanged, Undo]] = []
        self._codes = _Codes()

    @property
    def end(self) -> int:
        """The position after the newest event."""
        return self.first + len(self._entries)

    # --- taking ---

    def add(self, event: PoolEvent, undo: Undo) -> None:
        """Takes the next event and what folding it backwards needs."""
        if isinstance(event, TableChanged):
            self._entries.append((event, undo))
            return
        before, after, codes = event.before, event.after, self._codes
        self._entries.append(
            _PACKED.pack(
                event.seq, event.step, event.block_id, event.source_block_id,
                _KIND_CODES[event.kind], codes[event.cause], codes[event.request_id],
                codes[event.conversation_id],
                _STATE_CODES[before.state], before.ref_count, before.pins, before.fill,
                codes[before.owner], before.block_hash,
                _STATE_CODES[after.state], after.ref_count, after.pins, after.fill,
                codes[after.owner], after.block_hash,
                undo.last_step, undo.step, undo.copied_from, undo.last_use,
                undo.hit_tokens,
            )
        )  # fmt: skip

    def mark(self, moment: Moment) -> None:
        """Takes note of how things stand after the newest event."""
        self.moments.append(moment)

    # --- forgetting ---

    def droppable(self, now_s: float) -> int:
        """Events before this position are older than ``SPAN_S``, or too many."""
        index = bisect_right(self.moments, now_s - SPAN_S, key=_time_of)
        # The moment before the span begins says how full the pool was when it began.
        old = self.moments[index - 1].position if index else self.first
        return max(self.first, old, self.end - MAX_EVENTS)

    def is_crowded(self) -> bool:
        """Whether there are more events than can be kept."""
        return len(self._entries) > MAX_EVENTS

    def drop(self, position: int) -> None:
        """Forgets what was before ``position``, when it is worth the trouble."""
        count = position - self.first
        if count >= _DROP_AT_LEAST or (count and len(self._entries) == count):
            del self._entries[:count]
            self.first = position
        keep = bisect_left(self.moments, position, key=_position_of)
        if keep >= 16:
            del self.moments[:keep]

    # --- reading ---

    def entry(self, position: int) -> tuple[PoolEvent, Undo]:
        """The event at a position, with what folding it backwards needs."""
        entry = self._entries[position - self.first]
        return self._unpack(entry) if isinstance(entry, bytes) else entry

    def events(self, start: int, end: int) -> list[PoolEvent]:
        """Events from ``start`` to before ``end``, as far as they are kept."""
        return [self.entry(p)[0] for p in range(max(start, self.first), min(end, self.end))]

    def step_of(self, position: int) -> int:
        """The engine's step in which the event at a position happened."""
        entry = self._entries[position - self.first]
        return int(_PACKED.unpack(entry)[1]) if isinstance(entry, bytes) else entry[0].step

    def step_start(self, position: int, direction: int) -> int:
        """The next position, forwards (1) or backwards (-1), at which another step begins."""
        if direction < 0:
            if position <= self.first:
                return self.first
            step = self.step_of(position - 1)
            while position > self.first and self.step_of(position - 1) == step:
                position -= 1
            return position
        if position >= self.end:
            return self.end
        step = self.step_of(position)
        while position < self.end and self.step_of(position) == step:
            position += 1
        return position

    def moment_at(self, position: int) -> Moment | None:
        """The newest moment that is not after a position; the oldest one for what is before."""
        if not self.moments:
            return None
        index = bisect_right(self.moments, position, key=_position_of)
        return self.moments[max(0, index - 1)]

    def position_at(self, time_s: float) -> int:
        """The position at a moment of the clock."""
        index = bisect_right(self.moments, time_s, key=_time_of)
        position = self.moments[index - 1].position if index else self.first
        return max(self.first, position)

    def _unpack(self, packed: bytes) -> tuple[BlockChanged, Undo]:
        found = _PACKED.unpack(packed)
        texts = self._codes.texts
        event = BlockChanged(
            found[0], found[1], _KINDS[found[4]], texts[found[5]], found[2],
            texts[found[6]], texts[found[7]],
            _view(found[8:14], texts), _view(found[14:20], texts), found[3],
        )  # fmt: skip
        return event, Undo(found[20], None, *found[21:])


def _view(packed: tuple[int, ...], texts: list[str]) -> BlockView:
    state, ref_count, pins, fill, owner, block_hash = packed
    return BlockView(_STATES[state], ref_count, _hash(block_hash), texts[owner], fill, pins)  # type: ignore[arg-type]


def _hash(packed: bytes) -> bytes:
    return packed if any(packed) else b""


def _time_of(moment: Moment) -> float:
    return moment.time_s


def _position_of(moment: Moment) -> int:
    return moment.position
