"""A look over a GGUF file's header before anything is allocated for it.

The gguf package trusts the lengths in a file: on a damaged one it reads past the end, or builds
lists as long as a corrupt count says. This walk checks every count and offset against the file's
size first.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.api.errors import ModelFileError, UnsupportedModelError

MAGIC = b"GGUF"
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_UINT32, _STRING, _ARRAY = 4, 8, 9
_MAX_ARRAY = 8_000_000
_MAX_DIMS = 8


class _Walk:
    """A position in the file; every step is checked against its end."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data = data
        self.path = path
        self.offset = 0

    def skip(self, num_bytes: int) -> int:
        """Moves on and returns where the skipped bytes began."""
        start = self.offset
        if num_bytes > len(self.data) - start:
            raise truncated(self.path, start + num_bytes, len(self.data))
        self.offset = start + num_bytes
        return start

    def uint32(self) -> int:
        return int(struct.unpack_from("<I", self.data, self.skip(4))[0])

    def uint64(self) -> int:
        return int(struct.unpack_from("<Q", self.data, self.skip(8))[0])

    def string(self) -> bytes:
        length = self.uint64()
        start = self.skip(length)
        return self.data[start : start + length]

    def value(self, kind: int) -> int | None:
        """Skips one value; returns it if it is a uint32."""
        if kind == _STRING:
            self.skip(self.uint64())
        elif kind == _ARRAY:
            self._array()
        elif kind in _SCALAR_BYTES:
            start = self.skip(_SCALAR_BYTES[kind])
            if kind == _UINT32:
                return int(struct.unpack_from("<I", self.data, start)[0])
        else:
            raise damaged(self.path, f"unknown value type {kind} at byte {self.offset:,}")
        return None

    def _array(self) -> None:
        kind, count = self.uint32(), self.uint64()
        if count > _MAX_ARRAY:
            raise damaged(self.path, f"a list of {count:,} entries at byte {self.offset:,}")
        if kind in _SCALAR_BYTES:
            self.skip(count * _SCALAR_BYTES[kind])
        elif kind == _STRING:
            for _ in range(count):
                self.skip(self.uint64())
        else:
            raise damaged(self.path, f"a list of type {kind} at byte {self.offset:,}")


def check_gguf(path: Path) -> None:
    """Checks that ``path`` is a GGUF file whose header fits it.

    Raises:
        ModelFileError: foreign, truncated or damaged; the error gives the numbers.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        magic = file.read(4)
        if magic != MAGIC:
            raise ModelFileError(
                f"{path.name} is not a GGUF file: it begins with {magic!r} instead of {MAGIC!r} "
                f"({size:,} bytes).",
                action="Choose a GGUF file or a Hugging Face model folder.",
                actual_bytes=size,
            )
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check_header(_Walk(data, path))


def _check_header(walk: _Walk) -> None:
    walk.skip(4)
    version = walk.uint32()
    if version not in (2, 3):
        raise damaged(walk.path, f"version {version}; 2 and 3 can be read")
    num_tensors, num_values = walk.uint64(), walk.uint64()
    alignment = 32
    for _ in range(num_values):
        key = walk.string()
        value = walk.value(walk.uint32())
        if key == b"general.alignment" and value is not None:
            alignment = value
    if alignment <= 0 or alignment & (alignment - 1):
        raise damaged(walk.path, f"alignment {alignment}")
    ends = [_tensor_end(walk) for _ in range(num_tensors)]
    data_start = -(-walk.offset // alignment) * alignment
    needed = data_start + max(ends, default=0)
    if needed > len(walk.data):
        raise truncated(walk.path, needed, len(walk.data))


def _tensor_end(walk: _Walk) -> int:
    """Reads one tensor entry; returns where its data end, from the start of all data."""
    name = walk.string().decode("utf-8", "replace")
    num_dims = walk.uint32()
    if not 1 <= num_dims <= _MAX_DIMS:
        raise damaged(walk.path, f"{num_dims} dimensions in {name}")
    dims = [walk.uint64() for _ in range(num_dims)]
    kind, offset = walk.uint32(), walk.uint64()
    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except ValueError as error:
        raise UnsupportedModelError(
            f"Tensor {name} of {walk.path.name} is of type {kind}, which is not known.",
            action="Choose another quantisation of this model, for instance Q8_0 or Q4_K_M.",
            tensor_type=kind,
        ) from error
    if dims[0] % block:
        raise damaged(walk.path, f"row length {dims[0]} of {name} is no multiple of {block}")
    return offset + math.prod(dims) // block * block_bytes


def truncated(path: Path, needed: int, size: int) -> ModelFileError:
    """The error for a file that is shorter than its own header says."""
    return ModelFileError(
        f"{path.name} is truncated: its header describes at least {needed:,} bytes, the file has "
        f"{size:,}.",
        expected_bytes=needed,
        actual_bytes=size,
    )


def damaged(path: Path, what: str) -> ModelFileError:
    """The error for a file whose header makes no sense."""
    return ModelFileError(f"{path.name} is damaged: {what}.", actual_bytes=path.stat().st_size)
