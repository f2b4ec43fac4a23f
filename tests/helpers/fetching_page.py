"""The page on which models are fetched, shown over a hub on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.fetching.queue import JobView
from app.fetching.run import Delays, State
from app.theme import ThemeManager
from app.widgets.fetching.page import FetchPage
from app.widgets.fetching.service import FetchService
from tests.helpers.files_below import files_below
from tests.helpers.hub_server import HubServer, Repo

CONTENT = b"GGUF" + bytes(range(256)) * 800
GB = 10**9
TOKEN = "hf_secretsecretsecret"
QUICK = Delays(first_s=0.01, longest_s=0.02, offline_s=0.05, in_use_s=0.05)


class FakeKeyring:
    """Keeps secrets by user name."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def get_password(self, _service: str, username: str) -> str | None:
        return self.kept.get(username)

    def set_password(self, _service: str, username: str, password: str) -> None:
        self.kept[username] = password

    def delete_password(self, _service: str, username: str) -> None:
        del self.kept[username]


class Stage:
    """A shown page over a hub with some models."""

    def __init__(self, qtbot: QtBot, hub: HubServer, folder: Path, keyring: object = None) -> None:
        self.qtbot = qtbot
        self.hub = hub
        self.models_dir = folder / "models"
        self.keyring = keyring
        self.themes = ThemeManager("light")
        self.themes.apply()
        self.open()

    def open(self) -> None:
        self.service = FetchService(
            self.models_dir, self.hub.endpoint, find_keyring=lambda: self.keyring, delays=QUICK
        )
        self.service.free_memory = lambda: 12 * GB
        self.show_page()

    def show_page(self) -> None:
        self.page = FetchPage(self.service, self.themes)
        self.qtbot.addWidget(self.page)
        self.page.show()
        self.qtbot.waitExposed(self.page)

    def search(self, text: str = "") -> None:
        self.page.edit.setText(text)
        QTest.keyClick(self.page.edit, Qt.Key.Key_Return)
        self.qtbot.waitUntil(lambda: not self.service.findings.is_busy)

    def choose(self, repo_id: str = "org/tiny-GGUF") -> None:
        self.search()
        self.page.list.setCurrentIndex(self.page.model.index_of(repo_id))
        self.qtbot.waitUntil(
            lambda: (
                self.service.shown.repository is not None or self.service.shown.error is not None
            )
        )

    def fetch(self) -> None:
        self.choose()
        self.qtbot.mouseClick(self.view.button, Qt.MouseButton.LeftButton)

    @property
    def view(self):
        return self.page.repository

    @property
    def row(self):
        return self.page.jobs.rows()[0]

    def wait(self, state: State) -> JobView:
        self.qtbot.waitUntil(
            lambda: bool(self.service.jobs()) and self.service.jobs()[0].state is state
        )
        # What the queue says reaches the page with the next round of the event loop.
        self.qtbot.waitUntil(lambda: bool(self.page.jobs.rows()) and self.row._view.state is state)
        return self.service.jobs()[0]

    def pause_at(self, num_bytes: int) -> None:
        self.hub.stop_at = num_bytes
        self.hub.gate.clear()
        self.fetch()
        self.qtbot.waitUntil(lambda: any(p.stat().st_size == num_bytes for p in self.parts()))
        self.qtbot.waitUntil(lambda: bool(self.page.jobs.rows()))
        self.qtbot.mouseClick(self.row.pause_button, Qt.MouseButton.LeftButton)
        self.hub.gate.set()

    def parts(self) -> list[Path]:
        return files_below(self.models_dir, "*.partial")


@contextmanager
def models_hub() -> Iterator[HubServer]:
    """A hub that runs: a model in three sizes, a gated one, one of pickles and one in parts."""
    quantised = {
        "tiny-Q2_K.gguf": CONTENT[:90_000],
        "tiny-Q4_K_M.gguf": CONTENT,
        "tiny-Q8_0.gguf": CONTENT * 2,
    }
    server = HubServer(
        {
            "org/tiny-GGUF": Repo(quantised, tags=("gguf",), num_parameters=135_000_000),
            "org/gated-GGUF": Repo({"g-Q4_0.gguf": CONTENT}, tags=("gguf",), gated=True),
            "org/pickle": Repo({"pytorch_model.bin": b"x"}, tags=("gguf",)),
            "org/split": Repo(
                {f"s-Q4_0-0000{n}-of-00002.gguf": CONTENT for n in (1, 2)}, tags=("gguf",)
            ),
        }
    )
    with server.running():
        yield server


@contextmanager
def shown_page(qtbot: QtBot, folder: Path) -> Iterator[Stage]:
    """The page over such a hub; the service has ended when this is left."""
    with models_hub() as hub:
        made = Stage(qtbot, hub, folder)
        yield made
        assert made.service.close(5.0)
