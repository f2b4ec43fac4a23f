"""The whole application over the scripted engine, driven as a user drives it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from PySide6.QtCore import QEventLoop, QObject, QSize, Qt, QTimer
from PySide6.QtWidgets import QApplication

from app.application import QuireApplication
from app.command_line import Options
from app.conversation import ASSISTANT, USER, Conversation, Message
from app.gap_meter import INTERVAL_MS
from app.garbage import hold_back
from app.i18n import Language
from app.paths import Profile
from app.session_state import ModelStatus
from app.settings import Settings
from app.store import Store
from tests.helpers.fake_engine import FakeEngine

TOKENS_PER_S = 200.0
WINDOW_SIZE = QSize(1320, 860)
CONTEXT = 1 << 20
"""No answer of a benchmark ends for want of context."""
_LOOK_MS = 20
_TIMEOUT_S = 120.0

ANSWER = """Paging keeps the keys and values of a conversation in **blocks** of `block_size` tokens.
They need not lie next to each other:

1. A *block table* says where the block of each position is.
2. Blocks that begin alike are shared, and counted.

```python
def slots(table: list[int], start: int, end: int) -> list[int]:
    # One slot a token, wherever its block lies.
    return [table[i // 16] * 16 + i % 16 for i in range(start, end)]
```

| state | used by | may be taken |
|---|--:|---|
| free | 0 | yes |
| cached | 0 | if nothing else is left |

这样，相同的开头只需要计算一次，其余的块照常分配。

"""


class GapRecorder(QObject):
    """Every time between two ticks of a timer on this thread, in ms. The interval is part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.gaps_ms: list[float] = []
        self._last_s = 0.0
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self._on_timer_timeout)

    def start(self) -> None:
        """Forgets what was measured and measures from now on."""
        self.gaps_ms = []
        self._last_s = time.perf_counter()
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()

    def _on_timer_timeout(self) -> None:
        now = time.perf_counter()
        self.gaps_ms.append((now - self._last_s) * 1000.0)
        self._last_s = now


class Driven:
    """The application in its window, with a temporary profile and a model that is loaded.

    Raises:
        RuntimeError: something took too long.
    """

    def __init__(
        self,
        stored: list[Conversation] | None = None,
        script: Callable[..., str] = lambda _submit: ANSWER * 200,
        tokens_per_s: float = TOKENS_PER_S,
    ) -> None:
        hold_back()
        self.qt = QApplication.instance() or QApplication(["quire"])
        self._folder = tempfile.TemporaryDirectory(prefix="quire-", ignore_cleanup_errors=True)
        profile = Profile(Path(self._folder.name))
        if stored:
            fill(profile, stored)
        settings = Settings(profile.settings_file)
        Language(settings.values.language).install()

        def engine() -> FakeEngine:
            return FakeEngine(tokens_per_s, script=script, context_length=CONTEXT)

        options = Options(models_dir=profile.data_dir / "models")
        self._application = QuireApplication(options, settings, Store(profile), engine)

    @property
    def window(self):
        # Another one after a change of language.
        return self._application.window

    @property
    def session(self):
        return self._application.session

    def __enter__(self) -> Self:
        self.window.resize(WINDOW_SIZE)
        self._application.show()
        self.wait(lambda: self.session.model_state.status is ModelStatus.READY)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._application.close()
        self._folder.cleanup()

    def open_tabs(self, number: int) -> list[str]:
        """So many empty tabs, the one that is there included."""
        tabs = self.session.conversation_ids()
        while len(tabs) < number:
            tabs.append(self.window.new_tab())
        return tabs

    def run(self, seconds: float) -> None:
        """Lets the event loop run for so long."""
        loop = QEventLoop()
        QTimer.singleShot(round(seconds * 1000.0), loop.quit)
        loop.exec()

    def wait(self, done: Callable[[], bool]) -> None:
        """Runs the event loop until ``done()``, looking seldom: looking costs too."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not done():
            if time.monotonic() > deadline:
                raise RuntimeError(f"it took longer than {_TIMEOUT_S:.0f} s")
            self.run(_LOOK_MS / 1000.0)


def fill(profile: Profile, conversations: list[Conversation]) -> None:
    """Stores conversations in a profile that nobody has open, those marked so as open tabs."""
    store = Store(profile)
    store.add_conversations(conversations)
    tabs = [c.conversation_id for c in conversations if c.is_open]
    if tabs:
        store.set_state("open_tabs", json.dumps(tabs))
        store.set_state("active_tab", tabs[0])
    if not store.flush(_TIMEOUT_S) or not store.close(_TIMEOUT_S):
        raise RuntimeError("the profile could not be filled")


def conversation(title: str, turns: int, text: str, is_open: bool = False) -> Conversation:
    """One with so many questions and answers."""
    made = Conversation(title=title, is_open=is_open)
    for number in range(turns):
        made.append(Message(USER, f"Question {number}: what is paging good for?"))
        made.append(Message(ASSISTANT, text))
    return made


def percentile(values: list[float], share: float) -> float:
    """The value at ``share`` (0 to 1) of the sorted values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
