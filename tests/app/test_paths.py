"""Where things live."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import paths


def test_models_dir_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "張 庭 é's dir"
    monkeypatch.setenv(paths.MODELS_DIR_VARIABLE, str(folder))
    assert paths.models_dir() == folder


def test_models_dir_is_outside_of_the_ordinary_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.MODELS_DIR_VARIABLE, raising=False)
    assert paths.models_dir().is_absolute()
    assert paths.data_dir() not in (paths.models_dir(), *paths.models_dir().parents)


def test_all_files_of_a_profile_are_in_its_directory(tmp_path: Path) -> None:
    profile = paths.Profile(tmp_path)
    files = (profile.database, profile.lock_file, profile.settings_file, profile.log_file)
    assert {file.parent for file in files} == {tmp_path}
    assert len(set(files)) == len(files)
