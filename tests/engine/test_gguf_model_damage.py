"""Any damage to a GGUF file's header ends in an error of ours, never in another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api.errors import EngineError
from engine.loading.model_folder import open_model
from tests.helpers.tiny_gguf import TinyGguf


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyGguf().write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 9000), st.binary(min_size=1, max_size=8))))
def test_any_damage_to_the_header_is_an_engine_error_or_harmless(
    changes: list[tuple[int, bytes]], tiny_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    data = bytearray(tiny_file.read_bytes())
    for at, piece in changes:
        data[at : at + len(piece)] = piece
    path = folder / "tiny.gguf"
    path.write_bytes(data)
    try:
        open_model(path, folder / "models")
    except EngineError:
        models = folder / "models"
        assert not models.exists() or list(models.iterdir()) == []
    finally:
        shutil.rmtree(folder)
