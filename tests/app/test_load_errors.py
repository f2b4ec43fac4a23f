"""Why a model did not load is said as long as its files are those that did not load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.library import load_errors
from app.library.entry import STARTER_FILE
from app.library.load_errors import LoadErrors
from app.library.scan import FoundModel, look_at
from app.session_state import ModelStatus
from engine.api.errors import ErrorInfo, ModelFileError
from tests.helpers.library_stage import description, write_folder, write_gguf
from tests.helpers.library_window import LibraryStage, library_window
from tests.helpers.session_stage import SessionStage as Stage
from tests.helpers.session_stage import session_stage

BROKEN = ModelFileError("a.gguf: tensor blk.3.attn_q.weight ends at byte 4,096 of 1,024.")
ERROR = ErrorInfo("model_file", "It is broken.")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The session's model folder, which is a relative path there."""
    monkeypatch.chdir(tmp_path)
    folder = Path("models")
    folder.mkdir()
    return folder


@pytest.fixture
def stage(tmp_path: Path, models: Path, qtbot: QtBot) -> Iterator[Stage]:
    with session_stage(tmp_path / "profile", qtbot) as made:
        assert made.session.models_dir == str(models)
        made.start()
        yield made


@pytest.fixture
def library(qtbot: QtBot) -> Iterator[LibraryStage]:
    with library_window(qtbot) as made:
        yield made


def scan(stage: Stage) -> None:
    with stage.qtbot.waitSignal(stage.session.library.folders.scanned, timeout=5000):
        stage.session.library.refresh()


def fail(stage: Stage, path: str) -> None:
    stage.engine.load_errors = {path: BROKEN}
    stage.session.switch_model(path)
    stage.wait(lambda: path in stage.session.load_errors)


def later(path: Path) -> None:
    """Its time becomes another, whatever the clock's grain."""
    time_ns = path.stat().st_mtime_ns + 1_000_000
    os.utime(path, ns=(time_ns, time_ns))


def test_another_time_of_the_file_ends_the_cause(stage: Stage, models: Path) -> None:
    path = write_gguf(models / "a.gguf")
    fail(stage, path)
    scan(stage)
    assert path in stage.session.load_errors
    later(Path(path))
    scan(stage)
    assert stage.session.load_errors == {}


def test_another_size_of_it_does_too(stage: Stage, models: Path) -> None:
    path = Path(write_gguf(models / "a.gguf"))
    before = path.stat().st_mtime_ns
    fail(stage, str(path))
    write_gguf(path, size=2000)
    os.utime(path, ns=(before, before))
    scan(stage)
    assert stage.session.load_errors == {}


def test_a_file_that_was_mended_before_anybody_looked_is_another_one(
    stage: Stage, models: Path
) -> None:
    path = write_gguf(models / "a.gguf")
    fail(stage, path)
    assert not stage.session.library.has_scanned
    later(Path(path))
    scan(stage)
    assert stage.session.load_errors == {}


def test_a_mended_file_of_a_folder_or_another_part_ends_it(stage: Stage, models: Path) -> None:
    folder = write_folder(models / "b")
    part = write_gguf(models / "c-00001-of-00002.gguf")
    other = Path(write_gguf(models / "c-00002-of-00002.gguf"))
    for path in (folder, part):
        fail(stage, path)
    scan(stage)
    assert set(stage.session.load_errors) == {folder, part}
    later(Path(folder) / "config.json")
    later(other)
    scan(stage)
    assert stage.session.load_errors == {}


def test_other_models_keep_theirs(stage: Stage, models: Path) -> None:
    first, second = (write_gguf(models / name) for name in ("a.gguf", "b.gguf"))
    fail(stage, first)
    fail(stage, second)
    later(Path(first))
    scan(stage)
    assert set(stage.session.load_errors) == {second}


def test_of_the_starter_model_it_is_known_where_it_lies(stage: Stage, models: Path) -> None:
    path = Path(write_gguf(models / STARTER_FILE))
    stage.engine.load_errors = {"": BROKEN}
    stage.session.retry_model()
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    scan(stage)
    assert set(stage.session.load_errors) == {""}
    later(path)
    scan(stage)
    assert stage.session.load_errors == {}


def test_what_could_not_be_looked_at_counts_from_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that hangs while the model is loaded."""
    monkeypatch.setattr(load_errors, "look_at", lambda path: FoundModel(str(path)))
    monkeypatch.setattr(load_errors.threading.Thread, "start", lambda _self: None)
    path = write_gguf(tmp_path / "a.gguf")
    errors = LoadErrors()
    errors.trying(path, Path(path))
    errors.failed(path, ERROR)
    now = {path: look_at(Path(path)).identity}
    assert not errors.drop_outdated(now)
    later(Path(path))
    assert errors.drop_outdated({path: look_at(Path(path)).identity})
    assert errors.errors == {}


@pytest.mark.qt_log_ignore("This plugin does not support")
def test_the_library_shows_a_mended_model_as_one_that_was_never_tried(
    library: LibraryStage,
) -> None:
    library.pick(library.bare)
    fits = library.row(library.bare)
    assert "fits" in fits
    assert "1.0 KB" in fits
    library.stage.engine.load_errors = {library.bare: BROKEN}
    library.press(library.page.deeds.load)
    library.wait(lambda: "did not load" in library.row(library.bare) and library.is_loaded(""))
    assert "blk.3.attn_q" in library.words()
    assert library.page.deeds.load.text() == "Try again"
    write_gguf(Path(library.bare), size=1500)
    library.stage.engine.descriptions[library.bare] = description(library.bare, "Bare")
    library.wait(lambda: library.row(library.bare) == fits.replace("1.0 KB", "1.5 KB"))
    assert "blk.3.attn_q" not in library.words()
    assert library.page.deeds.load.text() == "Load"
