"""Runs steps on a GPU without waiting for them: what is drawn stays on the device and is the next
step's input there; the host hears of it one step later.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from engine.attention.prefill_tiles import NO_TILES, PrefillTiles, TiledChunk, Tiling
from engine.attention.prefix_groups import Pays
from engine.batch import PrefillSpan, StepBatch
from engine.device_batch import DeviceBatch, DrawKind, HostStep
from engine.device_drawer import DeviceDrawer, Drawn
from engine.graph_sizes import MAX_DECODES
from engine.loading.progress import Cancelled, never_cancelled
from engine.prompt_sizes import MAX_PROMPT_TOKENS, prompt_rows
from engine.request import Request
from engine.scheduler_output import SampledTokens, SchedulerOutput, StepHandle, StepResult
from engine.sharing import Sharing
from engine.staging import Download, Uploads, copies_to
from engine.step_graphs import StepGraphs
from engine.step_inputs import Extras, Layout, Sizes, StepInputs, sizes_of

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
        tiling: how the backend cuts prompts; None: it takes them chunk by chunk.
        shares: whether it pays the backend to read what sequences begin with once; None: it cannot.
    """

    def __init__(
        self,
        compute_logits: Callable[[StepBatch], Tensor],
        drawer: DeviceDrawer,
        block_size: int,
        max_blocks: int,
        max_requests: int,
        device: torch.device,
        tiling: Tiling | None = None,
        shares: Pays | None = None,
    ) -> None:
        self._compute_logits = compute_logits
        self._tiling = tiling
        self._sharing = Sharing(block_size, shares) if shares is not None else None
        self._drawer = drawer
        self._block_size = block_size
        self._device = device
        self._batch = DeviceBatch(block_size, max_blocks, max_requests, device, drawer)
        self._copies = copies_to(device)
        self._uploads = Uploads(self._copies)
        self.graphs: StepGraphs | None = None
        if self._device.type == "cuda":
            self.graphs = self.make_graphs()

    def make_graphs(self) -> StepGraphs:
        """Steps as CUDA graphs, in place of ``graphs``."""
        # No cycle: a model that is let go gives its memory back at once.
        steps = weakref.proxy(self)
        return StepGraphs(
            lambda inputs, sizes, kind: steps._captured(inputs, sizes, kind),
            self._batch,
            self._drawer,
            self._tiling,
            self._uploads,
            self._device,
            shares=self._sharing is not None and self._sharing.is_possible,
        )

    def submit(self, output: SchedulerOutput) -> StepHandle:
        """Starts a step whose block copies have been made.

        Raises:
            RuntimeError: the step could not be started; what it wrote must be computed again.
        """
        step = self._batch.lay(output)
        self._send_tables(step)
        extras = self._extras(step)
        drawn = self.graphs.run(step, extras) if self.graphs is not None else None
        if drawn is None:
            if self.graphs is not None and step.num_decodes <= MAX_DECODES:
                # One of few such steps: those who wait for it would wait for kernels to compile.
                extras = replace(extras, groups=())
            drawn = self._eager(step, extras)
        count = len(step.sampled)
        if drawn is None:
            return _Handle((), None)
        logprobs, width = None, 0
        if drawn.logprobs is not None:
            width = drawn.logprobs.shape[1]
            logprobs = Download(self._copies, drawn.logprobs[:count].reshape(-1))
        tokens = Download(self._copies, drawn.tokens[:count])
        return _Handle(step.sampled, tokens, logprobs, width)

    def prompt_size(self, num_tokens: int) -> int:
        """As ``Runner.prompt_size``: steps with few prompt tokens are padded to a graph's size."""
        graphs = self.graphs
        if graphs is None or graphs.failure or self._tiling is None:
            return num_tokens
        return prompt_rows(num_tokens) if 0 < num_tokens <= MAX_PROMPT_TOKENS else num_tokens

    def prepare(self, interrupted: Cancelled = never_cancelled) -> bool:
        """As ``StepGraphs.prepare``."""
        with torch.inference_mode():
            return self.graphs is not None and self.graphs.prepare(interrupted)

    def forget(self, request_id: str) -> None:
        """Drops what is kept for a request that left the batch."""
        self._batch.forget(request_id)

    def _send_tables(self, step: HostStep) -> None:
        if len(step.changed):
            places, values = self._uploads.send_pair(step.changed, step.changes)
            self._batch.tables.view(-1).index_copy_(0, places, values)

    def _eager(self, step: HostStep, extras: Extras) -> Drawn | None:
        """A step launched kernel by kernel, of exactly its sizes."""
        sizes = sizes_of(step, extras)
        layout = Layout(sizes, self._batch.padding_row)
        sent = self._uploads.send(sizes.words, lambda out: layout.write(step, extras, out))
        inputs = StepInputs.of(torch.split(sent, sizes.parts), sizes.groups)
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
        if not len(step.sampled_rows):
            self._compute_logits(self._batch_of(inputs, sizes, longest, spans, extras.tiled_for))
            return None
        return self._step(inputs, sizes, step.kind, longest, spans, extras.tiled_for)

    def _captured(self, inputs: StepInputs, sizes: Sizes, kind: DrawKind) -> Drawn:
        """A step; everything that it reads has a fixed place, so it can be captured."""
        longest = self._batch.tables.shape[1] * self._block_size
        return self._step(inputs, sizes, kind, longest, (), sizes.prompt)

    def _step(
        self,
        inputs: StepInputs,
        sizes: Sizes,
        kind: DrawKind,
        longest: int,
        spans: tuple[PrefillSpan, ...],
        tiled_for: int,
    ) -> Drawn:
        batch = self._batch_of(inputs, sizes, longest, spans, tiled_for)
        logits = self._compute_logits(batch)
        return self._draw(logits, inputs.draws, inputs.sampled_rows, kind)

    def _batch_of(
        self,
        inputs: StepInputs,
        sizes: Sizes,
        longest: int,
        spans: tuple[PrefillSpan, ...],
        tiled_for: int,
    ) -> StepBatch:
        tiles = None
        if self._tiling is not None and sizes.prompt:
            launch = self._tiling.launch(tiled_for)
            tiles = PrefillTiles(inputs.tiles, self._batch.tables.view(-1), launch)
        return StepBatch(
            input_ids=self._known(inputs.ids),
            positions=inputs.positions,
            slot_mapping=inputs.slots,
            num_decodes=sizes.decodes,
            decode_block_tables=self._tables_of(inputs.rows, longest),
            decode_lengths=inputs.lengths,
            max_decode_length=longest,
            prefills=spans,
            sample_rows=inputs.sample_rows,
            sampled=(),
            sample_ends=(),
            prefill_tiles=tiles,
            prefix_groups=inputs.groups,
        )

    def _extras(self, step: HostStep) -> Extras:
        groups = self._sharing.groups(step, self._batch) if self._sharing is not None else ()
        if self._tiling is None or not step.spans:
            return Extras(NO_TILES, 0, groups)
        width = self._batch.tables.shape[1]
        chunks = [
            TiledChunk(span.first_row, span.num_tokens, span.start, span.row * width)
            for span in step.spans
        ]
        # As the graph that may take the step is cut.
        size = prompt_rows(len(step.ids) - step.num_decodes)
        return Extras(self._tiling.tiles(chunks, self._tiling.launch(size)), size, groups)

    def _known(self, ids: Tensor) -> Tensor:
        """Ids with every newest token in its place."""
        newest = self._batch.newest.index_select(0, (-1 - ids).clamp_(min=0))
        return torch.where(ids < 0, newest, ids)

    def _tables_of(self, rows: Tensor, longest: int) -> Tensor:
        blocks = max(1, -(-longest // self._block_size))
        return self._batch.tables[:, :blocks].index_select(0, rows)

    def _draw(self, logits: Tensor, draws: Tensor, rows: Tensor, kind: DrawKind) -> Drawn:
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
    """A step in flight. ``width``: numbers of each row of ``logprobs``; see ``Drawn``."""

    def __init__(
        self,
        requests: tuple[Request, ...],
        tokens: Download | None,
        logprobs: Download | None = None,
        width: int = 0,
    ) -> None:
        self._requests = requests
        self._tokens = tokens
        self._logprobs = logprobs
        self._width = width

    def result(self) -> StepResult:
        if self._tokens is None:
            return StepResult()
        tokens = self._tokens.wait()
        flat = self._logprobs.wait() if self._logprobs is not None else []
        samples = []
        for place, (request, token) in enumerate(zip(self._requests, tokens, strict=True)):
            row = flat[place * self._width : (place + 1) * self._width]
            samples.append(_sampled(request, int(token), row))
        return StepResult(samples)


def _sampled(request: Request, token: int, row: list[float]) -> SampledTokens:
    if token == NOT_FINITE:
        reason = "The model's logits are not finite."
        return SampledTokens(request.request_id, (), error=reason)
    wanted = request.params.logprobs
    if wanted is None:
        return SampledTokens(request.request_id, (token,))
    likeliest = len(row) // 2
    ids = [int(number) for number in row[1 : 1 + min(wanted, likeliest)]]
    top = tuple(zip(ids, row[1 + likeliest :], strict=False))
    return SampledTokens(request.request_id, (token,), (row[0],), (top,))
