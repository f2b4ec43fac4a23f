"""One sequence cut into steps, run layer by layer so that two backends can be asked the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.attention.base import AttentionBackend
from engine.attention.dense import DenseBackend
from engine.batch import PrefillSpan, StepBatch
from engine.kv_cache import KVCache
from engine.parity_measure import Difference, difference
from engine.slices import Pause, no_pause

_NAME = "parity"
_MAX_CHUNKS = 6
_MAX_CHUNK_TOKENS = 64
_DECODES = 4

KEYS, VALUES, ATTENTION = "keys", "values", "attention"


def chunk_sizes(num_tokens: int, block_size: int) -> list[int]:
    """Tokens of each step: chunks that end inside blocks, the last few tokens one by one."""
    decodes = min(_DECODES, num_tokens - 1)
    prompt = num_tokens - decodes
    size = max(block_size + block_size // 2, min(-(-prompt // _MAX_CHUNKS), _MAX_CHUNK_TOKENS))
    return [min(size, prompt - start) for start in range(0, prompt, size)] + [1] * decodes


class Side:
    """A backend and one sequence laid out in steps for it: a ``StepAttention`` of the whole.

    Within a layer a step needs only the keys and values of the steps before it, so that all steps
    of one layer can run before the next layer.

    Args:
        backend: what is asked.
        token_ids: ``[tokens]`` int64 on the model's device.
        block_table: blocks that it may write, for a backend with a pool; else empty.
        block_size: tokens a block, for the length of the chunks too.
        pause: called before each step.
    """

    def __init__(
        self,
        backend: AttentionBackend,
        token_ids: Tensor,
        block_table: Sequence[int],
        block_size: int,
        pause: Pause = no_pause,
    ) -> None:
        self.backend = backend
        self._pause = pause
        self.block_table = block_table
        self.slots = slots_of(block_table, len(token_ids), block_size, token_ids.device)
        whole = isinstance(backend, DenseBackend)
        counts = [len(token_ids)] if whole else chunk_sizes(len(token_ids), block_size)
        self.steps: list[StepBatch] = []
        start = 0
        for count in counts:
            self.steps.append(self._lay_out(token_ids, start, count, block_size))
            start += count

    @property
    def ends(self) -> list[int]:
        """Position of the last token of each step."""
        return [int(step.positions[-1]) for step in self.steps]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts: list[Tensor] = []
        start = 0
        for step in self.steps:
            self._pause()
            rows = slice(start, start + len(step.input_ids))
            attend = self.backend.begin_step(step)
            parts.append(attend(layer, query[rows], key[rows], value[rows]))
            start = rows.stop
        return torch.cat(parts)

    def _lay_out(self, token_ids: Tensor, start: int, count: int, block_size: int) -> StepBatch:
        device, end = token_ids.device, start + count
        table = torch.tensor(
            self.block_table[: -(-end // block_size)], dtype=torch.int64, device=device
        )
        decodes = count == 1 and start > 0 and self.backend.cache is not None
        ints = torch.tensor([end] if decodes else [], dtype=torch.int64, device=device)
        return StepBatch(
            input_ids=token_ids[start:end],
            positions=torch.arange(start, end, device=device),
            slot_mapping=self.slots[start:end],
            num_decodes=int(decodes),
            decode_block_tables=table[None][: int(decodes)],
            decode_lengths=ints,
            max_decode_length=end if decodes else 0,
            prefills=() if decodes else (PrefillSpan(0, count, start, table, _NAME),),
            sample_rows=torch.tensor([count - 1], device=device),
            sampled=(),
            sample_ends=(),
        )


def slots_of(
    block_table: Sequence[int], num_tokens: int, block_size: int, device: torch.device
) -> Tensor:
    """``[num_tokens]`` int64: the slot of each position; -1 without a table."""
    if not block_table:
        return torch.full((num_tokens,), -1, dtype=torch.int64, device=device)
    place = torch.arange(num_tokens, device=device)
    table = torch.tensor(block_table, dtype=torch.int64, device=device)
    return table[place // block_size] * block_size + place % block_size


@dataclass(frozen=True, slots=True)
class LayerFinding:
    """``part``: what is over the bound, first at ``position`` (-1: nothing is)."""

    error: float
    part: str = ""
    position: int = -1


@dataclass(frozen=True, slots=True)
class Fault:
    """Where the first layer over the bound is wrong first, and in which ``part``.

    ``block_id`` and ``slot`` are -1 without a block table.
    """

    layer: int
    part: str
    error: float
    position: int
    block_id: int = -1
    slot: int = -1


def first_fault(
    findings: Sequence[LayerFinding], block_table: Sequence[int], block_size: int
) -> Fault | None:
    """The first layer over the bound; None if all are within."""
    for layer, finding in enumerate(findings):
        if finding.part:
            fault = Fault(layer, finding.part, finding.error, finding.position)
            if not block_table:
                return fault
            index, offset = divmod(finding.position, block_size)
            block_id = block_table[index]
            return replace(fault, block_id=block_id, slot=block_id * block_size + offset)
    return None


class Lockstep:
    """A ``StepAttention`` that asks two sides about the same queries, keys and values.

    The model goes on with the reference's answer, so that each layer is judged by itself.
    ``findings`` has one entry a layer afterwards.
    """

    def __init__(self, side: Side, reference: Side, bound: float) -> None:
        self.findings: list[LayerFinding] = []
        self._side = side
        self._reference = reference
        self._bound = bound

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        wanted = self._reference(layer, query, key, value)
        found = self._side(layer, query, key, value)
        cache = self._side.backend.cache
        stored = LayerFinding(0.0)
        if cache is not None:
            stored = stored_finding(cache, layer, self._side.slots, key, value, self._bound)
        attended = _finding([(ATTENTION, difference(found, wanted, self._bound))])
        worst = max(stored.error, attended.error)
        first = stored if stored.part else attended
        self.findings.append(LayerFinding(worst, first.part, first.position))
        return wanted


class LiveCheck:
    """A ``StepAttention`` that compares a pool's content with what ``inner`` is given.

    ``findings`` has one entry a layer afterwards. The pool is only read. A last block that is not
    full may be written meanwhile, so that its content is copied at once.

    Args:
        inner: attends.
        cache: the pool.
        slots: ``[tokens]`` int64, where each token's keys and values should be.
        bound: of an error.
        num_full: tokens in full blocks.
    """

    def __init__(
        self, inner: Side, cache: KVCache, slots: Tensor, bound: float, num_full: int
    ) -> None:
        self.findings: list[LayerFinding] = []
        self._inner = inner
        self._cache = cache
        self._full, last = slots[:num_full], slots[num_full:]
        self._last = [
            (keys.index_select(0, last), values.index_select(0, last))
            for keys, values in zip(cache.k_rows, cache.v_rows, strict=True)
        ]
        self._bound = bound

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        last_keys, last_values = self._last[layer]
        keys = torch.cat([self._cache.k_rows[layer].index_select(0, self._full), last_keys])
        values = torch.cat([self._cache.v_rows[layer].index_select(0, self._full), last_values])
        self.findings.append(
            _finding(
                [
                    (KEYS, difference(keys, key, self._bound)),
                    (VALUES, difference(values, value, self._bound)),
                ]
            )
        )
        return self._inner(layer, query, key, value)


def stored_finding(
    cache: KVCache, layer: int, slots: Tensor, key: Tensor, value: Tensor, bound: float
) -> LayerFinding:
    """What the slots hold in one layer against the keys and values that they should hold."""
    return _finding(
        [
            (KEYS, difference(cache.k_rows[layer].index_select(0, slots), key, bound)),
            (VALUES, difference(cache.v_rows[layer].index_select(0, slots), value, bound)),
        ]
    )


def _finding(parts: list[tuple[str, Difference]]) -> LayerFinding:
    """The largest error, and the part that is over the bound at the earliest position."""
    error = max(result.error for _, result in parts)
    over = [(result.first_row, index) for index, (_, result) in enumerate(parts)]
    over = [(row, index) for row, index in over if row >= 0]
    if not over:
        return LayerFinding(error)
    row, index = min(over)
    return LayerFinding(error, parts[index][0], row)
