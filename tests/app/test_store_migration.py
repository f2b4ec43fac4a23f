"""Profiles of earlier versions open, and stay as they were in a copy."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.app_error import DataDirectoryError
from app.conversation import ASSISTANT, USER, Conversation, Message
from app.paths import Profile
from app.store import Store
from app.store_prompts import SystemPrompt
from app.store_rows import conversation_row, message_row
from app.store_schema import APPLICATION_ID, SCHEMA_VERSION, connect
from app.store_search import find_messages
from engine.api.params import OverflowPolicy
from tests.helpers.stored import back_to_schema_3, saved

# As version 1 wrote it; never to be changed.
SCHEMA_1 = """
CREATE TABLE conversations (
    conversation_id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    title_is_automatic INTEGER NOT NULL,
    number INTEGER NOT NULL,
    system_prompt TEXT NOT NULL,
    is_open INTEGER NOT NULL,
    active_leaf_id TEXT,
    forked_from_id TEXT NOT NULL,
    draft TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE TABLE messages (
    message_id TEXT PRIMARY KEY,
    conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED,
    parent_id TEXT REFERENCES messages ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    content TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at REAL NOT NULL,
    prompt_ids BLOB,
    output_ids BLOB,
    covered_chars INTEGER,
    fingerprint TEXT,
    usage TEXT,
    error TEXT,
    params TEXT,
    seed TEXT,
    model TEXT NOT NULL,
    finish_reason TEXT NOT NULL,
    length_limit TEXT NOT NULL,
    system_prompt_key TEXT NOT NULL
);
CREATE INDEX messages_by_conversation ON messages (conversation_id);
CREATE INDEX messages_by_parent ON messages (parent_id);
CREATE INDEX messages_streaming ON messages (status) WHERE status = 'streaming';
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path / "張 庭 é's dir")


def old_profile(profile: Profile) -> Conversation:
    """A profile of version 1 with one conversation of two messages."""
    profile.data_dir.mkdir(parents=True)
    conversation = Conversation(system_prompt="Be brief.", draft="a draft")
    conversation.append(Message(USER, "question"))
    conversation.append(Message(ASSISTANT, "answer"))
    rows = [message_row(conversation.conversation_id, m)[:19] for m in conversation.path()]
    with closing(connect(profile.database)) as connection:
        connection.executescript(SCHEMA_1)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        marks = ", ".join("?" * 11)
        row = conversation_row(conversation)[:11]
        connection.execute(f"INSERT INTO conversations VALUES ({marks})", row)
        connection.executemany(f"INSERT INTO messages VALUES ({', '.join('?' * 19)})", rows)
        connection.execute("INSERT INTO state VALUES ('window.geometry', 'kept')")
    return conversation


def kept_copy(profile: Profile) -> Path:
    return profile.data_dir / "conversations.schema-1.sqlite3"


def tables(database: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(database)) as connection:
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name in ("conversations", "messages", "state")
        }


def test_an_old_profile_opens_with_everything_in_it(profile: Profile) -> None:
    old = old_profile(profile)
    store = Store(profile)
    assert store.problems == []
    found = store.load_conversation(old.conversation_id)
    assert found is not None
    assert [m.content for m in found.path()] == ["question", "answer"]
    assert (found.draft, found.overflow) == ("a draft", OverflowPolicy.STOP)
    assert [m.num_dropped for m in found.path()] == [0, 0]
    assert store.state("window.geometry") == "kept"
    # And it can be written.
    found.overflow = OverflowPolicy.DROP_OLDEST
    store.save_conversation(found)
    assert store.flush()
    again = store.load_conversation(old.conversation_id)
    assert again is not None
    assert again.overflow is OverflowPolicy.DROP_OLDEST
    store.close()


def test_what_was_there_before_stays_in_a_copy(profile: Profile) -> None:
    old_profile(profile)
    before = tables(profile.database)
    Store(profile).close()
    assert tables(kept_copy(profile)) == before
    with closing(sqlite3.connect(kept_copy(profile))) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 1
    with closing(sqlite3.connect(profile.database)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    assert not list(profile.data_dir.glob("*.partial*"))


def test_a_profile_of_this_version_is_not_copied(profile: Profile) -> None:
    Store(profile).close()
    Store(profile).close()
    assert not list(profile.data_dir.glob("*.schema-*"))


def test_old_and_new_profiles_have_the_same_tables(profile: Profile, tmp_path: Path) -> None:
    old_profile(profile)
    fresh = Profile(tmp_path / "fresh")
    Store(profile).close()
    Store(fresh).close()
    columns = []
    for database in (profile.database, fresh.database):
        with closing(sqlite3.connect(database)) as connection:
            columns.append(
                [
                    connection.execute(f"PRAGMA table_info({name})").fetchall()
                    for name in ("conversations", "messages", "state")
                ]
            )
    assert columns[0] == columns[1]


def test_an_old_profile_that_cannot_be_copied_is_shown_and_left_as_it_is(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = old_profile(profile)
    before = tables(profile.database)
    is_full = True

    def refuse(source: object, target: object) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        Path(str(source)).rename(str(target))

    monkeypatch.setattr("app.store_schema.replace_file", refuse)
    monkeypatch.setattr("app.store_writer.RETRY_INTERVAL_S", 0.05)
    store = Store(profile)
    assert [problem.code for problem in store.problems] == ["store_write"]
    found = store.load_conversation(old.conversation_id)
    assert found is not None
    assert [m.content for m in found.path()] == ["question", "answer"]
    assert tables(profile.database) == before
    # There is space again: what was kept back is written, after the copy.
    found.draft = "another draft"
    store.save_conversation(found)
    assert not store.flush(0.3)
    is_full = False
    assert store.flush()
    assert kept_copy(profile).exists()
    again = store.load_conversation(old.conversation_id)
    assert again is not None
    assert again.draft == "another draft"
    store.close()


def profile_of_version_3(profile: Profile) -> Conversation:
    """A profile with one conversation, from before there were labels and system prompts."""
    store = Store(profile)
    conversation = saved(store, "needle", "answer")
    store.close()
    with closing(sqlite3.connect(profile.database)) as connection:
        back_to_schema_3(connection)
    return conversation


def test_a_profile_of_version_3_keeps_everything_and_can_be_labelled(profile: Profile) -> None:
    old = profile_of_version_3(profile)
    store = Store(profile)
    assert store.problems == []
    (summary,) = store.summaries()
    assert (summary.title, summary.pinned, summary.folder, summary.tags) == (
        "needle",
        False,
        "",
        (),
    )
    found = store.load_conversation(old.conversation_id)
    assert found is not None
    assert [(m.content, m.facts) for m in found.path()] == [("needle", {}), ("answer", {})]
    store.change_conversation(old.conversation_id, pinned=True, tags=("t",))
    store.prompts.save(SystemPrompt("name", "text"))
    assert store.flush()
    with closing(sqlite3.connect(profile.database)) as connection:
        assert [hit.snippet for hit in find_messages(connection, "needle").hits] == ["needle"]
    store.close()
    again = Store(profile)
    assert [(s.pinned, s.tags) for s in again.summaries()] == [(True, ("t",))]
    assert [prompt.name for prompt in again.prompts.all()] == ["name"]
    again.close()
    assert (profile.data_dir / "conversations.schema-3.sqlite3").exists()


def test_a_migration_that_breaks_off_is_done_by_the_next_start(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = profile_of_version_3(profile)
    script = "BEGIN IMMEDIATE; ALTER TABLE messages ADD COLUMN deleted_at REAL; SELECT nothing;"
    monkeypatch.setattr("app.store_schema._MIGRATIONS", {3: script})
    with pytest.raises(DataDirectoryError):
        Store(profile)
    monkeypatch.undo()
    store = Store(profile)
    found = store.load_conversation(old.conversation_id)
    store.close()
    assert found is not None
    assert [message.content for message in found.path()] == ["needle", "answer"]
