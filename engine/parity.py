"""The parity inspector: does paging change what attention computes?

*Two backends* runs one sequence through both with the same weights and compares them layer by
layer. *Live* compares what the pool holds of a conversation with a recomputation without a cache.
Both run between two steps and change nothing that a request could see.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from engine.api.errors import InvalidValueError, NotSupportedYetError, PromptTooLongError
from engine.api.events import ParityReport
from engine.attention.base import AttentionBackend
from engine.attention.dense import DenseBackend
from engine.attention.make import make_backend
from engine.core import EngineCore
from engine.devices import DENSE, choose_backend
from engine.model_runner import ModelRunner
from engine.parity_measure import bounds_of, difference
from engine.parity_source import PresentKV, present_kv
from engine.parity_steps import LayerFinding, LiveCheck, Lockstep, Side, slots_of
from engine.parity_words import compared_words, live_words


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

    @torch.inference_mode()
    def compare(
        self,
        token_ids: Sequence[int],
        backend: str,
        reference: str = DENSE,
        *,
        command_id: str = "",
    ) -> ParityReport:
        """Runs ``token_ids`` through two backends.

        The engine's own backend works in free blocks of its pool if there are enough: they are
        lent and not allocated, since between two steps nobody reads a free block, so that no block
        changes its state. Other backends get storage for this one run.

        Raises:
            InvalidValueError: no tokens.
            PromptTooLongError: more tokens than the model's context.
            NotSupportedYetError: a backend that is not known.
            DeviceError: a backend that cannot run here.
        """
        self._check_length(len(token_ids))
        device = self._runner.decoder.device
        names = [choose_backend(name, device)[0] for name in (backend, reference)]
        ids = torch.tensor(list(token_ids), dtype=torch.int64, device=device)
        side = self._side(names[0], ids, lend=True)
        other = self._side(names[1], ids, lend=names[1] != names[0])
        bounds = bounds_of(self._runner.decoder.dtype)
        lockstep = Lockstep(side, other, bounds.attention)
        ends = torch.tensor(side.ends, device=device)
        positions = torch.arange(len(ids), device=device)
        wanted = self._runner.decoder.forward(ids, positions, lockstep, ends)
        logits = difference(self._run(side), wanted, bounds.state)
        bad_layer = _first_bad(lockstep.findings)
        block_id, slot = self._place(side.block_table, lockstep.findings, bad_layer)
        return ParityReport(
            command_id,
            backend=names[0],
            reference=names[1],
            bound=bounds.attention,
            layer_errors=tuple(finding.error for finding in lockstep.findings),
            first_bad_layer=bad_layer,
            bad_block_id=block_id,
            bad_slot=slot,
            verdict=compared_words(
                names, lockstep.findings, bad_layer, block_id, slot, bounds, logits, len(ids)
            ),
            bad_position=lockstep.findings[bad_layer].position if bad_layer >= 0 else -1,
            num_tokens=len(ids),
            logits_error=logits.error,
            within_bound=bad_layer < 0 and logits.first_row < 0,
        )

    def _side(self, name: str, ids: Tensor, *, lend: bool) -> Side:
        size = self._core.pool.block_size
        num_blocks = -(-len(ids) // size)
        live = self._runner.attention
        if lend and live.name == name and live.cache is not None:
            lent = self._free_blocks(num_blocks)
            if lent:
                return Side(live, ids, lent, size)
        decoder = self._runner.decoder
        backend = make_backend(
            name, decoder.config, num_blocks, size, decoder.dtype, decoder.device
        )
        # Backwards, so that a block table that is not followed shows.
        table = [] if backend.cache is None else list(range(num_blocks))[::-1]
        return Side(backend, ids, table, size)

    def _free_blocks(self, count: int) -> list[int]:
        """That many free blocks that hold no cached content; none if there are too few."""
        pool = self._core.pool
        if pool.num_free < count:
            return []
        return list(islice((b for b in pool.free if pool.hash_of(b) is None), count))

    def _run(self, side: Side) -> Tensor:
        """Logits of each step's last token, with the steps as the engine runs them."""
        forward, begin = self._runner.decoder.forward, side.backend.begin_step
        return torch.cat(
            [
                forward(step.input_ids, step.positions, begin(step), step.sample_rows)
                for step in side.steps
            ]
        )

    # --- live ---

    def inspect_conversation(self, conversation_id: str, *, command_id: str = "") -> ParityReport:
        """Compares what the pool holds of a conversation with a dense recomputation.

        Raises:
            UnknownIdError: it holds nothing of it.
            NotSupportedYetError: the engine's backend has no pool.
        """
        return self.inspect(present_kv(self._core, conversation_id), command_id=command_id)

    @torch.inference_mode()
    def inspect(self, present: PresentKV, *, command_id: str = "") -> ParityReport:
        """Compares keys and values in the pool's blocks with a dense recomputation.

        Raises:
            NotSupportedYetError: the engine's backend has no pool.
        """
        attention, decoder = self._runner.attention, self._runner.decoder
        if attention.cache is None:
            raise NotSupportedYetError(
                f"The backend {attention.name} keeps nothing in the cache's blocks.",
                action="Choose a paged backend.",
                backend=attention.name,
            )
        size, bound = self._core.pool.block_size, bounds_of(decoder.dtype).state
        ids = torch.tensor(present.token_ids, dtype=torch.int64, device=decoder.device)
        slots = slots_of(present.block_table, len(ids), size, decoder.device)
        dense: AttentionBackend = DenseBackend(decoder.config.head_dim)
        check = LiveCheck(Side(dense, ids, (), size), attention.cache, slots, bound)
        positions = torch.arange(len(ids), device=decoder.device)
        decoder.forward(ids, positions, check, positions[:0])
        bad_layer = _first_bad(check.findings)
        block_id, slot = self._place(present.block_table, check.findings, bad_layer)
        return ParityReport(
            command_id,
            backend=attention.name,
            reference=DENSE,
            bound=bound,
            layer_errors=tuple(finding.error for finding in check.findings),
            first_bad_layer=bad_layer,
            bad_block_id=block_id,
            bad_slot=slot,
            verdict=live_words(present, check.findings, bad_layer, block_id, slot, bound),
            bad_position=check.findings[bad_layer].position if bad_layer >= 0 else -1,
            num_tokens=len(ids),
            within_bound=bad_layer < 0,
        )

    # --- both ---

    def _place(
        self, block_table: Sequence[int], findings: Sequence[LayerFinding], layer: int
    ) -> tuple[int, int]:
        """Block and slot of the first position over the bound; -1 where there is none."""
        if layer < 0 or not block_table:
            return -1, -1
        index, offset = divmod(findings[layer].position, self._core.pool.block_size)
        block_id = block_table[index]
        return block_id, block_id * self._core.pool.block_size + offset

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


def _first_bad(findings: Sequence[LayerFinding]) -> int:
    return next((layer for layer, finding in enumerate(findings) if finding.part), -1)
