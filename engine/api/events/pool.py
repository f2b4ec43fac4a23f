"""What happens to the blocks of the pool, for clients that subscribed, and the counters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.api.events.base import Event


class BlockState(StrEnum):
    FREE = "free"
    CACHED = "cached"
    USED = "used"


class BlockEventKind(StrEnum):
    """Names follow the field.

    *stored* and *removed* are hashes entering and leaving the prefix cache.
    """

    ALLOCATED = "allocated"
    HIT = "hit"
    FILLED = "filled"
    STORED = "stored"
    COPIED = "copied"
    RELEASED = "released"
    REMOVED = "removed"
    PINNED = "pinned"
    UNPINNED = "unpinned"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block at one moment.

    ``block_hash``: first 8 bytes, or empty. ``fill``: tokens computed.
    """

    state: BlockState
    ref_count: int
    block_hash: bytes
    owner: str
    fill: int
    pins: int = 0


@dataclass(frozen=True, slots=True)
class BlockChanged:
    """One block changed. ``seq`` has no gaps; ``cause`` says why in one word of the engine's.

    Folding forwards takes ``after``, backwards ``before``. ``source_block_id``: of a copy, else -1.
    """

    seq: int
    step: int
    kind: BlockEventKind
    cause: str
    block_id: int
    request_id: str
    conversation_id: str
    before: BlockView
    after: BlockView
    source_block_id: int = -1


@dataclass(frozen=True, slots=True)
class TableChanged:
    """A block table changed from logical block ``start`` on: ``removed`` became ``added``."""

    seq: int
    step: int
    cause: str
    request_id: str
    conversation_id: str
    start: int
    removed: tuple[int, ...]
    added: tuple[int, ...]


PoolEvent = BlockChanged | TableChanged


@dataclass(frozen=True, slots=True)
class BlockEvents(Event):
    """Pool events in order, gap-free after the snapshot's ``last_seq``.

    The first batch after subscribing, and after a new pool, is empty: it says that the snapshot is
    there.
    """

    events: tuple[PoolEvent, ...]


@dataclass(frozen=True, slots=True)
class EngineStats(Event):
    """Counters for the status strip, twice a second while something runs. Rates are per second."""

    step: int
    num_running: int
    num_waiting: int
    used_blocks: int
    cached_blocks: int
    free_blocks: int
    shared_blocks: int
    decode_tokens_per_s: float
    prefill_tokens_per_s: float
    invariant_violations: int
