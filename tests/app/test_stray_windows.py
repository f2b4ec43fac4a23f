"""A widget that is shown before it has a parent is a small window of its own for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication, QWidget

from app.engine_settings import EngineSettings
from app.settings import Settings
from app.widgets.facts_dialog import FactsDialog
from tests.helpers.window_stage import window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


class ShownWindows(QObject):
    """An event filter: kinds of the windows that are shown, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[str] = []

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        is_window = isinstance(watched, QWidget) and watched.isWindow()
        if event.type() == QEvent.Type.Show and is_window:
            self.kinds.append(type(watched).__name__)
        return False


@pytest.fixture
def shown(qapp: QApplication) -> Iterator[ShownWindows]:
    found = ShownWindows()
    qapp.installEventFilter(found)
    yield found
    qapp.removeEventFilter(found)


def test_settings_with_all_that_is_shown_at_times_only(
    qtbot, shown: ShownWindows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "path", tmp_path / "settings.json")
    monkeypatch.setattr(Settings, "unused", {"old": 1})
    monkeypatch.setattr(EngineSettings, "pending", ["block_size"])
    with window_stage(qtbot) as stage:
        assert shown.kinds == ["MainWindow"]
        settings = stage.window.preferences.show_settings()
        stage.window.preferences.show_sampling()
        settings.rebuild()
        assert shown.kinds == ["MainWindow", "SettingsWindow", "SamplingWindow"]


def test_facts_of_an_answer_that_cannot_be_run_again(qtbot, shown: ShownWindows) -> None:
    with window_stage(qtbot) as stage:
        dialog = FactsDialog((), lambda: None, "The model has changed.", stage.page)
        dialog.show()
        assert dialog.note.isVisible()
        assert shown.kinds == ["MainWindow", "FactsDialog"]
