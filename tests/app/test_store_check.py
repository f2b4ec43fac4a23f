"""When the database is checked: before the window after a crash, beside it if it is large."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sized
from contextlib import closing
from pathlib import Path

import pytest

from app.app_error import AppError
from app.paths import Profile
from app.store import Store
from app.store_check import BackgroundCheck
from tests.helpers.stored import contents, loaded, saved


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """A profile that counts as large."""
    profile = Profile(tmp_path / "張 庭 é's dir")
    store = Store(profile)
    saved(store, *(f"message {n} " + "x" * 3000 for n in range(40)))
    store.close()
    monkeypatch.setattr("app.store_check.CHECK_AT_ONCE_BYTES", 1000)
    return profile


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads that checked."""
    done: list[str] = []

    def counting(connection: sqlite3.Connection) -> str:
        done.append(threading.current_thread().name)
        return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])

    monkeypatch.setattr("app.store_check.finding_of", counting)
    monkeypatch.setattr("app.store_schema.finding_of", counting)
    return done


def damage(profile: Profile, name: str = "messages_by_parent") -> None:
    """The first page of an index is overwritten; everything but that can still be read."""
    with closing(sqlite3.connect(profile.database)) as database:
        page = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)
        ).fetchone()[0]
        size = database.execute("PRAGMA page_size").fetchone()[0]
    with profile.database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def wait_for(happened: Sized) -> None:
    deadline = time.monotonic() + 20.0
    while not happened:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_large_one_is_checked_beside_the_window(profile: Profile, checks: list[str]) -> None:
    store = Store(profile)
    assert checks == []
    store.check_if_due()
    store.check_if_due()
    wait_for(checks)
    store.close()
    assert checks == ["quire-check"]


def test_a_small_one_is_checked_first(
    profile: Profile, checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store_check.CHECK_AT_ONCE_BYTES", 1 << 30)
    store = Store(profile)
    assert checks == ["MainThread"]
    store.check_if_due()
    store.close()
    assert checks == ["MainThread"]


def test_after_a_crash_a_large_one_is_checked_first_too(
    profile: Profile, checks: list[str]
) -> None:
    # As a killed process leaves it: the log is not in the database yet.
    with closing(sqlite3.connect(profile.database)) as database:
        database.execute("UPDATE messages SET model = 'm'")
        database.commit()
        log = profile.database.with_name(profile.database.name + "-wal").read_bytes()
        whole = profile.database.read_bytes()
    profile.database.write_bytes(whole)
    profile.database.with_name(profile.database.name + "-wal").write_bytes(log)
    Store(profile).close()
    assert checks == ["MainThread"]


def test_damage_that_is_found_beside_the_window_is_told_and_put_aside_next_time(
    profile: Profile,
) -> None:
    damage(profile)
    errors: list[AppError] = []
    store = Store(profile, on_error=errors.append)
    assert store.problems == []
    store.check_if_due()
    wait_for(errors)
    assert [error.code for error in errors] == ["store_damage_found"]
    (summary,) = store.summaries()
    assert summary.title.startswith("message 0")
    store.close()
    again = Store(profile)
    assert [problem.code for problem in again.problems] == ["store_damaged"]
    assert contents(loaded(again, saved(again, "new"))) == ["new"]
    again.close()
    third = Store(profile)
    assert third.problems == []
    third.close()


@pytest.mark.parametrize("somebody_listens", [False, True])
def test_a_conversation_that_cannot_be_read_is_told_and_the_rest_goes_on(
    profile: Profile, somebody_listens: bool
) -> None:
    damage(profile, "messages_by_conversation")
    store = Store(profile)
    errors: list[AppError] = []
    if somebody_listens:
        store.on_error = errors.append
    (conversation_id,) = store.open_ids()
    assert store.load_conversation(conversation_id) is None
    codes = [error.code for error in errors] or [problem.code for problem in store.problems]
    assert codes == ["store_damage_found"]
    assert store.summaries()[0].title.startswith("message 0")
    store.close()
    again = Store(profile)
    assert [problem.code for problem in again.problems] == ["store_damaged"]
    again.close()


def test_a_check_is_broken_off_at_the_end(profile: Profile) -> None:
    found: list[AppError] = []
    check = BackgroundCheck(profile, found.append)
    check.start()
    check.close()
    assert found == []


def test_one_on_a_share_is_checked(
    profile: Profile, checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # SQLite takes no address that names a server.
    monkeypatch.setattr(
        Path, "as_uri", lambda path: f"file://server{path.as_posix()}", raising=False
    )
    store = Store(profile)
    store.check_if_due()
    wait_for(checks)
    store.close()
