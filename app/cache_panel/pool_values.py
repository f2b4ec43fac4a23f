"""Small values that the pool model is made of and hands out. Free of Qt."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.snapshot import FREE, USED


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Blocks by what they are; the five add up to the pool. A pinned one counts as pinned only."""

    free: int
    cached: int
    private: int
    shared: int
    pinned: int

    @property
    def used(self) -> int:
        return self.private + self.shared + self.pinned

    @property
    def total(self) -> int:
        return self.free + self.cached + self.used


@dataclass(slots=True)
class LiveTable:
    """The block table of a request that holds blocks now: physical ids in logical order."""

    request_id: str
    conversation_id: str
    blocks: list[int]


@dataclass(frozen=True, slots=True)
class GhostTable:
    """The last table of a request that gave its blocks back, with the hashes that they had then.

    A block still holds that conversation's tokens exactly as long as its hash is the same.
    """

    request_id: str
    conversation_id: str
    blocks: tuple[int, ...]
    hashes: tuple[int, ...]
    cached_tokens: int
    cause: str


@dataclass(frozen=True, slots=True)
class Undo:
    """What an event does not say about the moment before it, kept to fold backwards exactly."""

    last_step: int = -1
    ghost: GhostTable | None = None
    step: int = 0
    copied_from: int = -1
    last_use: int = -1
    hit_tokens: int = 0


def category(state: int, ref_count: int, pins: int) -> int:
    """Index into ``PoolCounts``: free, cached, private, shared, pinned."""
    if state != USED:
        return 0 if state == FREE else 1
    if pins:
        return 4
    return 3 if ref_count > 1 else 2
