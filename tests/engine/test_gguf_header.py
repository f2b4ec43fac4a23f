"""The walk over a GGUF header: what is wrong with a file is named, with the numbers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.gguf_header import Elsewhere, read_gguf_header
from engine.loading.gguf_types import TENSOR_TYPES, TensorType

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
    data = header(entries, (tensor((8, 2)), tensor((4,), offset=64, name="u")))
    start = -(-len(data) // 64) * 64
    read_gguf_header(write(tmp_path, data + bytes(start + 64 + 16 - len(data))))
    with pytest.raises(ModelFileError, match="truncated") as caught:
        read_gguf_header(write(tmp_path, data + bytes(start + 64 + 15 - len(data))))
    numbers = caught.value.numbers
    assert numbers == {"expected_bytes": start + 80, "actual_bytes": start + 79}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (header(version=1), r"version 1 at byte 4; 2 and 3 can be read"),
        (header((entry("a", 13, b""),)), r"unknown value type 13 at byte 33"),
        (header((entry("a", ARRAY, array(13, 1, b"")),)), r"a list of type 13 at byte 49"),
        (
            header((entry("a", ARRAY, array(UINT32, 8_000_001, b"")),)),
            r"a list of 8,000,001 entries at byte 49",
        ),
        (
            header((entry("general.alignment", UINT32, struct.pack("<I", 24)),)),
            r"the entry general\.alignment is 24",
        ),
        (
            header((entry("general.alignment", UINT32, bytes(4)),)),
            r"the entry general\.alignment is 0",
        ),
        (header((), (tensor(()),)), r"0 dimensions in tensor t"),
        (header((), (tensor((1,) * 5),)), r"5 dimensions in tensor t"),
        (header((), (tensor((33,), Q4_0),)), r"row length 33 of tensor t is no multiple of 32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_named(data: bytes, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, data)
    with pytest.raises(ModelFileError, match=rf"^model\.gguf is damaged: {said}\.$") as caught:
        read_gguf_header(path)
    assert caught.value.numbers == {"actual_bytes": len(data)}


def test_a_tensor_type_of_a_later_format_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, header((), (tensor((32,), 4711, name="blk.0"),)))
    with pytest.raises(UnsupportedModelError, match=r"blk\.0 of model\.gguf is of type 4711") as e:
        read_gguf_header(path)
    assert e.value.numbers == {"tensor_type": 4711}
    assert "Q8_0" in e.value.action


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"begins with b'PK.* instead of b'GGUF' \(8 bytes\)"):
        read_gguf_header(write(tmp_path, b"PK\x03\x04abcd"))
    with pytest.raises(ModelFileError, match=r"it is empty \(0 bytes\)"):
        read_gguf_header(write(tmp_path, b""))


@pytest.mark.parametrize("cut", range(4, 120, 7))
def test_a_header_that_ends_anywhere_is_truncated(cut: int, tmp_path: Path) -> None:
    entries = (entry("name", STRING, text("tiny")), entry("n", ARRAY, array(STRING, 1, text("a"))))
    data = header(entries, (tensor((8, 2)), tensor((4,), offset=64, name="u")))
    assert len(data) > 120
    with pytest.raises(ModelFileError, match="truncated") as caught:
        read_gguf_header(write(tmp_path, data[:cut]))
    assert caught.value.numbers["expected_bytes"] > cut


def test_the_table_of_types_is_the_packages() -> None:
    theirs = {
        kind.value: TensorType(kind.name, *GGML_QUANT_SIZES[kind]) for kind in GGMLQuantizationType
    }
    assert {kind: theirs[kind] for kind in TENSOR_TYPES} == dict(TENSOR_TYPES)


def test_values_are_read_and_long_ones_left_where_they_are(tmp_path: Path) -> None:
    entries = (
        entry("text", STRING, text("tiny")),
        entry("long", STRING, text("x" * 5000)),
        entry("flag", 7, b"\x01"),
        entry("real", FLOAT32, struct.pack("<f", 0.5)),
        entry("few", ARRAY, array(UINT32, 3, struct.pack("<3I", 1, 2, 3))),
        entry("many", ARRAY, array(UINT32, 5000, bytes(20_000))),
        entry("words", ARRAY, array(STRING, 2, text("a") + text("bc"))),
    )
    path = write(tmp_path, header(entries) + bytes(32))
    data = path.read_bytes()
    values = read_gguf_header(path).metadata
    assert (values["text"], values["flag"], values["real"]) == ("tiny", True, 0.5)
    assert values["few"] == [1, 2, 3]
    assert values["long"] == Elsewhere(STRING, 5000, data.index(b"xxx"), is_list=False)
    assert values["many"] == Elsewhere(UINT32, 5000, data.index(b"many") + 4 + 4 + 12)
    assert values["words"].count == 2


def test_tensors_lie_where_the_file_says(tmp_path: Path) -> None:
    tensors = (tensor((8, 2)), tensor((32, 3), Q4_0, 64, "u"))
    data = header((), tensors)
    start = -(-len(data) // 32) * 32
    path = write(tmp_path, data + bytes(start + 64 + 54 - len(data)))
    first, second = read_gguf_header(path).tensors
    assert (first.name, first.shape, first.offset, first.nbytes) == ("t", (2, 8), start, 64)
    assert (second.shape, second.offset, second.nbytes) == ((3, 32), start + 64, 54)
    assert (second.type.name, second.num_elements) == ("Q4_0", 96)


@pytest.mark.parametrize(
    ("entries", "tensors", "said"),
    [
        ((entry("a", 7, b"\x01"),) * 2, (), r"the entry a comes twice, again at byte 38"),
        ((), (tensor((8,)), tensor((8,), offset=32)), r"tensor t comes twice"),
        (
            (),
            (tensor((16,)), tensor((8,), offset=32, name="u")),
            r"tensor u begins at byte 128, inside t, which ends at 160",
        ),
        ((), (tensor((8,), offset=7),), r"tensor t begins at byte 7 of .* no multiple of 32"),
        ((), (tensor((8, 0)),), r"tensor t has a dimension of 0"),
        ((entry("", 7, b"\x01"),), (), r"a key of 0 bytes at byte 24"),
        ((), (tensor((8,), name="x" * 257),), r"a tensor name of 257 bytes at byte 24"),
        ((entry("a", ARRAY, array(ARRAY, 1, b"")),), (), r"a list of type 9 at byte 49"),
    ],
)
def test_what_contradicts_itself_is_named(
    entries: tuple[bytes, ...], tensors: tuple[bytes, ...], said: str, tmp_path: Path
) -> None:
    path = write(tmp_path, header(entries, tensors) + bytes(4096))
    with pytest.raises(ModelFileError, match=rf"^model\.gguf is damaged: {said}\.$"):
        read_gguf_header(path)


@pytest.mark.parametrize("dims", [(2**40, 2**40), (2**63, 2), (2**64 - 1,) * 4])
def test_a_size_past_all_bounds_is_more_than_the_file_has(
    dims: tuple[int, ...], tmp_path: Path
) -> None:
    path = write(tmp_path, header((), (tensor(dims),)) + bytes(4096))
    with pytest.raises(ModelFileError, match=r"truncated: .*; tensor t ends at byte"):
        read_gguf_header(path)


@pytest.mark.parametrize("counts", [(2**63, 0), (0, 2**63), (70_000, 0), (0, 70_000)])
def test_counts_past_all_bounds_are_named(counts: tuple[int, int], tmp_path: Path) -> None:
    path = write(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, *counts) + bytes(4096))
    with pytest.raises(ModelFileError, match=r"damaged: [\d,]+ (tensors|entries) at byte 24"):
        read_gguf_header(path)


def test_a_file_of_the_other_byte_order_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    with pytest.raises(UnsupportedModelError, match="big-endian order"):
        read_gguf_header(path)


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    words = array(STRING, 100_000, text("word") * 100_000)
    path = write(tmp_path, header((entry("words", ARRAY, words),)))

    def shrink() -> None:
        with path.open("r+b") as file:
            file.truncate(1000)

    with pytest.raises(ModelFileError, match=r"it became shorter while byte [\d,]+ was read"):
        read_gguf_header(path, shrink)


def test_a_walk_can_be_ended(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    calls = []

    def breathe() -> None:
        calls.append(1)
        if len(calls) == 5:
            raise Enough

    words = array(STRING, 100_000, text("word") * 100_000)
    path = write(tmp_path, header((entry("words", ARRAY, words),)))
    with pytest.raises(Enough):
        read_gguf_header(path, breathe)
