"""A main window over the scripted engine, for tests of the widgets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.bridge import Bridge
from app.paths import Profile
from app.session import Session
from app.session_state import ModelStatus
from app.settings import Settings
from app.store import Store
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


@contextmanager
def window_stage(
    qtbot,
    script: Callable[[Submit], str] = lambda _submit: SHORT,
    tokens_per_s: float = 500.0,
    load: bool = True,
    **engine,
) -> Iterator[Stage]:
    """A shown window with one empty tab and, unless ``load`` is false, a loaded model."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        engines: list[FakeEngine] = []

        def start() -> FakeEngine:
            engines.append(FakeEngine(tokens_per_s=tokens_per_s, script=script, **engine))
            return engines[-1]

        settings = Settings(None)
        store = Store(Profile(Path(folder)))
        bridge = Bridge(start)
        session = Session(bridge, store, settings, folder)
        session.new_conversation()
        themes = ThemeManager("light")
        themes.apply()
        window = MainWindow(session, bridge, settings, themes)
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
            window.close()
            bridge.close()
            store.close()
            window.deleteLater()
