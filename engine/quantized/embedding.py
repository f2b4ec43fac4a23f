"""The embedding of a model: rows of a matrix, kept as they are or quantised."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from engine.quantized.grouped import GroupedWeight


class Embedding(Protocol):
    """Rows by token id."""

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""

    def __call__(self, ids: Tensor) -> Tensor:
        """``[tokens]`` int64 → ``[tokens, hidden]`` in the model's dtype."""


class PlainEmbedding:
    """``weight``: ``[vocab_size, hidden]``."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    @property
    def nbytes(self) -> int:
        return self._weight.nbytes

    def __call__(self, ids: Tensor) -> Tensor:
        return self._weight.index_select(0, ids)


class GroupedEmbedding:
    """Expands the rows that are asked for."""

    def __init__(self, weight: GroupedWeight, dtype: torch.dtype) -> None:
        self._weight = weight
        self._dtype = dtype

    @property
    def nbytes(self) -> int:
        return self._weight.nbytes

    def __call__(self, ids: Tensor) -> Tensor:
        return self._weight.rows(ids).expand(self._dtype)
