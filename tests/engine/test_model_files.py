"""What the application sees of a model's files by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.api.model_files import model_identity


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model-1.safetensors").write_bytes(b"12345")
    (tmp_path / "model-2.safetensors").write_bytes(b"678")
    return tmp_path


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
