"""A main window over the scripted engine, for tests of the widgets."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.bridge import Bridge
from app.conversation import Conversation
from app.i18n import Language
from app.paths import Profile
from app.session import Session
from app.session_state import ModelStatus
from app.settings import Settings
from app.store import Store
from app.store_search import SearchResult
from app.theme import ThemeManager
from app.widgets.main_window import MainWindow
from engine.api.commands import Submit
from tests.helpers.fake_engine import FakeEngine

SHORT = "A short answer."


@dataclass
class Stage:
    """The parts of one window. ``engines``: those that were started, the latest last."""

    window: MainWindow
    session: Session
    engines: list[FakeEngine]
    settings: Settings
    themes: ThemeManager

    @property
    def engine(self) -> FakeEngine:
        return self.engines[-1]

    @property
    def page(self):
        """The page in front."""
        return self.window.tab_area.current_page

    @property
    def shown_texts(self) -> list[str]:
        """Of the messages of the page in front."""
        return [item.text for item in self.page.transcript.items]


def send(stage: Stage, text: str) -> str:
    """Types a message into the tab in front and presses Enter. Returns the conversation's id."""
    edit = stage.page.composer.edit
    QTest.keyClicks(edit, text)
    QTest.keyClick(edit, Qt.Key.Key_Return)
    return stage.page.conversation_id


def wait_idle(stage: Stage, qtbot) -> None:
    """Until no conversation has an answer on its way."""
    ids = stage.session.conversation_ids
    qtbot.waitUntil(lambda: not any(stage.session.is_busy(i) for i in ids()), timeout=10_000)


@contextmanager
def window_stage(
    qtbot,
    script: Callable[[Submit], str] = lambda _submit: SHORT,
    tokens_per_s: float = 500.0,
    load: bool = True,
    language: Language | None = None,
    profile: Path | None = None,
    **engine,
) -> Iterator[Stage]:
    """A shown window with one empty tab and, unless ``load`` is false, a loaded model.

    ``language``: an installed one, that the window can switch. ``profile``: a folder with stored
    conversations.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        engines: list[FakeEngine] = []

        def start() -> FakeEngine:
            engines.append(FakeEngine(tokens_per_s=tokens_per_s, script=script, **engine))
            return engines[-1]

        settings = Settings(None)
        store = Store(Profile(profile or Path(folder)))
        bridge = Bridge(start)
        session = Session(bridge, store, settings, folder)
        session.new_conversation()
        themes = ThemeManager("light")
        themes.apply()
        window = MainWindow(session, bridge, settings, themes, language)
        window.resize(1300, 820)
        window.show()
        qtbot.waitExposed(window)
        bridge.start()
        try:
            if load:
                session.load_model()
                qtbot.waitUntil(lambda: session.model_state.status is ModelStatus.READY)
            yield Stage(window, session, engines, settings, themes)
        finally:
            window.quit_guard.force()
            window.close()
            bridge.close()
            store.close()
            window.deleteLater()


def import_indexed(stage: Stage, conversations: list[Conversation]) -> None:
    """Stores conversations as an import does, and waits until they are indexed."""
    ids = [conversation.conversation_id for conversation in conversations]
    for conversation in conversations:
        conversation.is_open = False
    assert stage.session.store_imported(conversations)
    stage.session.show_imported(ids)
    results: list[SearchResult] = []
    stage.session.search_finished.connect(results.append)
    deadline = time.monotonic() + 10.0
    while not results or not results[-1].is_complete:
        assert time.monotonic() < deadline
        stage.session.search("zzz")
        QTest.qWait(10)
    stage.session.search_finished.disconnect(results.append)
