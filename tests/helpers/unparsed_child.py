"""The application without a module that showing a message needs, used all the same: for tests only.

``python unparsed_child.py DATA_DIR`` asks in two tabs, moves between them and closes the window. It
prints each step.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
MISSING = "mdurl"


def _use(window: Any) -> Iterator[str]:
    """One step at each turn; only an answer to be waited for takes several."""
    session = window._session
    while session.model_state.info is None:
        yield "starts"
    first = window.tab_area.tabs.current_id()
    for conversation_id in (first, window.new_tab()):
        yield "opened"
        window.submit_text(conversation_id, "Tell me.")
        yield "asked"
        while session.is_busy(conversation_id):
            yield "answers"
    window.show_conversation(first)
    yield "back"
    window.resize(window.size() * 0.9)
    yield "smaller"
    gc.collect()
    yield "collected"
    window.tab_area.close_conversation(first)
    yield "tab closed"
    window.close()


def _main() -> int:
    sys.path.insert(0, str(REPOSITORY))
    sys.modules[MISSING] = None  # type: ignore[assignment]
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from app.main import main
    from app.widgets.main_window import MainWindow
    from tests.helpers.fake_engine import FakeEngine

    qt = QApplication(["quire"])
    used: list[Iterator[str]] = []

    def step() -> None:
        windows = [each for each in qt.topLevelWidgets() if isinstance(each, MainWindow)]
        if windows and not used:
            used.append(_use(windows[0]))
        if used:
            print(next(used[0], "window closed"), flush=True)

    timer = QTimer(qt)
    timer.timeout.connect(step)
    timer.start(20)
    return main(["--data-dir", sys.argv[1]], FakeEngine)


if __name__ == "__main__":
    sys.exit(_main())
