"""The whole application on a disk that fills up while it works, and is freed again."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.application import QuireApplication
from app.command_line import Options
from app.conversation import MessageStatus
from app.paths import Profile
from app.settings import Settings
from app.store import Store
from app.store_schema import connect
from app.widgets.transfers import JSON, MARKDOWN
from tests.helpers.fake_engine import FakeEngine

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support")

ANSWER = "An answer of many words about 缓存 blocks. " * 59 + "The end."


class TinyFileSystem:
    """A real file system of 4 MB."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as file:
            for size in (65_536, 4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def free(self) -> None:
        self._filler.unlink()


class NoMorePages:
    """SQLite itself refuses to let the database grow."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data_dir = folder
        self._connections: list[sqlite3.Connection] = []

        def connecting(database: Path) -> sqlite3.Connection:
            self._connections.append(connect(database))
            return self._connections[-1]

        monkeypatch.setattr("app.store_files.connect", connecting)

    def fill(self) -> None:
        pages = self._connections[-1].execute("PRAGMA page_count").fetchone()[0]
        self._connections[-1].execute(f"PRAGMA max_page_count = {pages}")

    def free(self) -> None:
        self._connections[-1].execute(f"PRAGMA max_page_count = {1 << 30}")


Disk = TinyFileSystem | NoMorePages


@pytest.fixture(params=["file system", "database"])
def disk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Disk]:
    monkeypatch.setattr("app.store_writer.RETRY_INTERVAL_S", 0.1)
    folder = tmp_path / "tiny"
    folder.mkdir()
    if request.param == "database":
        yield NoMorePages(folder, monkeypatch)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=4M", "none", str(folder)]
    if os.name == "nt" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield TinyFileSystem(folder)
    # Lazily: a test that fails leaves files open.
    subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def running(disk: Disk, qtbot: QtBot) -> Iterator[QuireApplication]:
    engine = FakeEngine(tokens_per_s=2000.0, script=lambda _submit: ANSWER)
    store = Store(Profile(disk.data_dir))
    application = QuireApplication(Options(), Settings(None), store, lambda: engine)
    application.show()
    qtbot.waitUntil(lambda: application.session.model_state.info is not None, timeout=20_000)
    yield application
    application.close()


def ask(application: QuireApplication, qtbot: QtBot, text: str) -> str:
    """The conversation in front, after its answer."""
    session = application.session
    conversation_id = session.active_conversation_id
    assert application.window.submit_text(conversation_id, text)
    qtbot.waitUntil(lambda: not session.is_busy(conversation_id), timeout=20_000)
    return conversation_id


def banners(application: QuireApplication) -> list[str]:
    return [bar.notice.error.code for bar in application.window.tab_area.notices.bars]


def stored_texts(disk: Disk) -> list[str]:
    with closing(sqlite3.connect(disk.data_dir / "conversations.sqlite3")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        rows = database.execute("SELECT content FROM messages ORDER BY created_at")
        return [row[0] for row in rows]


def fill_until(
    application: QuireApplication, qtbot: QtBot, disk: Disk, said: Callable[[], bool]
) -> None:
    """What is left of the last page may still take a message."""
    disk.fill()
    for n in range(20):
        if said():
            return
        ask(application, qtbot, f"after it was full, {n} " + "x" * 30_000)
        # The thread that writes tells it soon after.
        qtbot.wait(300)
    assert said()


def test_a_disk_that_fills_up_loses_nothing_and_recovers(
    disk: Disk, qtbot: QtBot, tmp_path: Path
) -> None:
    with running(disk, qtbot) as application:
        session, window = application.session, application.window
        conversation_id = ask(application, qtbot, "before it was full")
        assert application._store.flush()
        fill_until(application, qtbot, disk, lambda: "store_write" in banners(application))
        # What was stored is intact, and the window goes on.
        assert stored_texts(disk)[:2] == ["before it was full", ANSWER]
        ask(application, qtbot, "in the dark")
        conversation = session.conversation(conversation_id)
        assert conversation.path()[-1].status is MessageStatus.DONE
        # It can be saved elsewhere.
        for form, name in ((MARKDOWN, "out.md"), (JSON, "out.json")):
            assert window.transfers.write([conversation_id], form, tmp_path / name)
            qtbot.waitUntil(lambda: window.transfers._steps is None, timeout=20_000)
        assert "in the dark" in (tmp_path / "out.md").read_text("utf-8")
        assert json.loads((tmp_path / "out.json").read_text("utf-8"))
        disk.free()
        qtbot.waitUntil(lambda: "store_recovered" in banners(application), timeout=20_000)
        assert application._store.flush()
        assert stored_texts(disk) == [message.content for message in conversation.path()]
    with running(disk, qtbot) as application:
        path = application.session.conversation(conversation_id).path()
        assert [message.content for message in path] == stored_texts(disk)
        assert "in the dark" in [message.content for message in path]


def test_what_was_closed_in_the_dark_can_be_saved_elsewhere(
    disk: Disk, qtbot: QtBot, tmp_path: Path
) -> None:
    with running(disk, qtbot) as application:
        window = application.window
        ask(application, qtbot, "before it was full")
        assert application._store.flush()
        fill_until(application, qtbot, disk, lambda: "store_write" in banners(application))
        conversation_id = ask(application, qtbot, "in the dark")
        window.tab_area.close_conversation(conversation_id)
        assert window.transfers.write([conversation_id], MARKDOWN, tmp_path / "out.md")
        qtbot.waitUntil(lambda: window.transfers._steps is None, timeout=20_000)
        assert "in the dark" in (tmp_path / "out.md").read_text("utf-8")
        disk.free()


def test_a_start_on_a_full_disk_shows_what_is_stored(disk: Disk, qtbot: QtBot) -> None:
    if isinstance(disk, NoMorePages):
        pytest.skip("a limit of the database is gone with its connection")
    with running(disk, qtbot) as application:
        conversation_id = ask(application, qtbot, "before it was full")
    disk.fill()
    with running(disk, qtbot) as application:
        path = application.session.conversation(conversation_id).path()
        assert [message.content for message in path] == ["before it was full", ANSWER]
        ask(application, qtbot, "in the dark " + "x" * 30_000)
        qtbot.waitUntil(lambda: "store_write" in banners(application), timeout=20_000)
        disk.free()
        qtbot.waitUntil(lambda: application._store.flush(0.2), timeout=20_000)
        assert stored_texts(disk)[2].startswith("in the dark")


def test_the_window_does_not_close_over_what_is_not_saved(disk: Disk, qtbot: QtBot) -> None:
    with running(disk, qtbot) as application:
        window = application.window
        ask(application, qtbot, "before it was full")
        fill_until(application, qtbot, disk, lambda: "store_write" in banners(application))
        ask(application, qtbot, "in the dark " + "x" * 30_000)
        assert not window.close()
        box = window.quit_guard.box
        assert box is not None
        assert box.text() == "Not everything could be saved."
        assert box.defaultButton() is box.escapeButton()
        box.reject()
        disk.free()
        qtbot.waitUntil(lambda: "store_recovered" in banners(application), timeout=20_000)
        assert window.close()


def test_leaving_on_a_full_disk_ends_soon_and_keeps_what_was_stored(
    disk: Disk, qtbot: QtBot
) -> None:
    with running(disk, qtbot) as application:
        ask(application, qtbot, "before it was full")
        assert application._store.flush()
        fill_until(application, qtbot, disk, lambda: "store_write" in banners(application))
    assert stored_texts(disk)[:2] == ["before it was full", ANSWER]
