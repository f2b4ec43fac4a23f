"""What the engine expanded of a GGUF goes with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PySide6.QtWidgets import QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from app.library.entry import ModelEntry
from app.library.expanded import expanded_copies
from app.library.scan import look_at
from app.widgets.library import deleting
from engine.loading.gguf_model import expand
from engine.loading.source import Source, expanded_folder
from tests.helpers.tiny_gguf import TinyGguf

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def test_the_folder_that_was_made_from_a_file_is_told_from_others(
    tmp_path: Path, models: Path
) -> None:
    path, other = tmp_path / "elsewhere" / "m.gguf", tmp_path / "other" / "m.gguf"
    for each in (path, other):
        each.parent.mkdir()
        TinyGguf().write(each)
    os.utime(other, ns=(1, 1))
    folder = expand(path, models)
    (models / "damaged").mkdir()
    (models / "damaged" / "source.json").write_text("{", encoding="utf-8")
    (models / "list").mkdir()
    (models / "list" / "source.json").write_text("[]", encoding="utf-8")
    assert folder == expanded_folder(Source.of(path), models)
    assert expanded_copies(path, models) == [folder]
    assert expanded_copies(other, models) == []
    assert expanded_copies(folder, models) == []
    assert expanded_copies(path, models / "gone") == []
    path.unlink()
    assert expanded_copies(path, models) == []


def test_the_folder_of_a_file_in_parts_is_found(models: Path) -> None:
    path = TinyGguf(part_tensors=8).write(models / "m.gguf")
    folder = expand(path, models)
    assert expanded_copies(path, models) == [folder]


@pytest.mark.parametrize("moves", [True, False])
def test_deleting_a_file_takes_what_was_expanded_of_it_and_leaves_it_if_the_file_stays(
    models: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    path = TinyGguf().write(models / "m.gguf")
    folder = expand(path, models)
    thrown: list[Path] = []

    def throw(each: Path) -> bool:
        thrown.append(each)
        return moves

    monkeypatch.setattr(deleting, "move_to_trash", throw)
    parent = QWidget()
    qtbot.addWidget(parent)
    found = look_at(path)
    entry = ModelEntry(found.path, str(models), found.identity, True, False, None, None)
    box = deleting.ask_to_delete(entry, str(models), parent, lambda: None)
    button = next(each for each in box.buttons() if "recycle bin" in each.text())
    with qtbot.waitSignal(box.destroyed, timeout=8000):
        button.click()
    for said in parent.findChildren(QMessageBox):
        with qtbot.waitSignal(said.destroyed, timeout=8000):
            said.close()
    assert thrown == ([path, folder] if moves else [path])
