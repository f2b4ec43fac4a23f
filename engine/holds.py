"""Blocks that stay as they are while somebody looks into them, although no request uses them.

No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.api.params import SamplingParams
from engine.block_pool import BlockPool
from engine.free_queue import FreeBlockQueue
from engine.request import Request
from engine.scheduler import Scheduler

_CAUSE = "inspect"


@dataclass(slots=True, eq=False)
class Hold:
    """One reference to each of ``block_ids``."""

    block_ids: list[int] = field(default_factory=list)


class BlockHolds:
    """References that belong to no request. Every block's last reference may be one of these."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._holds: list[Hold] = []
        self._queue: FreeBlockQueue = pool.free

    @property
    def num_blocks(self) -> int:
        """Blocks held, each as often as it is held."""
        return sum(len(table) for table in self.tables())

    def tables(self) -> list[list[int]]:
        """The blocks of each hold."""
        if self._pool.free is not self._queue:
            # The pool was set up anew: nobody holds anything there any more.
            self._queue = self._pool.free
            for hold in self._holds:
                hold.block_ids = []
            self._holds.clear()
        return [hold.block_ids for hold in self._holds]

    def keep(self, block_ids: Sequence[int]) -> Hold:
        """Keeps blocks that are in use or cached; their owners stay."""
        self.tables()
        hold = Hold()
        self._holds.append(hold)
        for block_id in block_ids:
            self._pool.hit(block_id, _holder(self._pool.view(block_id).owner), _CAUSE)
            hold.block_ids.append(block_id)
        return hold

    def borrow(self, count: int, conversation_id: str, spare: int) -> Hold | None:
        """Free blocks without content, to write into; None unless ``spare`` more are left."""
        self.tables()
        if self._pool.num_free < count + spare:
            return None
        hold = Hold()
        self._holds.append(hold)
        holder = _holder(conversation_id)
        for _ in range(count):
            hold.block_ids.append(self._pool.allocate(holder, _CAUSE))
        return hold

    def release(self, hold: Hold) -> None:
        """Gives a hold back; nothing happens if it is over."""
        self.tables()
        if hold not in self._holds:
            return
        self._holds.remove(hold)
        for block_id in reversed(hold.block_ids):
            owner = self._pool.view(block_id).owner
            self._pool.release(block_id, _holder(owner), _CAUSE)
        hold.block_ids = []

    def holds(self, hold: Hold) -> bool:
        """Whether the blocks are still what they were."""
        self.tables()
        return hold in self._holds


def least_spare(scheduler: Scheduler) -> int:
    """Blocks that requests may need in the next step: fewer must not be left to them.

    Each that runs may grow and copy a block; one that waits may be admitted whole.
    """
    manager = scheduler.manager
    entering = max((manager.num_blocks_for(r.num_tokens + 1) for r in scheduler.waiting), default=0)
    return 2 * len(scheduler.running) + entering


def _holder(conversation_id: str) -> Request:
    return Request(
        request_id="",
        conversation_id=conversation_id,
        token_ids=[],
        num_prompt_tokens=0,
        params=SamplingParams(),
        seed=0,
        arrival_s=0.0,
    )
