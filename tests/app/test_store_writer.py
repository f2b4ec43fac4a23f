"""The writer's thread: what comes while the disk recovers, what is given up at the end."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.conversation import USER, Conversation, Message
from app.paths import Profile
from app.store import Store
from app.store_jobs import DELETED_KEPT_S, tidy
from app.store_rows import message_row
from app.store_schema import connect
from app.store_writer import GivenUpError, StoreWriter
from tests.helpers.stored import contents, loaded, saved

TIMEOUT_S = 20.0


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "x.sqlite3"
    with closing(connect(path)) as connection:
        connection.execute("CREATE TABLE t (name TEXT PRIMARY KEY)")
    return path


def rows(database: Path) -> set[str]:
    with closing(connect(database)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM t")}


def insert(name: str) -> Callable[[sqlite3.Connection], None]:
    def job(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (?)", (name,))

    return job


def test_what_comes_while_the_disk_recovers_is_written(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store_writer.RETRY_INTERVAL_S", 0.01)
    is_full, writes, go_on = threading.Event(), threading.Event(), threading.Event()
    is_full.set()
    told: list[str] = []

    def first(connection: sqlite3.Connection) -> None:
        if is_full.is_set():
            raise sqlite3.OperationalError("database or disk is full")
        writes.set()
        assert go_on.wait(TIMEOUT_S)
        insert("first")(connection)

    writer = StoreWriter(
        lambda: connect(database), lambda _error: told.append("error"), lambda: told.append("over")
    )
    writer.put(("t", "first"), first)
    wait_for(lambda: "error" in told)
    is_full.clear()
    assert writes.wait(TIMEOUT_S)
    writer.put(("t", "later"), insert("later"))
    go_on.set()
    # Nothing else is saved, and nobody flushes.
    wait_for(lambda: rows(database) == {"first", "later"})
    assert told == ["error", "over"]
    assert writer.close()


def test_a_job_given_up_at_the_end_takes_nothing_with_it(database: Path) -> None:
    told: list[object] = []
    began = threading.Event()

    def long(connection: sqlite3.Connection) -> None:
        began.set()
        insert("long")(connection)
        wait_for(lambda: writer.is_closing)
        raise GivenUpError

    writer = StoreWriter(lambda: connect(database), told.append, lambda: None)
    with writer.together():
        writer.put(("t", "before"), insert("before"))
        writer.put(("t", "long"), long)
    assert began.wait(TIMEOUT_S)
    writer.put(("t", "after"), insert("after"))
    assert writer.close(TIMEOUT_S)
    assert rows(database) == {"before", "after"}
    assert told == []


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path / "張 庭 é's dir")


def test_an_import_that_is_not_done_at_the_end_is_given_up_and_the_rest_is_written(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = threading.Event()

    def slowly(conversation_id: str, message: Message) -> tuple[Any, ...]:
        if message.content == "imported":
            began.set()
            wait_for(lambda: store._writer.is_closing)
        return message_row(conversation_id, message)

    monkeypatch.setattr("app.store_jobs.message_row", slowly)
    told: list[object] = []
    store = Store(profile, told.append)
    imported = Conversation(title="from elsewhere", is_open=False)
    imported.append(Message(USER, "imported"))
    written = store.add_conversations([imported])
    assert began.wait(TIMEOUT_S)
    said = saved(store, "said meanwhile", "answer")
    assert store.close(TIMEOUT_S)
    assert not written.is_set()
    assert told == []
    store = Store(profile)
    assert [each.conversation_id for each in store.summaries()] == [said.conversation_id]
    assert contents(loaded(store, said)) == ["said meanwhile", "answer"]
    store.close()


def test_what_was_deleted_long_ago_goes_in_slices(profile: Profile) -> None:
    store = Store(profile)
    kept = saved(store, *(f"message {n}" for n in range(60)))
    gone = [saved(store, "question", "answer") for _ in range(3)]
    for conversation in gone:
        store.set_conversation_deleted(conversation.conversation_id)
    store.set_messages_deleted(message.message_id for message in kept.path()[10:])
    store.close()

    def count(table: str) -> int:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    with closing(connect(profile.database)) as connection:
        for table in ("conversations", "messages"):
            connection.execute(f"UPDATE {table} SET deleted_at = deleted_at - ?", (DELETED_KEPT_S,))
        assert tidy(connection)
        assert (count("conversations"), count("messages")) == (3, 64)
        slices = 1
        while tidy(connection):
            slices += 1
        assert slices > 3
        assert (count("conversations"), count("messages")) == (1, 10)
        assert count("search_documents") == 10
    store = Store(profile)
    assert contents(loaded(store, kept)) == [f"message {n}" for n in range(10)]
    store.close()
