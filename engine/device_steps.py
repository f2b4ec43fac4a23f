"""Runs steps on a GPU without waiting for them: what is drawn stays on the device and is the next
step's input there; the host hears of it one step later.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.batch import PrefillSpan, StepBatch
from engine.decode_graphs import DecodeGraphs, DecodeInputs
from engine.device_batch import DeviceBatch, DrawKind, HostStep
from engine.device_drawer import DeviceDrawer
from engine.request import Request
from engine.scheduler_output import SampledTokens, SchedulerOutput, StepHandle, StepResult
from engine.staging import Download, Uploads, copies_to
from kernels.reference.sample import Sampled

NOT_FINITE = -1
"""Drawn in place of a token where the logits' largest is not finite."""


class DeviceSteps:
    """Steps over a paged pool that are in flight until their handle is asked.

    Args:
        compute_logits: a step on the device to logits ``[len(sample_rows), vocab_size]``; stores
            the step's keys and values.
        drawer: draws tokens.
        block_size: tokens a block.
        max_blocks: blocks of the longest sequence.
        max_requests: requests that are expected at once; more are taken too.
        device: where the model lies.
    """

    def __init__(
        self,
        compute_logits: Callable[[StepBatch], Tensor],
        drawer: DeviceDrawer,
        block_size: int,
        max_blocks: int,
        max_requests: int,
        device: torch.device,
    ) -> None:
        self._compute_logits = compute_logits
        self._drawer = drawer
        self._block_size = block_size
        self._device = device
        self._batch = DeviceBatch(block_size, max_blocks, max_requests, device, drawer)
        self._uploads = Uploads(copies_to(device))
        self.graphs: DecodeGraphs | None = None
        if self._device.type == "cuda":
            self.graphs = DecodeGraphs(self._decode, self._batch, drawer, self._uploads, device)

    def submit(self, output: SchedulerOutput) -> StepHandle:
        """Starts a step whose block copies have been made.

        Raises:
            RuntimeError: the step could not be started; what it wrote must be computed again.
        """
        step = self._batch.lay(output)
        self._send_tables(step)
        if self.graphs is not None and self.graphs.takes(step):
            drawn: Sampled | None = self.graphs.run(step)
        else:
            drawn = self._mixed(step)
        count = len(step.sampled)
        if drawn is None:
            return _Handle((), None, None)
        logprobs = Download(drawn.logprobs[:count]) if step.kind.logprobs else None
        return _Handle(step.sampled, Download(drawn.tokens[:count]), logprobs)

    def forget(self, request_id: str) -> None:
        """Drops what is kept for a request that left the batch."""
        self._batch.forget(request_id)

    def _send_tables(self, step: HostStep) -> None:
        if len(step.changed):
            places, values = self._uploads.send([step.changed, step.changes])
            self._batch.tables.view(-1).index_copy_(0, places, values)

    def _mixed(self, step: HostStep) -> Sampled | None:
        """A step with prompts in it, or with more decodes than a graph has rows."""
        num_decodes, num_sampled = step.num_decodes, len(step.sampled)
        sent = self._uploads.send(
            [
                step.ids,
                step.positions,
                step.slots,
                step.lengths,
                step.rows,
                step.sample_rows,
                step.sampled_rows,
                step.draws,
            ]
        )
        ids, positions, slots, lengths, rows, sample_rows, sampled_rows, draws = sent
        tables = self._batch.tables
        spans = tuple(
            PrefillSpan(
                span.first_row,
                span.num_tokens,
                span.start,
                tables[span.row, : span.num_blocks],
                span.request_id,
            )
            for span in step.spans
        )
        longest = int(step.lengths.max(initial=0))
        batch = StepBatch(
            input_ids=self._known(ids),
            positions=positions,
            slot_mapping=slots,
            num_decodes=num_decodes,
            decode_block_tables=self._tables_of(rows, longest),
            decode_lengths=lengths,
            max_decode_length=longest,
            prefills=spans,
            sample_rows=sample_rows,
            sampled=(),
            sample_ends=(),
        )
        logits = self._compute_logits(batch)
        if not num_sampled:
            return None
        return self._draw(logits, draws.view(num_sampled, -1), sampled_rows, step.kind)

    def _decode(self, inputs: DecodeInputs, kind: DrawKind) -> Sampled:
        """A step of decodes; everything that it reads has a fixed place, so it can be captured."""
        rows = len(inputs.ids)
        width = self._batch.tables.shape[1]
        batch = StepBatch(
            input_ids=self._known(inputs.ids),
            positions=inputs.positions,
            slot_mapping=inputs.slots,
            num_decodes=rows,
            decode_block_tables=self._batch.tables.index_select(0, inputs.rows),
            decode_lengths=inputs.lengths,
            max_decode_length=width * self._block_size,
            prefills=(),
            sample_rows=torch.arange(rows, device=self._device),
            sampled=(),
            sample_ends=(),
        )
        return self._draw(self._compute_logits(batch), inputs.draws, inputs.rows, kind)

    def _known(self, ids: Tensor) -> Tensor:
        """Ids with every newest token in its place."""
        newest = self._batch.newest.index_select(0, (-1 - ids).clamp_(min=0))
        return torch.where(ids < 0, newest, ids)

    def _tables_of(self, rows: Tensor, longest: int) -> Tensor:
        blocks = max(1, -(-longest // self._block_size))
        return self._batch.tables[:, :blocks].index_select(0, rows)

    def _draw(self, logits: Tensor, draws: Tensor, rows: Tensor, kind: DrawKind) -> Sampled:
        drawn = self._drawer(
            logits,
            draws,
            filtered=kind.filtered,
            counted=kind.counted,
            logprobs=kind.logprobs,
        )
        # A request without a token is ended when the host hears of it; until then any id will do.
        self._batch.newest.index_copy_(0, rows, drawn.tokens.clamp(min=0))
        return drawn


class _Handle:
    """A step in flight."""

    def __init__(
        self,
        requests: tuple[Request, ...],
        tokens: Download | None,
        logprobs: Download | None,
    ) -> None:
        self._requests = requests
        self._tokens = tokens
        self._logprobs = logprobs

    def result(self) -> StepResult:
        if self._tokens is None:
            return StepResult()
        tokens = self._tokens.wait()
        logprobs = self._logprobs.wait() if self._logprobs is not None else [0.0] * len(tokens)
        return StepResult(
            [
                _sampled(request, int(token), logprob)
                for request, token, logprob in zip(self._requests, tokens, logprobs, strict=True)
            ]
        )


def _sampled(request: Request, token: int, logprob: float) -> SampledTokens:
    if token == NOT_FINITE:
        reason = "The model's logits are not finite."
        return SampledTokens(request.request_id, (), error=reason)
    wanted = request.params.logprobs is not None
    return SampledTokens(request.request_id, (token,), (logprob,) if wanted else ())
