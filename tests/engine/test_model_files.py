"""What the application sees of a model's files by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.api.model_files import looks_like_model, model_identity


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model-1.safetensors").write_bytes(b"12345")
    (tmp_path / "model-2.safetensors").write_bytes(b"678")
    return tmp_path


def test_a_folder_with_config_and_weights_looks_like_a_model(folder: Path) -> None:
    assert looks_like_model(folder)
    for file in folder.glob("*.safetensors"):
        file.rename(file.with_suffix(".bin"))
    assert not looks_like_model(folder)


def test_a_folder_without_a_config_does_not(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert not looks_like_model(folder)


@pytest.mark.parametrize(
    ("name", "data", "looks"),
    [
        ("a.gguf", b"GGUF\x03", True),
        ("a.GGUF", b"GGUF", True),
        ("a.gguf", b"GGU", False),
        ("a.gguf", b"PK\x03\x04", False),
        ("a.bin", b"GGUF", False),
    ],
)
def test_a_file_is_known_by_name_and_first_bytes(
    name: str, data: bytes, looks: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    assert looks_like_model(tmp_path / name) is looks


def test_what_is_not_there_or_cannot_be_read_is_no_model(tmp_path: Path) -> None:
    assert not looks_like_model(tmp_path / "absent.gguf")
    loop = tmp_path / "loop.gguf"
    try:
        loop.symlink_to(loop)
    except OSError:
        pytest.skip("this system makes no links")
    assert not looks_like_model(loop)


def test_the_identity_follows_size_and_time(folder: Path) -> None:
    first = model_identity(folder)
    assert first.file_bytes == 8
    later = first.modified_ns + 10**9
    os.utime(folder / "config.json", ns=(later, later))
    assert model_identity(folder).modified_ns == later
    (folder / "model-2.safetensors").write_bytes(b"6789")
    assert model_identity(folder).file_bytes == 9
    file = folder / "model-1.safetensors"
    assert model_identity(file).file_bytes == 5
    assert model_identity(file).modified_ns == file.stat().st_mtime_ns


def test_the_identity_of_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        model_identity(tmp_path / "absent.gguf")
