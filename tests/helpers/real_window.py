"""A main window over the real engine with a tiny model, for what only a real engine can show."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.bridge import Bridge
from app.cache_panel.live_panel import LivePanel
from app.cache_panel.pool_model import PoolModel
from app.paths import Profile
from app.session import Session
from app.session_state import ModelStatus
from app.settings import Settings
from app.store import Store
from app.theme import ThemeManager
from app.widgets.main_window import MainWindow
from engine.api.client import start_engine
from engine.api.commands import Command
from engine.api.params import EngineConfig, SamplingParams
from tests.helpers.tiny_gguf import TinyGguf

PATIENCE_MS = 20_000


class RealWindow:
    """``sent``: the commands that went to the engine since the model is there."""

    def __init__(self, folder: Path, qtbot, *, system_prompt: str, max_tokens: int) -> None:
        self.qtbot = qtbot
        path = TinyGguf(seed=3).write(folder / "tiny.gguf")
        settings = Settings(None)
        settings.change(
            engine=EngineConfig(dtype="float32", device="cpu", num_blocks=64, num_threads=1),
            sampling=SamplingParams(
                temperature=0.0, max_tokens=max_tokens, seed=0, ignore_eos=True
            ),
            default_system_prompt=system_prompt,
        )
        self.store = Store(Profile(folder / "profile"))
        self.bridge = Bridge(start_engine)
        self.session = Session(self.bridge, self.store, settings, str(folder))
        self.session.new_conversation()
        themes = ThemeManager("light")
        themes.apply()
        self.window = MainWindow(self.session, self.bridge, settings, themes)
        self.window.resize(1300, 900)
        self.window.show()
        qtbot.waitExposed(self.window)
        self.bridge.start()
        self.session.load_model(str(path))
        self.wait(lambda: self.session.model_state.status is ModelStatus.READY)
        self.sent: list[Command] = []
        send = self.bridge.send

        def noted(command: Command) -> None:
            self.sent.append(command)
            send(command)

        self.bridge.send = noted  # type: ignore[method-assign]

    def wait(self, done: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(done, timeout=PATIENCE_MS)

    @property
    def live(self) -> LivePanel:
        live = self.window.cache_panel.live
        assert live is not None
        return live

    @property
    def model(self) -> PoolModel:
        assert self.live.model is not None
        return self.live.model

    def ask(self, conversation_id: str, text: str) -> None:
        """Sends a message and waits for its answer, and for the panel to know it."""
        self.wait(lambda: self.window.cache_panel.model is not None)
        before = self.model.ghosts.get(conversation_id)
        assert self.window.submit_text(conversation_id, text)
        self.wait(lambda: not self.session.is_busy(conversation_id))
        self.wait(lambda: self.model.ghosts.get(conversation_id) is not before)

    def close(self) -> None:
        self.window.close()
        assert self.bridge.close(10.0)
        self.store.close()
        self.window.deleteLater()


@contextmanager
def real_window(qtbot, *, system_prompt: str = "", max_tokens: int = 12) -> Iterator[RealWindow]:
    """A shown window with one empty tab, the cache panel beside it, and a loaded model."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = RealWindow(Path(folder), qtbot, system_prompt=system_prompt, max_tokens=max_tokens)
        try:
            yield made
        finally:
            made.close()
