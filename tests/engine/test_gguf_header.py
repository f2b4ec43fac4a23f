"""The walk over a GGUF header: what is wrong with a file is named, with the numbers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.gguf_header import check_gguf

UINT32, FLOAT32, STRING, ARRAY, UINT64 = 4, 6, 8, 9, 10
F32, Q4_0 = 0, 2


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, data: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + data


def tensor(dims: tuple[int, ...], kind: int = F32, offset: int = 0, name: str = "t") -> bytes:
    return (
        text(name)
        + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        + struct.pack("<IQ", kind, offset)
    )


def header(
    entries: tuple[bytes, ...] = (), tensors: tuple[bytes, ...] = (), version: int = 3
) -> bytes:
    counts = struct.pack("<IQQ", version, len(tensors), len(entries))
    return b"GGUF" + counts + b"".join(entries) + b"".join(tensors)


def write(folder: Path, data: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return path


def test_every_kind_of_entry_is_walked_over(tmp_path: Path) -> None:
    entries = (
        entry("name", STRING, text("tiny")),
        entry("small", FLOAT32, bytes(4)),
        entry("large", UINT64, bytes(8)),
        entry("numbers", ARRAY, array(UINT32, 3, bytes(12))),
        entry("words", ARRAY, array(STRING, 2, text("a") + text("bc"))),
        entry("general.alignment", UINT32, struct.pack("<I", 64)),
    )
    data = header(entries, (tensor((8, 2)), tensor((4,), offset=64)))
    start = -(-len(data) // 64) * 64
    check_gguf(write(tmp_path, data + bytes(start + 64 + 16 - len(data))))
    with pytest.raises(ModelFileError, match="truncated") as caught:
        check_gguf(write(tmp_path, data + bytes(start + 64 + 15 - len(data))))
    numbers = caught.value.numbers
    assert numbers == {"expected_bytes": start + 80, "actual_bytes": start + 79}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (header(version=1), r"version 1; 2 and 3 can be read"),
        (header((entry("a", 13, b""),)), r"unknown value type 13 at byte 37"),
        (header((entry("a", ARRAY, array(13, 1, b"")),)), r"a list of type 13 at byte 49"),
        (
            header((entry("a", ARRAY, array(UINT32, 8_000_001, b"")),)),
            r"a list of 8,000,001 entries at byte 49",
        ),
        (header((entry("general.alignment", UINT32, struct.pack("<I", 24)),)), r"alignment 24"),
        (header((entry("general.alignment", UINT32, bytes(4)),)), r"alignment 0"),
        (header((), (tensor(()),)), r"0 dimensions in t"),
        (header((), (tensor((1,) * 9),)), r"9 dimensions in t"),
        (header((), (tensor((33,), Q4_0),)), r"row length 33 of t is no multiple of 32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_named(data: bytes, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, data)
    with pytest.raises(ModelFileError, match=rf"^model\.gguf is damaged: {said}\.$") as caught:
        check_gguf(path)
    assert caught.value.numbers == {"actual_bytes": len(data)}


def test_a_tensor_type_of_a_later_format_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, header((), (tensor((32,), 4711, name="blk.0"),)))
    with pytest.raises(UnsupportedModelError, match=r"blk\.0 of model\.gguf is of type 4711") as e:
        check_gguf(path)
    assert e.value.numbers == {"tensor_type": 4711}
    assert "Q8_0" in e.value.action


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"begins with b'PK.* instead of b'GGUF' \(8 bytes\)"):
        check_gguf(write(tmp_path, b"PK\x03\x04abcd"))
    with pytest.raises(ModelFileError, match=r"begins with b'' .*\(0 bytes\)"):
        check_gguf(write(tmp_path, b""))


@pytest.mark.parametrize("cut", range(4, 120, 7))
def test_a_header_that_ends_anywhere_is_truncated(cut: int, tmp_path: Path) -> None:
    entries = (entry("name", STRING, text("tiny")), entry("n", ARRAY, array(STRING, 1, text("a"))))
    data = header(entries, (tensor((8, 2)), tensor((4,), offset=64)))
    assert len(data) > 120
    with pytest.raises(ModelFileError, match="truncated") as caught:
        check_gguf(write(tmp_path, data[:cut]))
    assert caught.value.numbers["expected_bytes"] > cut
