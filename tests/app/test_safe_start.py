"""A conversation that brings the window down does so once, not at every start."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.application import QuireApplication
from app.command_line import Options
from app.conversation import Conversation
from app.paths import Profile
from app.safe_start import MAX_DEATHS, RestoreMark
from app.settings import Settings
from app.store import Store
from tests.helpers import run_app
from tests.helpers.fake_engine import FakeEngine
from tests.helpers.stored import saved

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support")


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path / "張 庭 é's dir")


def stored(profile: Profile, *contents: str) -> list[str]:
    """Open conversations, each with a question of that content."""
    store = Store(profile)
    conversations: list[Conversation] = [saved(store, content, "yes") for content in contents]
    store.close()
    return [conversation.conversation_id for conversation in conversations]


@contextmanager
def application(profile: Profile, qtbot: QtBot) -> Iterator[QuireApplication]:
    made = QuireApplication(Options(), Settings(None), Store(profile), FakeEngine)
    made.show()
    qtbot.waitUntil(lambda: made.first_paint_ms is not None)
    yield made
    made.close()


def died_while_showing(profile: Profile, *conversation_ids: str) -> None:
    RestoreMark(profile.restore_file).set(conversation_ids)


def test_after_a_start_that_went_well_all_tabs_come_back(profile: Profile, qtbot: QtBot) -> None:
    ids = stored(profile, "one", "two")
    for _ in range(2):
        with application(profile, qtbot) as made:
            assert set(made.session.conversation_ids()) == set(ids)
            assert made.safe_start.bar is None
            assert profile.restore_file.exists()
        assert not profile.restore_file.exists()


def test_what_was_shown_for_a_while_is_no_suspect(
    profile: Profile, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.widgets.safe_start.STABLE_MS", 1500)
    ids = stored(profile, "one")
    with application(profile, qtbot):
        assert RestoreMark(profile.restore_file).suspects(ids) == ids
        qtbot.waitUntil(lambda: RestoreMark(profile.restore_file).suspects(ids) == [])


def test_the_third_death_in_a_row_leaves_everything_closed(profile: Profile, qtbot: QtBot) -> None:
    (conversation_id,) = stored(profile, "one")
    for _ in range(MAX_DEATHS - 1):
        RestoreMark(profile.restore_file).shown()
        assert RestoreMark(profile.restore_file).suspects([conversation_id]) == []
    RestoreMark(profile.restore_file).shown()
    with application(profile, qtbot) as made:
        assert made.safe_start.bar is not None
        assert conversation_id not in made.session.conversation_ids()
    # It ended in order: they are counted anew.
    with application(profile, qtbot) as made:
        assert made.safe_start.bar is None


def test_after_a_start_that_died_the_tabs_stay_closed_and_open_one_by_one(
    profile: Profile, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stored(profile, "one", "two & <b>")
    died_while_showing(profile, first, second)
    monkeypatch.setattr("app.widgets.safe_start.STABLE_MS", 50)
    with application(profile, qtbot) as made:
        session, bar = made.session, made.safe_start.bar
        assert bar is not None
        assert bar.isVisible()
        assert not {first, second} & set(session.conversation_ids())
        assert bar.buttons[second].accessibleName() == "Open “two & <b>”"
        bar.buttons[second].click()
        assert session.active_conversation_id == second
        assert RestoreMark(profile.restore_file).suspects([second]) == [second]
        qtbot.waitUntil(lambda: not RestoreMark(profile.restore_file).suspects([second]))
        bar = made.safe_start.bar
        assert bar is not None
        assert list(bar.buttons) == [first]
        bar.buttons[first].click()
        assert made.safe_start.bar is None
        assert {first, second} < set(session.conversation_ids())


def test_only_what_was_opened_when_it_died_stays_closed(profile: Profile, qtbot: QtBot) -> None:
    first, second = stored(profile, "one", "two")
    died_while_showing(profile, second)
    with application(profile, qtbot) as made:
        assert made.session.conversation_ids() == [first]
        assert made.safe_start.bar is not None
        made.safe_start.bar.close_button.click()
        assert made.safe_start.bar is None
    # It was said once.
    with application(profile, qtbot) as made:
        assert made.session.conversation_ids() == [first]
        assert made.safe_start.bar is None


def test_a_mark_that_makes_no_sense_changes_nothing(profile: Profile, qtbot: QtBot) -> None:
    ids = stored(profile, "one")
    gone = '{"showing": ["gone"], "deaths": 0}'
    for text in ("[1, {}]", "nonsense", '{"showing": 7, "deaths": 1}', gone):
        profile.restore_file.write_text(text)
        with application(profile, qtbot) as made:
            assert made.session.conversation_ids() == ids


# --- in processes of their own ---


def wait_for(process: subprocess.Popen[str], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40.0
    while not done():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_conversation_that_crashes_the_painter_does_so_once(profile: Profile) -> None:
    _good, bad = stored(profile, "a good one", "POISON")
    # The one in front is painted first.
    store = Store(profile)
    store.set_state("active_tab", bad)
    store.close()
    with run_app.start("--data-dir", str(profile.data_dir), fault="poisoned") as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGABRT
    with run_app.start("--data-dir", str(profile.data_dir), fault="poisoned") as process:
        log = profile.log_file
        wait_for(process, lambda: "engine started" in log.read_text("utf-8"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert "2 conversations stay closed" in log.read_text("utf-8")
    with closing(sqlite3.connect(profile.database)) as database:
        contents = {row[0] for row in database.execute("SELECT content FROM messages")}
    assert {"a good one", "POISON"} <= contents
