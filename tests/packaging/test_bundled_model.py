"""A program that carries the starter model uses it without being asked to fetch anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.api.errors import ModelFetchError
from engine.loading import starter_model


def test_source_tree_carries_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(starter_model.BUNDLE_VARIABLE, raising=False)
    assert not starter_model.is_bundled()


def test_frozen_program_finds_its_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(starter_model.BUNDLE_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    (tmp_path / "starter").mkdir()
    (tmp_path / "starter" / starter_model.FILE_NAME).touch()
    assert starter_model.is_bundled()


def test_frozen_program_without_its_model_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(starter_model.BUNDLE_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    with pytest.raises(ModelFetchError, match="does not carry the starter model"):
        starter_model.is_bundled()
