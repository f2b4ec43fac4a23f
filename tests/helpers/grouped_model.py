"""A tiny model whose matrices are quantised, and the same with them expanded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import gguf
import torch
from gguf.constants import GGMLQuantizationType
from torch import Tensor

from engine.models.config import ModelConfig
from engine.quantized.gguf_blocks import read_blocks
from engine.quantized.grouped import GroupedWeight
from tests.helpers.tiny_model import TinyModel


def quantised(weight: Tensor, kind: str) -> GroupedWeight:
    """A matrix ``[rows, columns]`` in one of GGUF's kinds of 32 elements a block."""
    rows = gguf.quantize(weight.float().numpy(), GGMLQuantizationType[kind])
    return read_blocks(kind, torch.from_numpy(rows))


@dataclass(frozen=True)
class GroupedModel:
    """``kinds``: in turn of the matrices. ``expanded``: the same values as plain tensors."""

    model: TinyModel
    kinds: tuple[str, ...]
    expanded: bool = False

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    def plain(self) -> GroupedModel:
        """The same values, expanded."""
        return replace(self, expanded=True)

    def weights(self) -> Iterator[tuple[str, Tensor | GroupedWeight]]:
        """As ``TinyModel.weights``."""
        for index, (name, tensor) in enumerate(self.model.weights()):
            if tensor.dim() != 2:
                yield name, tensor
                continue
            weight = quantised(tensor, self.kinds[index % len(self.kinds)])
            yield name, weight.expand(torch.float32) if self.expanded else weight
