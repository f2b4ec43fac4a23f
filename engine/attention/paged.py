"""What every backend over the paged pool has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from engine.attention.base import StepAttention
from engine.batch import StepBatch
from engine.kv_cache import KVCache
from engine.models.config import ModelConfig


class PagedBackend(ABC):
    """Attention over ``cache``: all state is in the pool, none is kept by request.

    In a layer with a window what lies before it is masked; its blocks are kept all the same. To
    free them, layers of one window would need blocks, tables and hashes of their own (a block holds
    all layers now), and a prefix hit would have to ask for a window's blocks only in those layers.
    """

    name: str

    def __init__(self, cache: KVCache, config: ModelConfig) -> None:
        self.cache = cache
        self.scale = config.attention_scale
        self.windows = config.windows

    @abstractmethod
    def begin_step(self, batch: StepBatch) -> StepAttention:
        """Lays out a step. The result is valid until the next call."""

    def first_missing(self, request_id: str, start: int) -> int:
        """The pool holds all that the scheduler counts as computed."""
        return start

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies blocks, ``(source, destination)`` each, before a step writes any KV."""
        self.cache.copy_blocks(pairs)

    def forget(self, request_id: str) -> None:  # noqa: B027 - nothing is what it has to do
        """Nothing: all state is in the pool."""
