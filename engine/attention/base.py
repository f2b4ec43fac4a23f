"""What the decoder needs of an attention backend.

A backend owns the storage of keys and values, so that backends without a paged pool fit behind the
same interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from engine.batch import StepBatch
from engine.kv_cache import KVCache


class StepAttention(Protocol):
    """Attention of one step, laid out once for all layers."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Stores the step's keys and values of one layer and attends.

        Args:
            layer: index of the layer.
            query: ``[tokens, heads, head_dim]``, rotated.
            key: ``[tokens, kv_heads · head_dim]``, rotated; ``value`` likewise, not rotated.

        Returns:
            ``[tokens, heads · head_dim]``.
        """


@runtime_checkable
class StoringStep(Protocol):
    """Attention of a step whose keys and values another kernel may store, along with what it does
    to them; then ``attend_stored`` takes the place of the call.
    """

    @property
    def slot_mapping(self) -> Tensor:
        """``[tokens]`` integers; −1 stores nothing."""

    def caches(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, ``[num_blocks, block_size, kv_heads, head_dim]`` each."""

    def attend_stored(self, layer: int, query: Tensor) -> Tensor:
        """Attends once the step's keys and values are in the caches.

        Args:
            layer: index of the layer.
            query: ``[tokens, heads, head_dim]``, rotated.

        Returns:
            ``[tokens, heads · head_dim]``.
        """


class AttentionBackend(Protocol):
    """Where keys and values live and how a step attends to them."""

    name: str

    @property
    def cache(self) -> KVCache | None:
        """The paged pool that it works on; None: it keeps what it keeps by request.

        Blocks that are shared or copied do not reach a backend without a pool: it asks for the
        tokens that it misses (``first_missing``), and all its chunks are prefill spans.
        """

    def first_missing(self, request_id: str, start: int) -> int:
        """Where a chunk that is to begin at ``start`` must begin, at the latest there: the KV of
        everything before is held. A pool holds all that the scheduler counts as computed.
        """

    def begin_step(self, batch: StepBatch) -> StepAttention:
        """Lays out a step. The result is valid until the next call."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies blocks, ``(source, destination)`` each, before a step writes any KV."""

    def forget(self, request_id: str) -> None:
        """The request left the batch; a backend that keeps state for it drops it."""
