"""The engine's real block pool, driven by hand: what the cache panel sees without a model."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api.events import PoolEvent
from engine.api.params import SamplingParams
from engine.api.snapshot import RequestRow, Snapshot
from engine.block_hash import root_hash
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool
from engine.event_log import PoolEventLog
from engine.request import Phase, Request


class ScriptedPool:
    """A pool and its manager; each method does what the scheduler and core would do in one step."""

    def __init__(
        self, num_blocks: int, block_size: int = 16, *, block_bytes: int = 368_640
    ) -> None:
        self.log = PoolEventLog()
        self.log.enabled = True
        self.pool = BlockPool(num_blocks, block_size, self.log)
        self.manager = BlockManager(self.pool, root_hash("scripted"))
        self.block_bytes = block_bytes
        self.requests: dict[str, Request] = {}
        self.watermark_blocks = max(1, num_blocks // 50)

    def admit(self, request_id: str, conversation_id: str, tokens: Sequence[int]) -> bool:
        """Gives a new request its blocks. False if the pool is too full; nothing changes then."""
        request = Request(
            request_id, conversation_id, list(tokens), len(tokens), SamplingParams(), 0, 0.0
        )
        admission = self.manager.examine(request, 0)
        if admission.num_short:
            return False
        self.log.step += 1
        self.manager.admit(request, admission)
        request.num_cached_tokens = request.num_computed_tokens
        request.phase = Phase.PREFILL
        self.requests[request_id] = request
        return True

    def compute(self, request_id: str, num_tokens: int | None = None) -> int:
        """Computes up to ``num_tokens`` pending tokens (None: all). Returns how many."""
        request = self.requests[request_id]
        pending = request.num_tokens - request.num_computed_tokens
        count = pending if num_tokens is None else min(num_tokens, pending)
        if count:
            self.log.step += 1
            start = request.num_computed_tokens
            request.num_computed_tokens += count
            self.manager.commit(request, start, count, self.log.step)
        return count

    def append(self, request_id: str, token_id: int) -> bool:
        """Samples and computes one more token. False if no block is left for it."""
        request = self.requests[request_id]
        request.token_ids.append(token_id)
        if not self.manager.append_slot(request):
            request.token_ids.pop()
            return False
        request.phase = Phase.DECODE
        self.compute(request_id)
        return True

    def finish(self, request_id: str, cause: str = "finished") -> None:
        """Gives a request's blocks back."""
        self.log.step += 1
        self.manager.free(self.requests.pop(request_id), cause)

    def drain(self) -> tuple[PoolEvent, ...]:
        """Events since the last call."""
        return self.log.drain()

    def snapshot(self, *, prefill_tokens_per_s: float = 1600.0) -> Snapshot:
        """The pool now. Events that are not drained yet are in it."""
        pool = self.pool
        return Snapshot(
            last_seq=self.log.seq,
            step=self.log.step,
            time_s=0.0,
            num_blocks=pool.num_blocks,
            block_size=pool.block_size,
            block_bytes=self.block_bytes,
            watermark_blocks=self.watermark_blocks,
            context_length=2048,
            owners=tuple(pool.owners),
            pool=pool.columns(),
            requests=tuple(self._row(request) for request in self.requests.values()),
            num_used=pool.num_used,
            num_cached=pool.num_cached,
            num_free=pool.num_free,
            decode_tokens_per_s=100.0,
            prefill_tokens_per_s=prefill_tokens_per_s,
            total_computed_tokens=0,
            total_cached_tokens=0,
            invariant_violations=0,
        )

    def _row(self, request: Request) -> RequestRow:
        return RequestRow(
            request_id=request.request_id,
            conversation_id=request.conversation_id,
            phase=request.phase.value,
            block_table=tuple(request.block_table),
            num_tokens=request.num_tokens,
            num_prompt_tokens=request.num_prompt_tokens,
            num_computed_tokens=request.num_computed_tokens,
            num_cached_tokens=request.num_cached_tokens,
            waits_for="",
            blocks_short=0,
        )


def four_conversations(
    num_blocks: int = 512, prefix: int = 200, answers: Sequence[int] = (90, 140, 60, 200)
) -> ScriptedPool:
    """Four conversations ``c1`` … ``c4`` (requests ``r1`` …) that share a prefix of tokens.

    Their questions have 24 tokens; ``answers`` gives the tokens of each answer so far.
    """
    scripted = ScriptedPool(num_blocks)
    for index, answer in enumerate(answers, start=1):
        question = [1000 * index + i for i in range(24)]
        assert scripted.admit(f"r{index}", f"c{index}", [*range(prefix), *question])
        scripted.compute(f"r{index}")
        for i in range(answer):
            assert scripted.append(f"r{index}", 5000 * index + i)
    return scripted
