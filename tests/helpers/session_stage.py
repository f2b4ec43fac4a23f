"""A session over the scripted engine, with a profile of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytestqt.qtbot import QtBot

from app.bridge import Bridge
from app.conversation import Message
from app.paths import Profile
from app.session import Session
from app.session_state import ModelStatus, Notice
from app.settings import Settings
from app.store import Store
from engine.api.commands import Submit
from tests.helpers.fake_engine import FakeEngine


class SessionStage:
    """A session over a scripted engine, and what it said. ``restart`` opens the profile again."""

    def __init__(self, data_dir: Path, qtbot: QtBot) -> None:
        self.profile = Profile(data_dir)
        self.qtbot = qtbot
        self.open()

    def open(self, **engine: object) -> None:
        self.engine = FakeEngine(**engine)  # type: ignore[arg-type]
        self.bridge = Bridge(lambda: self.engine)
        self.store = Store(self.profile)
        self.settings = Settings(self.profile.settings_file)
        self.session = Session(self.bridge, self.store, self.settings, "models")
        self.said: list[tuple[str, ...]] = []
        self.notices: list[Notice] = []
        for name in ("message_added", "message_removed", "message_changed", "draft_restored"):
            self._listen(name)
        for name in ("conversation_added", "conversation_closed", "path_changed"):
            self._listen(name)
        self.session.notice_raised.connect(self.notices.append)

    def _listen(self, name: str) -> None:
        getattr(self.session, name).connect(lambda *values: self.said.append((name, *values)))

    def close(self) -> None:
        self.session.shut_down()
        assert self.bridge.close()
        self.store.close()

    def restart(self, **engine: object) -> None:
        self.close()
        self.open(**engine)

    def start(self) -> None:
        self.bridge.start()
        self.session.load_model()
        self.wait(lambda: self.session.model_state.status is ModelStatus.READY)

    def wait(self, done: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(done, timeout=8000)

    def wait_idle(self, conversation_id: str) -> None:
        self.wait(lambda: not self.session.is_busy(conversation_id))

    def path(self, conversation_id: str) -> list[Message]:
        return self.session.conversation(conversation_id).path()

    def names(self) -> list[str]:
        return [said[0] for said in self.said]

    def codes(self) -> list[str]:
        return [notice.error.code for notice in self.notices]

    def submits(self) -> list[Submit]:
        return [c for c in self.engine.commands if isinstance(c, Submit)]


@contextmanager
def session_stage(data_dir: Path, qtbot: QtBot) -> Iterator[SessionStage]:
    stage = SessionStage(data_dir, qtbot)
    yield stage
    stage.close()
