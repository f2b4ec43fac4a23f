"""The whole pool at one moment, as flat columns: cheap to make, cheap to send, cheap to draw."""

from __future__ import annotations

from dataclasses import dataclass

FREE, CACHED, USED = 0, 1, 2
"""Codes of ``PoolColumns.state``. Private, shared and pinned follow from the counts."""


@dataclass(frozen=True, slots=True)
class PoolColumns:
    """One entry a block, index = block_id. Little-endian bytes for ``numpy.frombuffer``.

    ``state`` u1 (FREE, CACHED, USED) · ``ref_count`` u2 · ``pins`` u2 · ``owner`` i4, an index into
    ``Snapshot.owners`` or -1 · ``fill`` u2, tokens computed · ``last_step`` i4, the step that wrote
    the block last or -1 · ``block_hash`` 8 bytes, all zero for none.
    """

    state: bytes
    ref_count: bytes
    pins: bytes
    owner: bytes
    fill: bytes
    last_step: bytes
    block_hash: bytes


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One live request. ``phase``: waiting, prefill, decode, preempted or paused; finished while a
    step in flight still reads the blocks.

    ``block_table``: physical ids in logical order. ``num_tokens``: prompt and output so far;
    ``num_computed_tokens`` of them have KV; ``num_cached_tokens`` came from the prefix cache.
    """

    request_id: str
    conversation_id: str
    phase: str
    block_table: tuple[int, ...]
    num_tokens: int
    num_prompt_tokens: int
    num_computed_tokens: int
    num_cached_tokens: int
    waits_for: str
    blocks_short: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine between two steps. Pool events with ``seq > last_seq`` are not in it yet.

    ``time_s``: the engine's clock. ``block_bytes``: bytes of KV in one block over all layers.
    ``prefill_tokens_per_s``: measured, 0 before the first prefill; prices saved tokens.
    """

    last_seq: int
    step: int
    time_s: float
    num_blocks: int
    block_size: int
    block_bytes: int
    watermark_blocks: int
    context_length: int
    owners: tuple[str, ...]
    pool: PoolColumns
    requests: tuple[RequestRow, ...]
    num_used: int
    num_cached: int
    num_free: int
    decode_tokens_per_s: float
    prefill_tokens_per_s: float
    total_computed_tokens: int
    total_cached_tokens: int
    invariant_violations: int
    invariant_message: str = ""
