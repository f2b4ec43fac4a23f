"""Opens and closes the whole application again and again while answers stream: for tests only.

``python close_child.py TIMES SEED FOLDER`` prints ``closed TIMES``, and every warning of Qt.
"""

from __future__ import annotations

import faulthandler
import gc
import random
import sys
import threading
import time
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QObject, QTimer, qInstallMessageHandler
from PySide6.QtWidgets import QApplication

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app.application import QuireApplication
from app.command_line import Options
from app.paths import Profile
from app.settings import Settings
from app.store import Store
from tests.helpers.fake_engine import FakeEngine

# Of the platform that draws nowhere.
HARMLESS = "This plugin does not support"
PATIENCE_S = 240


def _burn(stop: threading.Event) -> None:
    """Takes the interpreter as often as it can, as an engine does."""
    while not stop.is_set():
        sum(range(2000))
        time.sleep(0.0005)


class Driver(QObject):
    """Does some things at random moments, and ends the event loop."""

    def __init__(self, application: QuireApplication, draw: random.Random) -> None:
        super().__init__(application)
        self._application = application
        self._draw = draw
        self._left = draw.randint(0, 6)
        self._wait()

    def _wait(self) -> None:
        QTimer.singleShot(self._draw.randint(0, 50), self, self._act)

    def _act(self) -> None:
        if not self._left:
            # Not quit, which would close the window: closing it is what is tried here.
            QCoreApplication.exit(0)
            return
        self._left -= 1
        window, session = self._application.window, self._application.session
        chosen = self._draw.choice(session.conversation_ids())
        what = self._draw.choice(("new", "send", "send", "close", "close"))
        if what == "new" and len(session.conversation_ids()) < 6:
            window.new_tab()
        elif what == "send" and session.model_state.info is not None:
            window.submit_text(chosen, "Tell me.")
        elif what == "close":
            window.tab_area.close_conversation(chosen)
        self._wait()


def _main() -> int:
    faulthandler.enable()
    times, draw, folder = int(sys.argv[1]), random.Random(int(sys.argv[2])), Path(sys.argv[3])
    # One that hangs says where.
    faulthandler.dump_traceback_later(max(PATIENCE_S, 3 * times), exit=True)
    qt = QApplication(["quire"])

    def on_message(_kind: object, _context: object, message: str) -> None:
        if HARMLESS not in message:
            print(f"Qt: {message}", flush=True)

    qInstallMessageHandler(on_message)
    stop = threading.Event()
    threading.Thread(target=_burn, args=(stop,)).start()

    for number in range(times):
        # A new profile now and then: a start must not get longer and longer.
        profile = Profile(folder / str(number // 10))
        engine = FakeEngine(tokens_per_s=400.0, script=lambda _submit: "Many *words*. " * 200)
        application = QuireApplication(
            Options(), Settings(None), Store(profile), lambda engine=engine: engine
        )
        application.show()
        Driver(application, draw)
        qt.exec()
        application.close()
        # Threads of the closed one are still at work when the next one is made.
        assert not gc.isenabled()
        del application
        gc.collect()
    stop.set()
    left = [t.name for t in threading.enumerate() if t.name.startswith("quire")]
    if left:
        print(f"threads left: {left}", flush=True)
    print(f"closed {times}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
