"""What every backend over the paged pool has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from engine.attention.base import StepAttention
from engine.batch import StepBatch
from engine.kv_cache import KVCache
from engine.models.config import ModelConfig


class PagedBackend(ABC):
    """Attention over ``cache``: all state is in the pool, none is kept by request."""

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
