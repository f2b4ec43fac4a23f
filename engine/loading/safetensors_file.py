"""Safetensors files: a writer that holds one tensor at a time, and a reader of headers.

The safetensors package writes only what is in memory all at once, which for an expanded model is
several times the size of the file it came from. The format: 8 bytes little-endian length of the
header, the header as JSON (name → dtype, shape, data_offsets), then the data.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, TypeGuard

import numpy as np
import numpy.typing as npt

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.plain_text import plain_text

_MAX_HEADER_BYTES = 8 << 20
"""The format allows 100 MB, which would take a gigabyte to read; 1,000 layers of a model take 1."""

_SYNC_BYTES = 32 << 20
"""Written through to the disk at a time: else the end would wait for gigabytes."""

_MAX_DIMS = 8
_MAX_NAME_CHARS = 500

DTYPE_BITS: Mapping[str, int] = MappingProxyType(
    {
        **{"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8},
        **{"U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32},
        **{"U64": 64, "I64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
    }
)
"""Bits of an element in each type that the format knows."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a safetensors file. ``dtype`` as the format spells it (F32, BF16 …)."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


def write_float32(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    pieces: Iterable[npt.NDArray[np.float32]],
) -> None:
    """Writes float32 tensors: ``pieces`` are runs of their elements, in the order of ``shapes``.

    Raises:
        OSError: the file could not be written.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        unsynced = 0
        for piece in pieces:
            assert piece.dtype == np.dtype("<f4")
            file.write(np.ascontiguousarray(piece).data)
            unsynced += piece.nbytes
            if unsynced >= _SYNC_BYTES:
                _sync(file)
                unsynced = 0
        assert file.tell() == 8 + len(text) + end
        _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def read_header(path: Path) -> tuple[dict[str, TensorEntry], bytes]:
    """Names and shapes in a safetensors file, checked against its size, and the header itself.

    The data of the tensors must follow one another without gaps, as the format asks.

    Raises:
        ModelFileError: truncated, damaged, or not a safetensors file; the error names the byte or
            the tensor.
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(_MAX_HEADER_BYTES, size - 8):
            raise _foreign(
                path,
                f"the length of its header, {length:,} bytes from byte 8 on, does not fit the file "
                f"of {size:,}",
                size,
            )
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        reason = plain_text(str(error))
        raise _foreign(
            path, f"its header of {length:,} bytes from byte 8 on cannot be read ({reason})", size
        ) from error
    if not isinstance(header, dict):
        raise _foreign(path, "its header at byte 8 holds no object", size)
    header.pop("__metadata__", None)
    placed = [_placed(path, name, value) for name, value in header.items()]
    _check_places(path, placed, 8 + length, size)
    return {place.name: place.entry for place in placed}, text


@dataclass(frozen=True, slots=True)
class _Placed:
    """A tensor and where its data lie, from the start of all data."""

    name: str
    entry: TensorEntry
    start: int
    end: int


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{plain_text(name)} comes twice")
            seen.add(name)
    return found


def _placed(path: Path, name: str, value: object) -> _Placed:
    shown = plain_text(name) or "without a name"
    if not name.isprintable() or len(name) > _MAX_NAME_CHARS:
        raise _damaged(path, f"tensor {shown} has a name of {len(name):,} characters that is none")
    if not isinstance(value, dict):
        raise _damaged(path, f"the entry of tensor {shown} is no object")
    dtype, shape, offsets = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        named = plain_text(str(dtype), 40)
        raise UnsupportedModelError(
            f"Tensor {shown} of {path.name} is of type {named}, which is not known.",
            action="Choose another file of this model, with weights in BF16, F16 or F32.",
            tensor_type=named,
        )
    if not _are_sizes(shape) or len(shape) > _MAX_DIMS:
        raise _damaged(path, f"tensor {shown} has the shape {plain_text(str(shape), 60)}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _damaged(path, f"tensor {shown} lies at {plain_text(str(offsets), 60)}")
    entry = TensorEntry(dtype, tuple(shape))
    start, end = offsets
    # Packed kinds may end within a byte.
    expected = -(-entry.num_elements * DTYPE_BITS[dtype] // 8)
    if end - start != expected:
        raise _damaged(
            path,
            f"tensor {shown} has {end - start:,} bytes, its shape {entry.shape} in {dtype} takes "
            f"{plain_text(f'{expected:,}', 40)}",
        )
    return _Placed(name, entry, start, end)


def _are_sizes(values: object) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)


def _check_places(path: Path, placed: list[_Placed], data_start: int, size: int) -> None:
    """Each tensor has to begin where the one before it ends, and the file to end with the last."""
    end, before = 0, "the header"
    for place in sorted(placed, key=lambda each: (each.start, each.end)):
        shown = f"tensor {plain_text(place.name)}"
        if place.start != end:
            how = "inside" if place.start < end else "behind a gap after"
            raise _damaged(
                path,
                f"{shown} begins at byte {data_start + place.start:,}, {how} {before}, which ends "
                f"at {data_start + end:,}",
            )
        end, before = place.end, shown
        if data_start + end > size:
            needed = data_start + max(each.end for each in placed)
            raise ModelFileError(
                f"{path.name} is truncated: its header describes {needed:,} bytes, the file has "
                f"{size:,}; {shown} ends at byte {data_start + end:,}.",
                expected_bytes=needed,
                actual_bytes=size,
            )
    if data_start + end < size:
        raise _damaged(
            path, f"the file goes on after byte {data_start + end:,}, where its last tensor ends"
        )


def _damaged(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"{path.name} is damaged: {what}.")


def _foreign(path: Path, why: str, size: int) -> ModelFileError:
    return ModelFileError(f"{path.name} is not a safetensors file: {why}.", actual_bytes=size)
