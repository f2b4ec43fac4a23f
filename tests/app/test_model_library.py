"""The library at work: folders that change, models that are described, what is remembered."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app import model_folders
from app.library.entry import STARTER_FILE, ModelEntry
from app.library.scan import MISSING, FolderScan, FoundModel
from app.model_library import ModelLibrary
from engine.api.commands import DescribeModel
from engine.api.errors import InterruptedQueryError, ModelFileError
from engine.api.events import EngineStatus, EngineStatusChanged
from tests.helpers.fake_engine import MODEL
from tests.helpers.library_stage import description, write_folder, write_gguf
from tests.helpers.session_stage import SessionStage as Stage
from tests.helpers.session_stage import session_stage


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def stage(tmp_path: Path, models: Path, qtbot: QtBot) -> Iterator[Stage]:
    with session_stage(tmp_path / "profile", qtbot) as made:
        made.session.models_dir = str(models)
        made.start()
        yield made


def library(stage: Stage) -> ModelLibrary:
    return stage.session.library


def listed(stage: Stage) -> list[str]:
    return [entry.file_name for entry in library(stage).entries()]


def scan(stage: Stage) -> None:
    with stage.qtbot.waitSignal(library(stage).folders.scanned, timeout=5000):
        library(stage).refresh()
    stage.qtbot.wait(1)


def entry(stage: Stage, path: str) -> ModelEntry:
    found = library(stage).entry(path)
    assert found is not None
    return found


def asked(stage: Stage) -> list[str]:
    return [c.path for c in stage.engine.commands if isinstance(c, DescribeModel)]


def test_models_of_all_folders_are_listed_and_the_starter_even_before_it_is_there(
    stage: Stage, models: Path, tmp_path: Path
) -> None:
    write_gguf(models / "a.gguf")
    write_folder(tmp_path / "usb" / "b")
    library(stage).add_folder(str(tmp_path / "usb"))
    scan(stage)
    assert listed(stage) == ["a.gguf", "b", STARTER_FILE]
    assert not entry(stage, str(models / STARTER_FILE)).exists


def test_the_engine_says_what_a_model_is(stage: Stage, models: Path) -> None:
    path = write_gguf(models / "a.gguf")
    stage.engine.descriptions[path] = description(path, "Good")
    scan(stage)
    stage.wait(lambda: entry(stage, path).description is not None)
    assert entry(stage, path).name == "Good"
    assert asked(stage) == [path]


def test_a_damaged_model_is_listed_with_its_cause(stage: Stage, models: Path) -> None:
    path = write_gguf(models / "cut.gguf")
    error = ModelFileError("cut.gguf is truncated: tensor blk.0 ends at byte 9,000 of 1,000.")
    stage.engine.descriptions[path] = error
    scan(stage)
    stage.wait(lambda: entry(stage, path).error is not None)
    assert entry(stage, path).error == error.info()


def test_a_model_is_asked_about_once_until_its_file_changes(stage: Stage, models: Path) -> None:
    path = write_gguf(models / "a.gguf")
    stage.engine.descriptions[path] = description(path)
    scan(stage)
    stage.wait(lambda: entry(stage, path).description is not None)
    scan(stage)
    assert len(asked(stage)) == 1
    write_gguf(models / "a.gguf", size=2000)
    scan(stage)
    stage.wait(lambda: len(asked(stage)) == 2)


def test_other_settings_of_the_engine_are_another_estimate(stage: Stage, models: Path) -> None:
    path = write_gguf(models / "a.gguf")
    stage.engine.descriptions[path] = description(path)
    scan(stage)
    stage.wait(lambda: entry(stage, path).description is not None)
    engine = replace(stage.settings.values.engine, block_size=32)
    stage.session.change_settings(engine=engine)
    stage.wait(lambda: len(asked(stage)) == 2)
    last = [c for c in stage.engine.commands if isinstance(c, DescribeModel)][-1]
    assert last.config.block_size == 32


def test_the_chosen_model_is_described_before_the_others(stage: Stage, models: Path) -> None:
    paths = [write_gguf(models / f"{n}.gguf") for n in range(5)]
    library(stage).describe_first(paths[3])
    scan(stage)
    stage.wait(lambda: len(asked(stage)) == 5)
    assert asked(stage)[0] == paths[3]


def test_a_question_that_was_interrupted_is_no_fault_of_the_model(
    stage: Stage, models: Path
) -> None:
    path = write_gguf(models / "a.gguf")
    stage.engine.descriptions[path] = InterruptedQueryError("Too many questions.")
    scan(stage)
    stage.wait(lambda: bool(asked(stage)))
    stage.qtbot.wait(50)
    assert (entry(stage, path).error, len(asked(stage))) == (None, 1)
    stage.engine.descriptions[path] = description(path)
    scan(stage)
    stage.wait(lambda: entry(stage, path).description is not None)


def test_a_new_file_appears_by_itself_while_the_library_is_watched(
    stage: Stage, models: Path
) -> None:
    library(stage).set_watching(True)
    stage.wait(lambda: library(stage).has_scanned)
    write_gguf(models / "new.gguf")
    stage.wait(lambda: "new.gguf" in listed(stage))
    library(stage).set_watching(False)


def test_a_folder_that_vanishes_is_kept_and_said_and_comes_back(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_folders, "POLL_MS", 50)
    usb = tmp_path / "usb"
    write_gguf(usb / "b.gguf")
    library(stage).add_folder(str(usb))
    library(stage).set_watching(True)
    stage.wait(lambda: "b.gguf" in listed(stage))
    shutil.move(usb, tmp_path / "away")
    stage.wait(lambda: [s.problem for s in library(stage).scans] == ["", MISSING])
    assert library(stage).places.folders == (str(usb),)
    shutil.move(tmp_path / "away", usb)
    stage.wait(lambda: "b.gguf" in listed(stage))
    library(stage).set_watching(False)


def test_a_fault_in_one_folder_leaves_the_models_of_the_others(
    stage: Stage, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(models / "a.gguf")
    write_gguf(tmp_path / "usb" / "b.gguf")
    library(stage).add_folder(str(tmp_path / "usb"))
    library(stage).add_file(str(tmp_path / "c.gguf"))
    stage.wait(lambda: not library(stage).folders._is_scanning)
    scan_folder = model_folders.scan_folder

    def faulty(folder: Path) -> FolderScan:
        if folder.name == "usb":
            raise ValueError("a fault of ours")
        return scan_folder(folder)

    def look_at(path: Path) -> FoundModel:
        raise ValueError("another one")

    with monkeypatch.context() as patch:
        patch.setattr(model_folders, "scan_folder", faulty)
        patch.setattr(model_folders, "look_at", look_at)
        scan(stage)
        assert "a.gguf" in listed(stage)
        assert [s.problem for s in library(stage).scans] == ["", "a fault of ours"]
    scan(stage)
    assert "b.gguf" in listed(stage)


def test_a_file_that_a_watched_folder_hides_is_listed_when_it_is_opened(
    stage: Stage, models: Path
) -> None:
    hidden = write_gguf(models / ".lmstudio" / "org" / "x.gguf")
    deep = write_gguf(models.joinpath(*"123456") / "deep.gguf")
    found = write_gguf(models / "found.gguf")
    scan(stage)
    assert "found.gguf" in listed(stage)
    for path in (hidden, deep, found):
        library(stage).add_file(path)
    stage.wait(lambda: library(stage).entry(hidden) is not None)
    stage.wait(lambda: library(stage).entry(deep) is not None)
    assert sorted(library(stage).places.files) == sorted([hidden, deep])


def test_a_file_that_was_opened_before_the_folders_were_looked_into_is_listed(
    stage: Stage, models: Path
) -> None:
    hidden = write_gguf(models / ".hidden" / "x.gguf")
    found = write_gguf(models / "found.gguf")
    for path in (hidden, found):
        library(stage).add_file(path)
    library(stage).refresh()
    stage.wait(lambda: library(stage).entry(hidden) is not None)
    assert library(stage).places.files == (hidden,)


def test_a_removed_model_opens_once_its_folder_is_no_longer_watched(
    stage: Stage, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "disk" / "x.gguf")
    library(stage).add_folder(str(tmp_path / "disk"))
    stage.wait(lambda: library(stage).entry(path) is not None)
    library(stage).remove(path)
    library(stage).remove_folder(str(tmp_path / "disk"))
    library(stage).add_file(path)
    stage.wait(lambda: library(stage).entry(path) is not None)
    assert library(stage).places.hidden == frozenset()


def test_a_model_that_was_opened_stays_in_the_list_when_its_file_is_gone(
    stage: Stage, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "elsewhere" / "c.gguf")
    library(stage).add_file(path)
    scan(stage)
    assert entry(stage, path).exists
    Path(path).unlink()
    scan(stage)
    assert not entry(stage, path).exists


def test_a_removed_model_stays_away_and_keeps_its_file(stage: Stage, models: Path) -> None:
    path = write_gguf(models / "a.gguf")
    scan(stage)
    library(stage).remove(path)
    scan(stage)
    assert "a.gguf" not in listed(stage)
    assert Path(path).exists()
    library(stage).show_all()
    stage.wait(lambda: "a.gguf" in listed(stage))


def test_folders_and_files_are_remembered(stage: Stage, tmp_path: Path, models: Path) -> None:
    library(stage).add_folder(str(tmp_path / "usb"))
    library(stage).add_file("/elsewhere/c.gguf")
    stage.restart()
    assert library(stage).places.folders == (str(tmp_path / "usb"),)
    assert library(stage).places.files == ("/elsewhere/c.gguf",)


def test_the_model_folder_is_not_watched_twice(stage: Stage, models: Path) -> None:
    assert not library(stage).add_folder(str(models))


def test_the_starter_model_is_loaded_by_its_empty_path(stage: Stage, models: Path) -> None:
    full = library(stage).full_path("")
    assert full == str(models / STARTER_FILE)
    assert library(stage).load_path(full) == ""
    assert library(stage).load_path("/a.gguf") == "/a.gguf"


def test_answers_tell_how_fast_the_model_is(stage: Stage, models: Path) -> None:
    path = write_gguf(models / "a.gguf")
    stage.engine.models = {path: replace(MODEL, path=path)}
    stage.session.load_model(path)
    stage.wait(lambda: stage.session.model_state.path == path)
    stage.wait(lambda: stage.session.model_state.info is not None)
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "Hello")
    stage.wait_idle(conversation_id)
    speed = library(stage).speeds.of(path, "cpu", 1)
    usage = stage.path(conversation_id)[-1].usage
    assert usage is not None
    measured = (usage.output_tokens - 1) / (usage.total_s - usage.ttft_s)
    assert speed.decode == pytest.approx(measured)


def test_answers_side_by_side_do_not(stage: Stage, models: Path) -> None:
    ids = [stage.session.new_conversation() for _ in range(2)]
    for conversation_id in ids:
        stage.session.send(conversation_id, "Hello")
    for conversation_id in ids:
        stage.wait_idle(conversation_id)
    assert library(stage).speeds.of(MODEL.path, "cpu", 1).decode == 0.0


@pytest.mark.parametrize("slow", [{"steps_per_s": 4.0}, {"paused": True}])
def test_answers_in_slow_motion_do_not(stage: Stage, slow: dict[str, float]) -> None:
    (conversation_id,) = (stage.session.new_conversation(),)

    def answer_at(pace: EngineStatusChanged) -> float:
        stage.engine.post(pace)
        stage.bridge.drain()
        stage.session.send(conversation_id, "Hello")
        stage.wait_idle(conversation_id)
        return library(stage).speeds.of(MODEL.path, "cpu", 1).decode

    assert answer_at(EngineStatusChanged(EngineStatus.READY, **slow)) == 0.0
    assert answer_at(EngineStatusChanged(EngineStatus.READY)) > 0.0


def test_nothing_is_looked_for_before_somebody_wants_to_see_it(stage: Stage, models: Path) -> None:
    write_gguf(models / "a.gguf")
    stage.qtbot.wait(50)
    assert (library(stage).has_scanned, asked(stage)) == (False, [])
