"""The model library over the scripted engine, with four models in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QPushButton

from app.session_state import ModelStatus
from app.widgets.library.models_page import ModelsPage
from app.widgets.library.window import LibraryWindow
from engine.api.errors import ModelFileError
from tests.helpers.fake_engine import MODEL
from tests.helpers.library_stage import GB, description, write_gguf
from tests.helpers.window_stage import Stage, window_stage

LONG = "word " * 100
CUT = ModelFileError("cut.gguf is truncated: tensor blk.7.ffn ends at byte 4,812 of 1,000.")


class LibraryStage:
    """A window with four models in its folder, and the library open."""

    def __init__(self, stage: Stage, qtbot) -> None:
        self.stage, self.qtbot = stage, qtbot
        folder = Path(stage.session.models_dir)
        self.good = write_gguf(folder / "org--good" / "good.gguf")
        self.large = write_gguf(folder / "large.gguf", 5000)
        self.cut = write_gguf(folder / "cut.gguf")
        self.bare = write_gguf(folder / "bare.gguf")
        engine = stage.engine
        engine.descriptions = {
            self.good: description(self.good, "Good 7B"),
            self.large: description(self.large, "Large", fits=False, num_blocks=0, free_bytes=GB),
            self.cut: CUT,
            self.bare: description(self.bare, "Bare", has_chat_template=False),
        }
        engine.models = {
            path: replace(MODEL, name=name, path=path, chat_template_choices=("chatml", "plain"))
            for path, name in ((self.good, "Good 7B"), (self.bare, "Bare"))
        }
        engine.load_errors = {self.large: ModelFileError("Not enough.")}
        self.window: LibraryWindow = stage.window.model_desk.open()
        self.wait(lambda: self.page.model.rowCount() == 5)
        self.wait(lambda: all(e.description or e.error for e in self.entries() if e.exists))
        self.wait(lambda: not self.page._refresh_timer.isActive())

    @property
    def page(self) -> ModelsPage:
        assert self.window.models is not None
        return self.window.models

    def entries(self):
        return self.stage.session.library.entries()

    def wait(self, done) -> None:
        self.qtbot.waitUntil(done, timeout=8000)

    def pick(self, path: str) -> None:
        self.page.select(path)
        assert self.page.selected_path() == path

    def press(self, button: QPushButton) -> None:
        assert button.isVisible(), button.text()
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)

    def is_loaded(self, path: str) -> bool:
        state = self.stage.session.model_state
        return state.status is ModelStatus.READY and state.path == path

    def words(self) -> str:
        """What is said of the chosen model."""
        labels = self.page.details.findChildren(QLabel)
        return "\n".join(label.text() for label in labels if label.isVisible())

    def row(self, path: str) -> str:
        index = self.page.model.index_of(path)
        return str(index.data(Qt.ItemDataRole.AccessibleTextRole))

    def start_answers(self, count: int = 2) -> list[str]:
        session = self.stage.session
        ids = [session.new_conversation() for _ in range(count)]
        for conversation_id in ids:
            assert session.send(conversation_id, "A question")
        self.wait(lambda: session.num_running_answers == count)
        self.wait(lambda: all(session.conversation(i).path()[-1].content for i in ids))
        self.page.refresh()
        return ids


@contextmanager
def library_window(qtbot) -> Iterator[LibraryStage]:
    """An open library whose engine takes more than a second for an answer."""
    with window_stage(qtbot, tokens_per_s=80.0, script=lambda _submit: LONG) as stage:
        yield LibraryStage(stage, qtbot)
