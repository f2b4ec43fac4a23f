"""Finding models in folders, by names and sizes alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from app.fetching.names import JOB_SUFFIX
from app.library import scan
from app.library.entry import STARTER_FILE
from app.library.places import model_of
from app.library.scan import MISSING, files_of, look_at, scan_folder
from engine.loading.starter_model import FILE_NAME
from tests.helpers.library_stage import write_folder, write_gguf


def paths(folder: Path) -> list[str]:
    return sorted(Path(m.path).relative_to(folder).as_posix() for m in scan_folder(folder).models)


def test_files_and_folders_are_found_however_deep_they_lie(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf")
    write_gguf(tmp_path / "org" / "name" / "模型 é.GGUF")
    write_folder(tmp_path / "org--hf")
    assert paths(tmp_path) == ["a.gguf", "org--hf", "org/name/模型 é.GGUF"]


def test_a_folder_of_pickled_weights_is_found_so_that_it_can_be_refused_by_name(
    tmp_path: Path,
) -> None:
    write_folder(tmp_path / "old", "pytorch_model.bin")
    assert paths(tmp_path) == ["old"]


def test_what_is_no_model_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("gguf")
    write_gguf(tmp_path / "half.gguf.partial")
    write_gguf(tmp_path / ".hidden.gguf")
    write_gguf(tmp_path / ".cache" / "a.gguf")
    assert paths(tmp_path) == []


def test_what_the_engine_expanded_for_itself_is_left_out(tmp_path: Path) -> None:
    write_folder(tmp_path / "a-1234abcd")
    (tmp_path / "a-1234abcd" / "source.json").write_text("{}")
    assert paths(tmp_path) == []


def test_a_file_in_several_parts_is_one_model_with_the_size_of_all(tmp_path: Path) -> None:
    for n, size in ((1, 100), (2, 200), (3, 300)):
        write_gguf(tmp_path / f"big-{n:05}-of-00003.gguf", size)
    (found,) = scan_folder(tmp_path).models
    assert found.path.endswith("big-00001-of-00003.gguf")
    assert found.identity.file_bytes == 600
    assert [path.name for path in files_of(Path(found.path))] == [
        f"big-{n:05}-of-00003.gguf" for n in (1, 2, 3)
    ]


def test_a_file_in_parts_is_newer_when_any_part_is(tmp_path: Path) -> None:
    made = [write_gguf(tmp_path / f"big-{n:05}-of-00002.gguf") for n in (1, 2)]
    before = look_at(Path(made[0])).identity.modified_ns
    os.utime(made[1], ns=(before + 5, before + 5))
    assert look_at(Path(made[0])).identity.modified_ns == before + 5


@pytest.mark.parametrize(("there", "listed"), [((1, 3), 1), ((2, 3), 2), ((3,), 3)])
def test_a_file_of_which_parts_are_missing_is_one_model(
    there: tuple[int, ...], listed: int, tmp_path: Path
) -> None:
    for n in there:
        write_gguf(tmp_path / f"big-{n:05}-of-00003.gguf", 100)
    (found,) = scan_folder(tmp_path).models
    assert found.path.endswith(f"big-{listed:05}-of-00003.gguf")
    assert found.identity.file_bytes == 100 * len(there)
    assert len(files_of(Path(found.path))) == 3
    assert model_of(str(tmp_path / f"big-{there[-1]:05}-of-00003.gguf")) == found.path


def test_parts_that_are_being_fetched_are_no_model_before_all_are_there(tmp_path: Path) -> None:
    (tmp_path / f"1234{JOB_SUFFIX}").write_text("{}")
    write_gguf(tmp_path / "other.gguf")
    for n in (1, 2):
        write_gguf(tmp_path / f"big-{n:05}-of-00003.gguf")
    assert paths(tmp_path) == ["other.gguf"]
    write_gguf(tmp_path / "big-00003-of-00003.gguf")
    assert paths(tmp_path) == ["big-00001-of-00003.gguf", "other.gguf"]


def test_two_files_in_parts_are_two_models(tmp_path: Path) -> None:
    for stem in ("a", "b"):
        for count in (2, 3):
            write_gguf(tmp_path / f"{stem}-00002-of-{count:05}.GGUF")
    assert len(paths(tmp_path)) == 4


def test_a_number_that_no_part_has_makes_a_name_like_any_other(tmp_path: Path) -> None:
    for name in ("a-00000-of-00002.gguf", "a-00003-of-00002.gguf", "a-00001-of-00001.gguf"):
        write_gguf(tmp_path / name)
    assert len(paths(tmp_path)) == 3


def test_the_size_of_a_folder_is_that_of_its_weights(tmp_path: Path) -> None:
    write_folder(tmp_path / "hf", "model-1.safetensors", 300)
    (tmp_path / "hf" / "model-2.safetensors").write_bytes(b"x" * 200)
    (tmp_path / "hf" / "tokenizer.json").write_text("{}" * 50)
    (found,) = scan_folder(tmp_path).models
    assert found.identity.file_bytes == 500


def test_another_tokenizer_makes_it_another_identity(tmp_path: Path) -> None:
    path = Path(write_folder(tmp_path / "hf"))
    before = look_at(path).identity
    (path / "tokenizer.json").write_text("{}")
    os.utime(path / "tokenizer.json", ns=(before.modified_ns + 5, before.modified_ns + 5))
    assert look_at(path).identity.modified_ns == before.modified_ns + 5


def test_a_folder_that_is_gone_says_so(tmp_path: Path) -> None:
    found = scan_folder(tmp_path / "usb")
    assert (found.problem, found.models) == (MISSING, ())


def test_a_file_in_place_of_the_folder_is_a_problem_and_no_fault(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    assert scan_folder(Path(path)).problem


def test_a_model_that_is_gone_is_told_from_one_that_is_there(tmp_path: Path) -> None:
    path = Path(write_gguf(tmp_path / "a.gguf"))
    assert look_at(path).exists
    path.unlink()
    assert not look_at(path).exists


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_links_in_a_circle_end(tmp_path: Path) -> None:
    write_gguf(tmp_path / "in" / "a.gguf")
    (tmp_path / "in" / "up").symlink_to(tmp_path, target_is_directory=True)
    assert len(scan_folder(tmp_path).models) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_that_leads_nowhere_hides_no_other_model(tmp_path: Path) -> None:
    write_gguf(tmp_path / "good.gguf")
    folder = Path(write_folder(tmp_path / "snapshots" / "abc", size=300))
    (folder / "model-2.safetensors").symlink_to(tmp_path / "blobs" / "gone")
    assert paths(tmp_path) == ["good.gguf", "snapshots/abc"]
    assert look_at(folder).identity.file_bytes == 300


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_to_itself_hides_no_other_model(tmp_path: Path) -> None:
    write_gguf(tmp_path / "good.gguf")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert paths(tmp_path) == ["good.gguf"]


def test_a_whole_disk_is_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MAX_FOLDERS", 4)
    for n in range(8):
        (tmp_path / str(n)).mkdir()
    found = scan_folder(tmp_path)
    assert (found.is_cut, len(found.visited)) == (True, 4)


def test_the_starter_model_has_the_name_that_the_engine_gives_it() -> None:
    assert STARTER_FILE == FILE_NAME
