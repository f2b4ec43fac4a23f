"""The application with the scripted engine, in the middle of fetching a model: for tests only.

``python fetching_child.py DATA_DIR MODELS_DIR`` opens the model library, chooses what the hub of
HF_ENDPOINT lists first, begins to fetch it, closes the library, and prints ``reached`` when some of
the model is on the disk.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


class Driver:
    """One step at a time, whenever the one before has had its effect."""

    def __init__(self, models_dir: Path) -> None:
        self._models_dir = models_dir
        self._library: Any = None
        self._has_searched = False
        self._has_fetched = False

    def step(self, window: Any) -> bool:
        """True when some of the model is on the disk."""
        if self._library is None:
            self._library = window.model_desk.open()
            self._library.pages.choose(1)
            return False
        service = window.model_desk.fetches()
        if not self._has_searched:
            self._has_searched = True
            self._library.fetch_page.search()
        elif service.findings.results and not service.shown.repo_id:
            service.choose(service.findings.results[0].repo_id)
        elif service.shown.repository is not None and not self._has_fetched:
            self._has_fetched = True
            self._library.fetch_page.repository.button.click()
            self._library.close()
        return any(part.stat().st_size for part in self._models_dir.rglob("*.partial"))


def _main() -> int:
    sys.path.insert(0, str(REPOSITORY))
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from app.main import main
    from app.widgets.main_window import MainWindow
    from tests.helpers.fake_engine import FakeEngine

    qt = QApplication(["quire"])
    data_dir, models_dir = sys.argv[1:]
    driver = Driver(Path(models_dir))

    def look() -> None:
        for window in QApplication.topLevelWidgets():
            if isinstance(window, MainWindow) and window.isVisible() and driver.step(window):
                timer.stop()
                print("reached", flush=True)

    timer = QTimer(qt)
    timer.timeout.connect(look)
    timer.start(20)
    return main(["--data-dir", data_dir, "--models-dir", models_dir], engine=FakeEngine)


if __name__ == "__main__":
    sys.exit(_main())
