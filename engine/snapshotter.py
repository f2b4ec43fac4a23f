"""Snapshots and statistics of an engine, taken between two steps."""

from __future__ import annotations

from collections.abc import Iterator

from engine.api.events import EngineStats
from engine.api.snapshot import RequestRow, Snapshot
from engine.core import EngineCore
from engine.request import Phase, Request

_RUNS = (Phase.PREFILL, Phase.DECODE)


class Snapshotter:
    """Makes snapshots of one core.

    ``block_bytes``: bytes of one block's KV over all layers. The invariant check is the costly part
    (O(blocks)), so ``check_some`` is called when the engine is idle and its finding kept.
    """

    def __init__(self, core: EngineCore, block_bytes: int) -> None:
        self._core = core
        self._block_bytes = block_bytes
        self.invariant_violations = 0
        self.invariant_message = ""
        self._audit: Iterator[list[str]] | None = None
        self._found_some = False

    def begin_check(self) -> None:
        """Something has changed: the recount begins again."""
        self._audit = None

    def check_some(self) -> bool:
        """Recounts a part of the pool and counts what is wrong; True when all of it is counted."""
        if self._audit is None:
            self._audit = self._core.violation_slices()
            self._found_some = False
        found = next(self._audit, None)
        if found is None:
            self._audit = None
            return True
        if found:
            self.invariant_violations += len(found)
            # The first is the cause, those after it are what came of it.
            self.invariant_message = self.invariant_message if self._found_some else found[0]
            self._found_some = True
        return False

    @property
    def num_faults(self) -> int:
        """What was found wrong, and what the core survived of its own."""
        return self.invariant_violations + self._core.metrics.num_begun_anew

    @property
    def watermark_blocks(self) -> int:
        """What is kept free when a request is admitted, by the present settings."""
        return self._core.scheduler.watermark_blocks

    def rows(self) -> tuple[RequestRow, ...]:
        """What becomes of each request now."""
        return tuple(_row(request) for request in self._core.live_requests().values())

    def _message(self) -> str:
        count = self._core.metrics.num_begun_anew
        if self.invariant_message or not count:
            return self.invariant_message
        return f"the books broke {count} times and were set up anew"

    def snapshot(self, now_s: float) -> Snapshot:
        """The whole pool, as it is."""
        core, pool = self._core, self._core.pool
        return Snapshot(
            last_seq=core.log.seq,
            step=core.log.step,
            time_s=now_s,
            num_blocks=pool.num_blocks,
            block_size=pool.block_size,
            block_bytes=self._block_bytes,
            watermark_blocks=self.watermark_blocks,
            context_length=core.limits.context_length,
            owners=tuple(pool.owners),
            pool=pool.columns(),
            requests=self.rows(),
            num_used=pool.num_used,
            num_cached=pool.num_cached,
            num_free=pool.num_free,
            decode_tokens_per_s=core.metrics.decode_tokens_per_s(now_s),
            prefill_tokens_per_s=core.metrics.prefill_tokens_per_s,
            total_computed_tokens=core.metrics.total_computed_tokens,
            total_cached_tokens=core.metrics.total_cached_tokens,
            invariant_violations=self.num_faults,
            invariant_message=self._message(),
        )

    def stats(self, now_s: float) -> EngineStats:
        """The counters of the status strip."""
        core, pool = self._core, self._core.pool
        return EngineStats(
            step=core.log.step,
            num_running=len(core.scheduler.running),
            num_waiting=len(core.scheduler.waiting),
            used_blocks=pool.num_used,
            cached_blocks=pool.num_cached,
            free_blocks=pool.num_free,
            shared_blocks=pool.num_shared,
            decode_tokens_per_s=core.metrics.decode_tokens_per_s(now_s),
            prefill_tokens_per_s=core.metrics.prefill_tokens_per_s,
            invariant_violations=self.num_faults,
        )


def _row(request: Request) -> RequestRow:
    return RequestRow(
        request_id=request.request_id,
        conversation_id=request.conversation_id,
        phase=str(Phase.PAUSED if request.paused and request.phase in _RUNS else request.phase),
        block_table=tuple(request.block_table),
        num_tokens=request.num_tokens,
        num_prompt_tokens=request.num_prompt_tokens,
        num_computed_tokens=request.num_computed_tokens,
        num_cached_tokens=request.num_cached_tokens,
        waits_for=str(request.waits_for),
        blocks_short=request.blocks_short,
    )
