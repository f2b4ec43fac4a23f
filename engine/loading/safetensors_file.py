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

import numpy as np
import numpy.typing as npt

from engine.api.errors import ModelFileError

_MAX_HEADER_BYTES = 100_000_000


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
        for piece in pieces:
            assert piece.dtype == np.dtype("<f4")
            file.write(np.ascontiguousarray(piece).data)
        assert file.tell() == 8 + len(text) + end
        file.flush()
        os.fsync(file.fileno())


def read_header(path: Path) -> tuple[dict[str, TensorEntry], bytes]:
    """Names and shapes in a safetensors file, checked against its size, and the header itself.

    Raises:
        ModelFileError: truncated, or not a safetensors file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(_MAX_HEADER_BYTES, size - 8):
            raise _foreign(path, "its header length does not fit the file", size)
        text = file.read(length)
    try:
        entries, data_bytes = _parse_header(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _foreign(path, f"its header cannot be read ({error})", size) from error
    needed = 8 + length + data_bytes
    if needed > size:
        raise ModelFileError(
            f"{path.name} is truncated: its header describes {needed:,} bytes, the file has "
            f"{size:,}.",
            expected_bytes=needed,
            actual_bytes=size,
        )
    return entries, text


def _parse_header(header: Mapping[str, Mapping[str, object]]) -> tuple[dict[str, TensorEntry], int]:
    entries: dict[str, TensorEntry] = {}
    data_bytes = 0
    for name, value in header.items():
        if name == "__metadata__":
            continue
        shape, offsets = value["shape"], value["data_offsets"]
        if not isinstance(shape, list) or not isinstance(offsets, list) or len(offsets) != 2:
            raise ValueError(f"entry of {name}")
        entries[name] = TensorEntry(str(value["dtype"]), tuple(int(size) for size in shape))
        data_bytes = max(data_bytes, int(offsets[1]))
    return entries, data_bytes


def _foreign(path: Path, why: str, size: int) -> ModelFileError:
    return ModelFileError(f"{path.name} is not a safetensors file: {why}.", actual_bytes=size)
