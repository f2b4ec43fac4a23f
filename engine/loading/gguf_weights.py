"""The weights of a GGUF, memory-mapped, quantised as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.api.errors import UnsupportedModelError
from engine.loading.gguf_header import GgufTensor
from engine.loading.gguf_names import Place, placed
from engine.loading.gguf_parts import read_gguf
from engine.loading.progress import Breathe, no_breath
from engine.loading.stored import StoredTensor
from engine.models.config import ModelConfig
from engine.quantized.gguf_blocks import BLOCK_BYTES, read_blocks
from engine.quantized.grouped import GroupedWeight

_PIECE_ELEMENTS = 4 << 20
_PLAIN = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "F64": np.dtype("<f8")}

Rows = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class GgufWeights:
    """Tensors and where they go. Their bytes stay in the files until they are read."""

    paths: tuple[Path, ...]
    head_dim: int
    tensors: tuple[tuple[Place, GgufTensor], ...]

    @classmethod
    def of(cls, path: Path, config: ModelConfig) -> GgufWeights:
        """The weights of the GGUF that ``path`` is, or is a part of.

        Raises:
            ModelFileError: truncated or damaged, or not the model that ``config`` says.
            UnsupportedModelError: a tensor that such a model does not have.
        """
        found = read_gguf(path)
        architecture = str(found.header.metadata.get("general.architecture", ""))
        return cls(found.paths, config.head_dim, placed(found.tensors, config, architecture))

    def stored(self) -> list[StoredTensor]:
        """What the files have, under Hugging Face's names."""
        return [
            StoredTensor(place.name, tensor.type.name, place.shape, tensor.nbytes)
            for place, tensor in self.tensors
        ]

    def read(
        self, dtype: torch.dtype, breathe: Breathe = no_breath
    ) -> Iterator[tuple[str, Tensor | GroupedWeight]]:
        """Hugging Face's names and the tensors, one at a time. What is in a type that can be kept
        is a ``GroupedWeight``; of the rest, what is quantised is expanded to ``dtype``, and what is
        not may lie in the mapped file: copy what should outlive it. ``breathe`` is called for each
        few million values.

        Raises:
            UnsupportedModelError: a type of weights that cannot be expanded.
        """
        # Private to this process and never written to; read-only memory torch would warn of.
        data = [np.memmap(path, dtype=np.uint8, mode="c") for path in self.paths]
        for place, tensor in self.tensors:
            raw = data[tensor.part][tensor.offset : tensor.offset + tensor.nbytes]
            rows = raw.reshape(1 if len(tensor.dims) == 1 else tensor.shape[0], -1)
            if place.in_pairs:
                rows = self._unpaired(rows, tensor)
            value = _read_rows(rows, tensor, dtype, breathe)
            if isinstance(value, Tensor):
                value = value.view(place.shape)
                value = value - place.offset if place.offset else value
            yield place.name, value

    def _unpaired(self, rows: Rows, tensor: GgufTensor) -> Rows:
        """GGUF interleaves the two halves of a head, Hugging Face does not. What changes places are
        whole rows of a matrix, or the elements of a bias."""
        if len(tensor.dims) == 1:
            elements = rows.reshape(tensor.dims[0], -1)
            return self._unpaired_rows(elements).reshape(1, -1)
        return self._unpaired_rows(rows)

    def _unpaired_rows(self, rows: Rows) -> Rows:
        pairs = rows.reshape(-1, self.head_dim // 2, 2, rows.shape[1])
        return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(rows.shape)


def _read_rows(
    rows: Rows, tensor: GgufTensor, dtype: torch.dtype, breathe: Breathe
) -> Tensor | GroupedWeight:
    kind = tensor.type.name
    if kind in _PLAIN:
        return torch.from_numpy(rows.view(_PLAIN[kind]))
    if kind == "BF16":
        return torch.from_numpy(rows.view(np.int16)).view(torch.bfloat16)
    step = max(_PIECE_ELEMENTS // tensor.dims[0], 1)
    starts = range(0, len(rows), step)
    if kind in BLOCK_BYTES and len(tensor.dims) == 2:
        whole = None
        for start in starts:
            breathe()
            piece = read_blocks(kind, torch.from_numpy(rows[start : start + step]))
            if whole is None:
                # Whole from the beginning: pieces that are joined would be there twice.
                whole = piece if len(starts) == 1 else _empty_like(piece, len(rows))
            if whole is not piece:
                for part in ("codes", "scale", "minimum"):
                    getattr(whole, part)[start : start + step] = getattr(piece, part)
        assert whole is not None, "a tensor has rows"
        return whole
    out = torch.empty((len(rows), tensor.dims[0]), dtype=dtype)
    for start in starts:
        breathe()
        out[start : start + step] = _dequantised(rows[start : start + step], tensor)
    return out


def _empty_like(piece: GroupedWeight, rows: int) -> GroupedWeight:
    """With as many rows."""

    def made(part: Tensor) -> Tensor:
        return part.new_empty((rows, *part.shape[1:]))

    codes, scale, minimum = made(piece.codes), made(piece.scale), made(piece.minimum)
    return GroupedWeight(codes, scale, minimum, piece.bits, piece.group)


def _dequantised(rows: Rows, tensor: GgufTensor) -> Tensor:
    # Only for what is not kept: the package takes a while to import.
    import gguf

    kind = tensor.type.name
    try:
        values = gguf.dequantize(rows, gguf.GGMLQuantizationType[kind])
    except (NotImplementedError, KeyError) as error:
        raise UnsupportedModelError(
            f"Tensor {tensor.name} is quantised as {kind}, which cannot be expanded.",
            action="Choose another quantisation of this model, for instance Q8_0 or Q4_K_M.",
            tensor_type=kind,
        ) from error
    return torch.from_numpy(values)
