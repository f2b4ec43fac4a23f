"""About: the licence of whatever is chosen can be read there, in a source tree and frozen."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.versions import Library, libraries
from app.widgets.about_window import AboutWindow
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with window_stage(qtbot) as made:
        yield made


def opened(stage: Stage, qtbot) -> AboutWindow:
    """The window, once it has read what is installed."""
    stage.window.preferences.show_about()
    window = stage.window.preferences._open["about"]
    qtbot.waitUntil(lambda: window.table.rowCount() > 0)
    return window


def choose(window: AboutWindow, name: str) -> str:
    """The text beside a library's row."""
    names = [window.table.item(row, 0).text() for row in range(window.table.rowCount())]
    window.table.setCurrentCell(names.index(name), 0)
    return window.licence.toPlainText()


def test_the_chosen_librarys_licence_is_shown(stage: Stage, qtbot) -> None:
    window = opened(stage, qtbot)
    assert window.licence.toPlainText() == ""
    assert "NumPy Developers" in choose(window, "numpy")
    assert "Facebook" in choose(window, "torch")
    window.close()


def test_a_frozen_program_lists_what_the_build_has_collected(
    stage: Stage, qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "licences"
    folder.mkdir()
    (folder / "libxcb1.txt").write_text("Free as in 張.", encoding="utf-8")
    entries = [{"name": "libxcb1", "version": "1.15", "licence": "MIT", "text": "libxcb1.txt"}]
    entries.append({"name": "gone", "version": "1", "licence": "MIT", "text": "gone.txt"})
    (folder / "index.json").write_text(json.dumps(entries), encoding="utf-8")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    window = opened(stage, qtbot)
    assert window.table.rowCount() == 2
    assert choose(window, "libxcb1") == "Free as in 張."
    assert choose(window, "gone") == "Its package comes without a licence text."
    window.close()


def test_a_source_tree_lists_what_is_installed() -> None:
    names = [library.name for library in libraries()]
    assert {"PySide6-Essentials", "torch", "numpy"} <= set(names)


def test_several_texts_follow_one_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"\n{name}\n", encoding="utf-8")
    texts = (tmp_path / "a", tmp_path / "none", tmp_path / "b")
    assert Library("x", "1", "MIT", texts).text() == "a\n\nb"
