"""Runs the application with the scripted engine in a process of its own: for tests only.

``python run_app.py FAULT ARGUMENTS…`` where FAULT is ``none`` or names what the engine does wrong.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


def start(*arguments: str, fault: str = "none") -> subprocess.Popen[str]:
    """Starts the application; its output is to be read by the caller."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__)), fault, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def run(
    *arguments: str, fault: str = "none", timeout_s: float = 90.0
) -> subprocess.CompletedProcess[str]:
    """Runs the application to its end."""
    with start(*arguments, fault=fault) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def _main() -> int:
    sys.path.insert(0, str(REPOSITORY))
    from app.main import main
    from engine.api.client import EngineClient
    from engine.api.errors import ModelFileError
    from tests.helpers.fake_engine import FakeEngine

    class NeverCached(FakeEngine):
        def __init__(self) -> None:
            super().__init__()
            self._requests.pool.cached = lambda ids: 0  # type: ignore[method-assign]

    class NeverEnds(FakeEngine):
        def close(self, timeout_s: float = 5.0) -> bool:
            super().close(timeout_s)
            threading.Thread(target=time.sleep, args=(60,)).start()
            return False

    class Crashes(FakeEngine):
        def _submit(self, submit: object) -> None:
            raise RuntimeError("the engine's own fault")

    if sys.argv[1] == "lost-once":
        return _lost_once(sys.argv[2:])
    if sys.argv[1] == "poisoned":
        _poison_the_painter()
    if sys.argv[1] == "unparsed":
        # A module is missing without which no message can be shown.
        sys.modules["mdurl"] = None  # type: ignore[assignment]
    if sys.argv[1] == "no-window":
        _break_the_window()
    if sys.argv[1] == "blind":
        _blind_the_self_test()
    if sys.argv[1] == "fails-last":
        _fail_at_the_end()

    def engine() -> EngineClient:
        match sys.argv[1]:
            case "never-cached":
                return NeverCached()
            case "never-ends":
                return NeverEnds()
            case "crashes":
                return Crashes()
            case "no-model":
                return FakeEngine(load_error=ModelFileError("The file ends after 12 of 94 MB."))
        # Slow enough for a busy window to see all tabs stream at once.
        return FakeEngine(tokens_per_s=50.0 if "--self-test" in sys.argv else 200.0)

    status = main(sys.argv[2:], engine)
    sys.stderr.write(f"torch loaded: {'torch' in sys.modules}\n")
    return status


def _poison_the_painter() -> None:
    """A conversation that says POISON ends the process when it is painted."""
    import os

    from PySide6.QtGui import QPaintEvent

    from app.widgets.transcript.message import MessageView
    from app.widgets.transcript.view import Transcript

    show, paint = Transcript.set_messages, Transcript.paintEvent

    def set_messages(self: Transcript, views: list[MessageView]) -> None:
        self.is_poisoned = any("POISON" in view.text for view in views)  # type: ignore[attr-defined]
        show(self, views)

    def paint_event(self: Transcript, event: QPaintEvent) -> None:
        if self.is_poisoned:  # type: ignore[attr-defined]
            os.abort()
        paint(self, event)

    Transcript.set_messages = set_messages  # type: ignore[method-assign]
    Transcript.paintEvent = paint_event  # type: ignore[method-assign]


def _break_the_window() -> None:
    from app.widgets.main_window import MainWindow

    def fails(self: MainWindow, *_parts: object) -> None:
        raise RuntimeError("the window's own fault")

    MainWindow.__init__ = fails  # type: ignore[assignment]


def _blind_the_self_test() -> None:
    """It cannot find out whether an answer is there."""
    from app.self_test import SelfTest
    from app.session import Session

    class Blind:
        def __init__(self, session: Session) -> None:
            self._session = session

        def __getattr__(self, name: str) -> object:
            return getattr(self._session, name)

        def is_busy(self, _conversation_id: str) -> bool:
            raise RuntimeError("nothing can be seen")

    make = SelfTest.__init__

    def blinded(self: SelfTest, *parts: Any) -> None:
        make(self, *parts)
        self._session = Blind(self._session)  # type: ignore[assignment]

    SelfTest.__init__ = blinded  # type: ignore[method-assign]


def _fail_at_the_end() -> None:
    """An error in a slot when the self-test has seen all that it wants to see."""
    from PySide6.QtCore import QTimer

    from app.self_test import SelfTest

    judge = SelfTest.judge_figures

    def fail() -> None:
        raise RuntimeError("at the end")

    def judge_and_fail(self: SelfTest) -> None:
        judge(self)
        QTimer.singleShot(0, fail)

    SelfTest.judge_figures = judge_and_fail  # type: ignore[method-assign]


def _lost_once(arguments: list[str]) -> int:
    """The device dies and the button is pressed; the process that follows notes what it finds.

    ``arguments``: ``--data-dir`` and the folder. The notes are beside that folder.
    """
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from app.main import main
    from app.widgets.main_window import MainWindow
    from engine.api.client import EngineClient
    from engine.api.errors import DeviceLostError
    from tests.helpers.fake_engine import FakeEngine

    data_dir = Path(arguments[1])
    died, went_on = (data_dir.with_name(name) for name in ("died.txt", "went_on.txt"))
    is_first = not died.exists()
    qt = QApplication(["quire"])
    typed: list[str] = []

    class Dies(FakeEngine):
        def _submit(self, submit: object) -> None:
            super()._submit(submit)
            self.die(DeviceLostError("The device failed.").info())

    def engine() -> EngineClient:
        return Dies() if is_first else FakeEngine()

    def look() -> None:
        for window in QApplication.topLevelWidgets():
            page = window.tab_area.current_page if isinstance(window, MainWindow) else None
            if page is None or not page.isVisible():
                continue
            if not is_first:
                path = window._session.conversation(window.tab_area.tabs.current_id()).path()
                lines = [*arguments, *(message.content for message in path)]
                went_on.write_text("\n".join(lines), "utf-8")
                qt.quit()
            elif page.model_card.restart_program_button.isVisible():
                died.write_text("", "utf-8")
                page.model_card.restart_program_button.click()
            elif not typed and window._session.model_state.info is not None:
                typed.append("go on")
                window.submit_text(window.tab_area.tabs.current_id(), typed[0])

    timer = QTimer()
    timer.timeout.connect(look)
    timer.start(50)
    return main(arguments, engine)


if __name__ == "__main__":
    sys.exit(_main())
