"""Weights as they lie on the disk."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from engine.models.config import ModelConfig
from engine.models.families import family_of


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """``name``: Hugging Face's. ``type``: as the file's format spells it. ``shape``: rows first.
    ``nbytes``: in the file.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


def needed_tensors(tensors: Iterable[StoredTensor], config: ModelConfig) -> list[StoredTensor]:
    """Without an output layer that repeats the embedding."""
    tied = f"{family_of(config).lm_head}.weight" if config.tie_word_embeddings else ""
    return [tensor for tensor in tensors if tensor.name != tied]


def count_weights(tensors: Iterable[StoredTensor], config: ModelConfig) -> int:
    """Number of weights; a tied output layer counts once."""
    return sum(tensor.num_elements for tensor in needed_tensors(tensors, config))


def quantization_of(tensors: Iterable[StoredTensor]) -> str:
    """The type that most bytes of the matrices are in; empty without any."""
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        if len(tensor.shape) > 1:
            sizes[tensor.type] += tensor.nbytes
    return sizes.most_common(1)[0][0] if sizes else ""
