"""Headers of safetensors files: what is wrong is named, with the tensor or the byte."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.safetensors_file import DTYPE_BITS, TensorEntry, read_header

GOOD = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
}


def write(folder: Path, header: Any, data_bytes: int = 32) -> Path:
    text = header if isinstance(header, str) else json.dumps(header)
    data = text.encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(data)) + data + bytes(data_bytes))
    return path


def changed(name: str, **entries: Any) -> dict[str, Any]:
    return {**GOOD, name: {**GOOD[name], **entries}}


def test_a_header_gives_types_and_shapes(tmp_path: Path) -> None:
    entries, _ = read_header(write(tmp_path, {"__metadata__": {"format": "pt"}, **GOOD}))
    assert entries == {"a": TensorEntry("F32", (2, 3)), "b": TensorEntry("BF16", (4,))}


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    tensors = {
        "scalar": torch.tensor(1.0),
        "empty": torch.zeros(0, 4),
        "half": torch.zeros(3, 5, dtype=torch.float16),
        "byte": torch.zeros(7, dtype=torch.uint8),
        "f8": torch.zeros(3, dtype=torch.float8_e4m3fn),
        "bool": torch.zeros(2, 2, dtype=torch.bool),
        "complex": torch.zeros(2, dtype=torch.complex64),
    }
    save_file(tensors, tmp_path / "all.safetensors")
    entries, _ = read_header(tmp_path / "all.safetensors")
    assert {name: entry.shape for name, entry in entries.items()} == {
        name: tuple(tensor.shape) for name, tensor in tensors.items()
    }
    for name, tensor in tensors.items():
        assert DTYPE_BITS[entries[name].dtype] == 8 * tensor.element_size()


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (changed("a", shape=[2, 4]), r"tensor a has 24 bytes, its shape \(2, 4\) in F32 takes 32"),
        (changed("a", shape=[2, -3]), r"tensor a has the shape \[2, -3\]"),
        (changed("a", shape=[2, 3.0]), r"tensor a has the shape \[2, 3\.0\]"),
        (changed("a", shape=[True, 3]), r"tensor a has the shape \[True, 3\]"),
        (changed("a", shape=[2**62, 2**62]), r"tensor a has 24 bytes, its shape .* takes 8"),
        (changed("a", shape="2"), r"tensor a has the shape 2"),
        (changed("a", shape=[1] * 9), r"tensor a has the shape \[1, 1"),
        (changed("b", data_offsets=[20, 28]), r"tensor b begins at byte \d+, inside tensor a, wh"),
        (changed("b", data_offsets=[28, 36]), r"tensor b begins at byte \d+, behind a gap after"),
        (changed("b", data_offsets=[32, 24]), r"tensor b has -8 bytes"),
        (changed("b", data_offsets=[24]), r"tensor b lies at \[24\]"),
        (changed("b", data_offsets=[-1, 8]), r"tensor b lies at \[-1, 8\]"),
        ({**GOOD, "c": 5}, r"the entry of tensor c is no object"),
        ({"b": {**GOOD["b"], "data_offsets": [0, 8]}}, r"goes on after byte \d+, where its last"),
    ],
)
def test_what_makes_no_sense_is_named(header: Any, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, header)
    with pytest.raises(ModelFileError, match=rf"^model\.safetensors is damaged: .*{said}"):
        read_header(path)


def test_a_tensor_that_comes_twice_is_named(tmp_path: Path) -> None:
    entry = json.dumps(GOOD["a"])
    path = write(tmp_path, f'{{"a": {entry}, "a": {entry}}}')
    with pytest.raises(ModelFileError, match=r"byte 8 on cannot be read \(a comes twice\)"):
        read_header(path)


def test_a_type_that_is_not_known_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, changed("a", dtype="F42\u202e"))
    with pytest.raises(UnsupportedModelError, match=r"Tensor a of model\.safe\S+ is of type F42,"):
        read_header(path)


def test_a_file_cut_within_a_tensor_names_it(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, 30)
    with pytest.raises(ModelFileError, match=r"truncated: .*; tensor b ends at byte") as caught:
        read_header(path)
    size = path.stat().st_size
    assert caught.value.numbers == {"expected_bytes": size + 2, "actual_bytes": size}


@pytest.mark.parametrize("length", [0, 1, 2**63, 2**64 - 1, 9 << 20])
def test_a_length_that_cannot_be_is_not_read(length: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", length))
        file.truncate(10 << 20)
    with pytest.raises(ModelFileError, match=r"header, [\d,]+ bytes from byte 8 on, does not fit"):
        read_header(path)
