"""Each stage of loading tells how far it is, and ends when it is asked to, leaving nothing half."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api.commands import LoadModel, UnloadModel
from engine.api.errors import LoadCancelledError
from engine.api.events import EngineStatus, EngineStatusChanged, ModelLoaded, ModelLoading
from engine.api.params import EngineConfig
from engine.engine_builder import build_engine
from engine.loading import source as source_module
from engine.loading.progress import never_cancelled
from tests.helpers.talk import Talk, talk_with_engine
from tests.helpers.tiny_gguf import TinyGguf

CONFIG = EngineConfig(device="cpu", dtype="float32", num_blocks=16)
OF_A_FOLDER = ("weights", "convert", "tokenizer", "warm_up")
OF_A_FILE = ("read", "tokenizer", "expand", "read", *OF_A_FOLDER)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return TinyGguf().write(tmp_path / "tiny.gguf")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


class Told:
    """What loading tells; it is asked to end at the ``end_at``th stage."""

    def __init__(self, end_at: int = -1) -> None:
        self.stages: list[str] = []
        self.fractions: list[list[float]] = []
        self._end_at = end_at

    def progress(self, stage: str, fraction: float, _detail: str) -> None:
        if not self.stages or self.stages[-1] != stage:
            self.stages.append(stage)
            self.fractions.append([])
        self.fractions[-1].append(fraction)
        if len(self.stages) - 1 == self._end_at:
            raise LoadCancelledError("Loading was stopped.")


def load(path: Path, models: Path, told: Told) -> None:
    build_engine(path, models, CONFIG, told.progress, never_cancelled)


def left(models: Path) -> list[str]:
    return sorted(path.name for path in models.glob("*")) if models.exists() else []


def test_every_stage_tells_how_far_it_is(file: Path, models: Path) -> None:
    told = Told()
    load(file, models, told)
    assert tuple(told.stages) == OF_A_FILE
    for fractions in told.fractions:
        assert fractions == sorted(fractions)
        assert all(0.0 <= fraction <= 1.0 for fraction in fractions)
    assert len(told.fractions[OF_A_FILE.index("expand")]) > 10
    assert len(told.fractions[OF_A_FILE.index("weights")]) > 10
    # The embedding, and two layers.
    assert told.fractions[OF_A_FILE.index("convert")] == [0.0, 1 / 3, 2 / 3]


@pytest.mark.parametrize("stage", range(len(OF_A_FILE)))
def test_loading_a_file_ends_in_each_stage(stage: int, file: Path, models: Path) -> None:
    told = Told(end_at=stage)
    with pytest.raises(LoadCancelledError):
        load(file, models, told)
    assert tuple(told.stages) == OF_A_FILE[: stage + 1]
    # What was expanded is whole, or is not there.
    assert len(left(models)) == (1 if stage >= OF_A_FILE.index("weights") else 0)
    load(file, models, Told())


@pytest.mark.parametrize("stage", range(len(OF_A_FOLDER)))
def test_loading_a_folder_ends_in_each_stage(stage: int, file: Path, models: Path) -> None:
    load(file, models, Told())
    (folder,) = models.iterdir()
    told = Told(end_at=stage)
    with pytest.raises(LoadCancelledError):
        load(folder, models, told)
    assert tuple(told.stages) == OF_A_FOLDER[: stage + 1]
    assert left(models) == [folder.name]


def test_a_file_with_another_time_is_read_once_and_that_ends_when_asked(
    file: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_PIECE_BYTES", 1 << 16)
    load(file, models, Told())
    later = file.stat().st_mtime_ns + 10**9
    os.utime(file, ns=(later, later))
    with pytest.raises(LoadCancelledError):
        load(file, models, Told(end_at=0))
    told = Told()
    load(file, models, told)
    assert told.stages == ["read", *OF_A_FOLDER]
    assert len(told.fractions[0]) > 10
    assert told.fractions[0] == sorted(told.fractions[0])
    again = Told()
    load(file, models, again)
    assert tuple(again.stages) == OF_A_FOLDER


def test_a_wish_to_end_is_heard_between_two_weights(file: Path, models: Path) -> None:
    load(file, models, Told())
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) > 6

    told = Told()
    with pytest.raises(LoadCancelledError):
        build_engine(file, models, CONFIG, told.progress, cancelled)
    assert told.stages[-1] == "weights"


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talk_with_engine(20.0) as made:
        yield made


def test_unloading_ends_a_load_and_another_one_follows(
    talk: Talk, file: Path, models: Path
) -> None:
    talk.send(LoadModel(str(models), str(file), config=CONFIG, command_id="one"))
    talk.until(ModelLoading)
    talk.send(UnloadModel())
    talk.until(EngineStatusChanged, status=EngineStatus.NO_MODEL)
    talk.send(LoadModel(str(models), str(file), config=CONFIG, command_id="two"))
    talk.until(ModelLoaded, timeout_s=60.0, command_id="two")
    assert not any(event.command_id == "one" for event in talk.events if type(event) is ModelLoaded)
    # Nor is its progress taken for that of the next one.
    told = [event.command_id for event in talk.events if type(event) is ModelLoading]
    assert told == sorted(told)
    assert set(told) == {"one", "two"}
