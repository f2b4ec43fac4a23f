"""Reads a GGUF file's header, and checks all of it before anything is allocated for the data.

The gguf package trusts the lengths in a file: on a damaged one it reads past the end, or builds
lists as long as a corrupt count says. Here every count, length and offset is held against the
file's size first, and lists stay where they are: a vocabulary is walked over, not kept.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.api.model_files import GGUF_MAGIC
from engine.loading.gguf_types import TENSOR_TYPES, TensorType
from engine.loading.gguf_window import Window, damaged, truncated
from engine.loading.plain_text import plain_text
from engine.loading.progress import Breathe, no_breath

_MAX_ENTRIES = 65_536
_MAX_LIST = 8_000_000
_MAX_KEPT_LIST = 4_096
_MAX_KEPT_TEXT = 4_096
_MAX_KEY_BYTES = 65_535
_MAX_NAME_BYTES = 256
_MAX_DIMS = 4
_MAX_ALIGNMENT = 1 << 20
_LEAST_ENTRY_BYTES = 8 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 4 + 4 + 8
STRING, _ARRAY = 8, 9
SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A value that was left in the file: ``count`` entries of a list, or bytes of a text.

    ``kind``: the format's number for what it holds. ``offset``: of its first byte.
    """

    kind: int
    count: int
    offset: int
    is_list: bool = True


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor. ``dims`` as in the file: the row's length first. ``offset``: of its data, from
    the start of the file. ``part``: which of the model's files that is, from 0.
    """

    name: str
    dims: tuple[int, ...]
    type: TensorType
    offset: int
    nbytes: int
    part: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""
        return tuple(reversed(self.dims))

    @property
    def num_elements(self) -> int:
        return math.prod(self.dims)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """``metadata``: every entry; long lists and texts are ``Elsewhere``. ``tensors``: in the file's
    order, within the file and apart from one another. ``metadata_end``: the byte after the entries.
    """

    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]
    metadata_end: int


def read_gguf_header(path: Path, breathe: Breathe = no_breath) -> GgufHeader:
    """The header of a GGUF file, checked.

    ``breathe`` is called every 0.1 ms or so of work, so that other threads can have the
    interpreter; what it raises ends the walk.

    Raises:
        ModelFileError: foreign, truncated or damaged; the error names the offset or the tensor.
        UnsupportedModelError: a version or tensor type that we do not know.
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        magic = file.read(4)
        if magic != GGUF_MAGIC:
            begins = f"begins with {magic!r} instead of {GGUF_MAGIC!r}" if magic else "is empty"
            raise ModelFileError(
                f"{path.name} is not a GGUF file: it {begins} ({size:,} bytes).",
                action="Choose a GGUF file or a Hugging Face model folder.",
                actual_bytes=size,
            )
        window = Window(file, path, size, breathe)
        window.skip(4)
        return _read(window)


def _read(window: Window) -> GgufHeader:
    version = window.uint32()
    if version not in (2, 3):
        raise _unknown_version(window.path, version)
    num_tensors, num_values = window.uint64(), window.uint64()
    _check_count(window, num_tensors, _LEAST_TENSOR_BYTES, "tensors")
    _check_count(window, num_values, _LEAST_ENTRY_BYTES, "entries")
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        start = window.position
        key = _name(window, _MAX_KEY_BYTES, "key")
        if key in metadata:
            raise damaged(
                window.path, f"the entry {plain_text(key)} comes twice, again at byte {start:,}"
            )
        metadata[key] = _value(window, window.uint32())
        window.breathe()
    alignment = metadata.get("general.alignment", 32)
    if (
        not isinstance(alignment, int)
        or not 0 < alignment <= _MAX_ALIGNMENT
        or alignment & (alignment - 1)
    ):
        raise damaged(
            window.path, f"the entry general.alignment is {plain_text(str(alignment), 20)}"
        )
    metadata_end = window.position
    tensors = []
    for _ in range(num_tensors):
        tensors.append(_tensor(window, alignment))
        window.breathe()
    data_start = -(-window.position // alignment) * alignment
    return GgufHeader(metadata, _placed(tensors, data_start, window), metadata_end)


def _unknown_version(path: Path, version: int) -> Exception:
    if int.from_bytes(version.to_bytes(4, "big"), "little") in (2, 3):
        return UnsupportedModelError(
            f"{path.name} keeps its numbers in big-endian order (version at byte 4), which is not "
            "supported.",
            action="Choose a file of this model that was made for ordinary computers.",
        )
    return damaged(path, f"version {version} at byte 4; 2 and 3 can be read")


def _check_count(window: Window, count: int, least_bytes: int, what: str) -> None:
    if count > _MAX_ENTRIES:
        raise damaged(window.path, f"{count:,} {what} at byte {window.position:,}")
    window.require(count * least_bytes)


def _name(window: Window, limit: int, what: str) -> str:
    start = window.position
    length = window.uint64()
    if not 0 < length <= limit:
        window.require(length)
        raise damaged(window.path, f"a {what} of {length:,} bytes at byte {start:,}")
    try:
        name = window.take(length).decode("utf-8")
    except UnicodeDecodeError:
        name = ""
    if not name or not name.isprintable():
        raise damaged(window.path, f"a {what} at byte {start:,} is no text")
    return name


def _value(window: Window, kind: int) -> Any:
    if kind == STRING:
        return _text(window)
    if kind == _ARRAY:
        return _list(window)
    if kind not in SCALARS:
        # It is the four bytes that were read last.
        raise damaged(window.path, f"unknown value type {kind} at byte {window.position - 4:,}")
    return window.unpack(SCALARS[kind])[0]


def _text(window: Window) -> str | Elsewhere:
    length = window.uint64()
    start = window.position
    if length > _MAX_KEPT_TEXT:
        window.skip(length)
        return Elsewhere(STRING, length, start, is_list=False)
    return window.take(length).decode("utf-8", "replace")


def _list(window: Window) -> list[Any] | Elsewhere:
    kind, count = window.uint32(), window.uint64()
    start = window.position
    if count > _MAX_LIST:
        raise damaged(window.path, f"a list of {count:,} entries at byte {start:,}")
    if kind == STRING:
        window.skip_texts(count)
        return Elsewhere(kind, count, start)
    if kind not in SCALARS:
        raise damaged(window.path, f"a list of type {kind} at byte {start:,}")
    if count > _MAX_KEPT_LIST:
        window.skip(count * _SCALAR_BYTES[kind])
        return Elsewhere(kind, count, start)
    return list(window.unpack(f"<{count}{SCALARS[kind][1]}"))


def _tensor(window: Window, alignment: int) -> GgufTensor:
    """One entry of the list of tensors; its offset is still that from the start of all data."""
    path = window.path
    name = _name(window, _MAX_NAME_BYTES, "tensor name")
    num_dims = window.uint32()
    if not 1 <= num_dims <= _MAX_DIMS:
        raise damaged(path, f"{num_dims:,} dimensions in tensor {plain_text(name)}")
    dims = window.unpack(f"<{num_dims}Q")
    kind, offset = window.uint32(), window.uint64()
    found = TENSOR_TYPES.get(kind)
    if found is None:
        raise UnsupportedModelError(
            f"Tensor {plain_text(name)} of {path.name} is of type {kind}, which is not known.",
            action="Choose another quantisation of this model, for instance Q8_0 or Q4_K_M.",
            tensor_type=kind,
        )
    if 0 in dims:
        raise damaged(path, f"tensor {plain_text(name)} has a dimension of 0")
    if dims[0] % found.block:
        raise damaged(
            path,
            f"row length {dims[0]} of tensor {plain_text(name)} is no multiple of {found.block}",
        )
    if offset % alignment:
        raise damaged(
            path,
            f"tensor {plain_text(name)} begins at byte {offset:,} of the data, which is no "
            f"multiple of {alignment}",
        )
    nbytes = math.prod(dims) // found.block * found.block_bytes
    return GgufTensor(name, dims, found, offset, nbytes)


def _placed(tensors: list[GgufTensor], data_start: int, window: Window) -> tuple[GgufTensor, ...]:
    """The tensors with offsets from the start of the file, checked to lie in it and apart."""
    names: set[str] = set()
    needed, last = data_start, None
    for tensor in sorted(tensors, key=lambda each: each.offset):
        if tensor.name in names:
            raise damaged(window.path, f"tensor {plain_text(tensor.name)} comes twice")
        names.add(tensor.name)
        start = data_start + tensor.offset
        if start < needed and last is not None:
            raise damaged(
                window.path,
                f"tensor {plain_text(tensor.name)} begins at byte {start:,}, inside "
                f"{plain_text(last.name)}, which ends at {needed:,}",
            )
        needed, last = start + tensor.nbytes, tensor
        if needed > window.size:
            whole = max(data_start + each.offset + each.nbytes for each in tensors)
            cut = f"tensor {plain_text(tensor.name)} ends at byte {needed:,}"
            raise truncated(window.path, whole, window.size, cut)
    return tuple(
        GgufTensor(each.name, each.dims, each.type, data_start + each.offset, each.nbytes)
        for each in tensors
    )
