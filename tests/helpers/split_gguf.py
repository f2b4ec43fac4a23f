"""Cuts a GGUF file into parts, as llama.cpp's gguf-split does, or into parts that are wrong."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.api.model_files import PartName
from engine.loading.gguf_header import GgufTensor, read_gguf_header
from engine.loading.gguf_types import TENSOR_TYPES

_UINT16, _INT32 = 2, 5
_ALIGNMENT = 32
_ENTRIES_AT = 24
_KINDS = {kind.name: number for number, kind in TENSOR_TYPES.items()}


def split_gguf(
    source: Path,
    target: Path,
    cuts: Sequence[int],
    changes: Mapping[int, Mapping[str, int | None]] | None = None,
) -> list[Path]:
    """Writes ``source`` as ``<stem of target>-00001-of-0000n.gguf`` and so on; their paths.

    Args:
        source: a GGUF file without a custom alignment.
        target: the name that the parts have in common.
        cuts: indices of the tensors with which the second part and those after it begin.
        changes: by part, from 0: other values of its entries ``split.…``; None leaves one out.
    """
    header = read_gguf_header(source)
    data = source.read_bytes()
    bounds = [0, *cuts, len(header.tensors)]
    count = len(bounds) - 1
    paths = PartName(target.stem, 1, count, target.suffix).names()
    own = (len(header.metadata), data[_ENTRIES_AT : header.metadata_end])
    made = []
    for number in range(count):
        told: dict[str, int | None] = {
            "split.no": number,
            "split.count": count,
            "split.tensors.count": len(header.tensors),
        }
        told.update((changes or {}).get(number, {}))
        tensors = header.tensors[bounds[number] : bounds[number + 1]]
        path = target.with_name(paths[number])
        path.write_bytes(_part(data, tensors, own if number == 0 else (0, b""), told))
        made.append(path)
    return made


def _part(
    data: bytes,
    tensors: Sequence[GgufTensor],
    entries: tuple[int, bytes],
    told: Mapping[str, int | None],
) -> bytes:
    added = [_number(key, value) for key, value in told.items() if value is not None]
    number, text = entries
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), number + len(added))
    head += text + b"".join(added)
    body = b""
    for tensor in tensors:
        head += _text(tensor.name) + struct.pack("<I", len(tensor.dims))
        head += struct.pack(f"<{len(tensor.dims)}Q", *tensor.dims)
        head += struct.pack("<IQ", _KINDS[tensor.type.name], len(body))
        body += data[tensor.offset : tensor.offset + tensor.nbytes]
        body += bytes(-len(body) % _ALIGNMENT)
    return head + bytes(-len(head) % _ALIGNMENT) + body


def _number(key: str, value: int) -> bytes:
    is_total = key == "split.tensors.count"
    packed = struct.pack("<Ii", _INT32, value) if is_total else struct.pack("<IH", _UINT16, value)
    return _text(key) + packed


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
