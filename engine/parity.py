"""The parity inspector: does paging change what attention computes?

*Two backends* runs one sequence through both with the same weights and compares them layer by
layer. *Live* compares what the pool holds of a conversation with a recomputation without a cache.
Both run between two steps and change nothing that a request could see.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from engine.api.errors import (
    InterruptedQueryError,
    InvalidValueError,
    NotSupportedYetError,
    PromptTooLongError,
)
from engine.api.events import ParityReport
from engine.attention.base import AttentionBackend
from engine.attention.dense import DenseBackend
from engine.attention.make import make_backend
from engine.core import EngineCore
from engine.devices import DENSE, choose_backend
from engine.holds import Hold, least_spare
from engine.kv_cache import KVCache
from engine.model_runner import ModelRunner
from engine.parity_measure import bounds_of, difference
from engine.parity_source import PresentKV, present_kv
from engine.parity_steps import (
    Fault,
    LayerFinding,
    LiveCheck,
    Lockstep,
    Side,
    first_fault,
    slots_of,
)
from engine.parity_words import compared_words, live_words
from engine.slices import Pause, Work, in_slices, no_pause, with_share


class ParityInspector:
    """Looks into one engine, on the engine's thread.

    Args:
        core: whose pool and conversations.
        runner: its runner.
    """

    def __init__(self, core: EngineCore, runner: ModelRunner) -> None:
        self._core = core
        self._runner = runner

    # --- two backends ---

    def compare(
        self,
        token_ids: Sequence[int],
        backend: str,
        reference: str = DENSE,
        *,
        command_id: str = "",
    ) -> ParityReport:
        """Runs ``token_ids`` through two backends.

        The engine's own backend works in free blocks of its pool if there are enough: without
        slices nobody else comes upon them. Others get their own storage.

        Raises:
            InvalidValueError: no tokens.
            PromptTooLongError: more tokens than the model's context.
            NotSupportedYetError: a backend that is not known.
            DeviceError: a backend that cannot run here.
        """
        self._check_length(len(token_ids))
        lent = Hold(self._free_blocks(self._core.manager.num_blocks_for(len(token_ids))))
        report = self._compare(token_ids, (backend, reference), lent, no_pause)
        return replace(report, command_id=command_id)

    def compare_slices(
        self,
        token_ids: Sequence[int],
        backend: str,
        reference: str = DENSE,
        *,
        conversation_id: str = "",
        command_id: str = "",
    ) -> Generator[float, None, ParityReport]:
        """``compare`` in slices, between which the engine may run steps.

        The blocks to work in are borrowed from the pool if it has enough.

        Raises:
            InterruptedQueryError: the borrowed blocks were taken back.
        """
        hold = self._borrow(len(token_ids), conversation_id)
        names, work = (backend, reference), Work()
        try:
            slices = in_slices(
                lambda pause: self._compare(
                    token_ids, names, hold, work.counted(self._watching(hold, pause)), work
                )
            )
            report = yield from with_share(slices, lambda: work.share)
            return replace(report, command_id=command_id)
        finally:
            self._core.holds.release(hold)

    @torch.inference_mode()
    def _compare(
        self,
        token_ids: Sequence[int],
        asked: tuple[str, str],
        hold: Hold,
        pause: Pause,
        work: Work | None = None,
    ) -> ParityReport:
        decoder = self._runner.decoder
        names = [choose_backend(name, decoder.device, decoder.dtype)[0] for name in asked]
        ids = torch.tensor(list(token_ids), dtype=torch.int64, device=decoder.device)
        side = self._side(names[0], ids, hold.block_ids, pause)
        other = self._side(names[1], ids, hold.block_ids if names[1] != names[0] else (), pause)
        if work is not None:
            of_layers = decoder.config.num_layers * (len(side.steps) + len(other.steps))
            work.total = of_layers + len(side.steps)
        bounds = bounds_of(decoder.dtype)
        lockstep = Lockstep(side, other, bounds.attention)
        positions = torch.arange(len(ids), device=decoder.device)
        wanted = decoder.forward(ids, positions, lockstep, positions[side.ends])
        logits = difference(self._run(side, pause), wanted, bounds.state)
        fault = first_fault(lockstep.findings, side.block_table, self._core.pool.block_size)
        words = compared_words(names, lockstep.findings, fault, bounds, logits, len(ids))
        report = _report(names, bounds.attention, lockstep.findings, fault, words)
        return replace(
            report,
            num_tokens=len(ids),
            logits_error=logits.error,
            within_bound=fault is None and logits.first_row < 0,
        )

    def _free_blocks(self, count: int) -> list[int]:
        """That many free blocks that hold no cached content; none if there are too few."""
        pool = self._core.pool
        if pool.num_free < count:
            return []
        return list(islice((b for b in pool.free if pool.hash_of(b) is None), count))

    def _borrow(self, num_tokens: int, conversation_id: str) -> Hold:
        """Blocks of the live pool to work in; none if there are too few or it has no pool."""
        self._check_length(num_tokens)
        core = self._core
        spare = least_spare(core.scheduler)
        hold: Hold | None = None
        if self._runner.attention.cache is not None:
            count = core.manager.num_blocks_for(num_tokens)
            hold = core.holds.borrow(count, conversation_id, spare)
        return hold or Hold()

    def _side(self, name: str, ids: Tensor, lent: Sequence[int], pause: Pause) -> Side:
        size = self._core.pool.block_size
        num_blocks = -(-len(ids) // size)
        live = self._runner.attention
        if lent and live.name == name:
            return Side(live, ids, tuple(lent), size, pause)
        decoder = self._runner.decoder
        backend = make_backend(
            name, decoder.config, num_blocks, size, decoder.dtype, decoder.device
        )
        # Backwards, so that a block table that is not followed shows.
        table = [] if backend.cache is None else list(range(num_blocks))[::-1]
        return Side(backend, ids, table, size, pause)

    def _run(self, side: Side, pause: Pause) -> Tensor:
        """Logits of each step's last token, with the steps as the engine runs them."""
        forward, begin = self._runner.decoder.forward, side.backend.begin_step
        logits: list[Tensor] = []
        for step in side.steps:
            pause()
            logits.append(forward(step.input_ids, step.positions, begin(step), step.sample_rows))
        return torch.cat(logits)

    # --- live ---

    def inspect_conversation(
        self, conversation_id: str, token_ids: Sequence[int] = (), *, command_id: str = ""
    ) -> ParityReport:
        """Compares what the pool holds of a conversation with a dense recomputation.

        ``token_ids``: of its messages, to find what is cached when it is not running.

        Raises:
            UnknownIdError: it holds nothing of it.
            NotSupportedYetError: the engine's backend has no pool.
        """
        present = present_kv(self._core, conversation_id, token_ids)
        return self.inspect(present, command_id=command_id)

    def inspect_slices(
        self, conversation_id: str, token_ids: Sequence[int] = (), *, command_id: str = ""
    ) -> Generator[float, None, ParityReport]:
        """``inspect_conversation`` in slices, between which the engine may run steps.

        It compares what the pool holds now: full blocks are kept until then.

        Raises:
            InterruptedQueryError: the blocks were taken back.
        """
        present = present_kv(self._core, conversation_id, token_ids)
        self._live_cache()
        num_full = len(present.token_ids) // self._core.pool.block_size
        hold = self._core.holds.keep(present.block_table[:num_full])
        # Dense takes each layer's tokens at once.
        work = Work(self._runner.decoder.config.num_layers)
        try:
            slices = in_slices(
                lambda pause: self._inspect(present, work.counted(self._watching(hold, pause)))
            )
            report = yield from with_share(slices, lambda: work.share)
            return replace(report, command_id=command_id)
        finally:
            self._core.holds.release(hold)

    def inspect(self, present: PresentKV, *, command_id: str = "") -> ParityReport:
        """Compares keys and values in the pool's blocks with a dense recomputation.

        Raises:
            NotSupportedYetError: the engine's backend has no pool.
        """
        return replace(self._inspect(present, no_pause), command_id=command_id)

    @torch.inference_mode()
    def _inspect(self, present: PresentKV, pause: Pause) -> ParityReport:
        decoder, cache = self._runner.decoder, self._live_cache()
        size, bound = self._core.pool.block_size, bounds_of(decoder.dtype).state
        ids = torch.tensor(present.token_ids, dtype=torch.int64, device=decoder.device)
        slots = slots_of(present.block_table, len(ids), size, decoder.device)
        dense: AttentionBackend = DenseBackend(decoder.config)
        side = Side(dense, ids, (), size, pause)
        check = LiveCheck(side, cache, slots, bound, len(ids) // size * size)
        positions = torch.arange(len(ids), device=decoder.device)
        decoder.forward(ids, positions, check, positions[:0])
        fault = first_fault(check.findings, present.block_table, size)
        verdict = live_words(present, check.findings, fault, bound)
        names = self._runner.attention.name, DENSE
        report = _report(names, bound, check.findings, fault, verdict)
        return replace(report, num_tokens=len(ids))

    def _live_cache(self) -> KVCache:
        attention = self._runner.attention
        if attention.cache is None:
            raise NotSupportedYetError(
                f"The backend {attention.name} keeps nothing in the cache's blocks.",
                action="Choose a paged backend.",
                backend=attention.name,
            )
        return attention.cache

    # --- both ---

    def _watching(self, hold: Hold, pause: Pause) -> Pause:
        """``pause``, and then a look whether the blocks are still there."""
        if not hold.block_ids:
            return pause

        def paused() -> None:
            pause()
            if not self._core.holds.holds(hold):
                raise InterruptedQueryError("The cache was emptied meanwhile.")

        return paused

    def _check_length(self, num_tokens: int) -> None:
        context = self._core.limits.context_length
        if not num_tokens:
            raise InvalidValueError("There are no tokens to compare.")
        if num_tokens > context:
            raise PromptTooLongError(
                f"The conversation has {num_tokens} tokens, but the model's context is {context}.",
                prompt_tokens=num_tokens,
                context_length=context,
            )


def _report(
    names: Sequence[str],
    bound: float,
    findings: Sequence[LayerFinding],
    fault: Fault | None,
    verdict: str,
) -> ParityReport:
    return ParityReport(
        command_id="",
        backend=names[0],
        reference=names[1],
        bound=bound,
        layer_errors=tuple(finding.error for finding in findings),
        first_bad_layer=fault.layer if fault else -1,
        bad_block_id=fault.block_id if fault else -1,
        bad_slot=fault.slot if fault else -1,
        verdict=verdict,
        bad_position=fault.position if fault else -1,
        within_bound=fault is None,
    )
