"""A damaged database gives what can still be read of it to the one that is begun anew."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.conversation import Attachment
from app.paths import Profile
from app.store import Store
from app.store_prompts import SystemPrompt
from tests.helpers.stored import contents, loaded, saved


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path / "張 庭 é's dir")


def root_page(profile: Profile, name: str) -> int:
    """The first page of a table or an index."""
    with closing(sqlite3.connect(profile.database)) as database:
        return database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)
        ).fetchone()[0]


def overwrite(profile: Profile, page: int) -> None:
    with closing(sqlite3.connect(profile.database)) as database:
        size = database.execute("PRAGMA page_size").fetchone()[0]
    with profile.database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def test_a_damaged_index_costs_nothing_but_a_notice(profile: Profile) -> None:
    store = Store(profile)
    conversation = saved(store, "needle 缓存", "answer", "more")
    other = saved(store, "other")
    store.save_attachments(conversation.conversation_id, [Attachment("a.txt", "text")])
    store.prompts.save(SystemPrompt("name", "text"))
    store.set_state("window.geometry", "kept")
    store.set_messages_deleted([conversation.path()[-1].message_id])
    store.close()
    overwrite(profile, root_page(profile, "messages_by_conversation"))
    store = Store(profile)
    (problem,) = store.problems
    assert problem.code == "store_damaged"
    assert "4 messages could be taken over" in problem.message
    assert len(store.summaries()) == 2
    assert contents(loaded(store, conversation)) == ["needle 缓存", "answer"]
    assert loaded(store, conversation).attachments == (Attachment("a.txt", "text"),)
    assert contents(loaded(store, other)) == ["other"]
    assert [prompt.name for prompt in store.prompts.all()] == ["name"]
    assert store.state("window.geometry") == "kept"
    store.close()
    again = Store(profile)
    assert again.problems == []
    again.close()
    with closing(sqlite3.connect(profile.database)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_what_can_be_read_of_a_torn_table_is_there(profile: Profile) -> None:
    store = Store(profile)
    conversation = saved(store, *(f"message {n} " + "x" * 3000 for n in range(60)))
    store.close()
    # One page in the middle of the table: what stands before and behind it can be read.
    overwrite(profile, profile.database.read_bytes().index(b"message 30 xxx") // 4096 + 1)
    store = Store(profile)
    assert [problem.code for problem in store.problems] == ["store_damaged"]
    found = loaded(store, conversation)
    there = {message.content.split(" x")[0] for message in found.messages.values()}
    assert {"message 0", "message 28", "message 32", "message 59"} <= there
    assert "message 30" not in there
    assert len(found.path()) > 25
    store.close()


def test_messages_without_their_conversation_get_another(profile: Profile) -> None:
    store = Store(profile)
    conversation = saved(store, "needle", "answer")
    store.close()
    overwrite(profile, root_page(profile, "conversations"))
    store = Store(profile)
    (summary,) = store.summaries()
    assert summary.conversation_id == conversation.conversation_id
    assert contents(loaded(store, conversation)) == ["needle", "answer"]
    store.close()


def test_a_database_on_a_share_gives_back_what_it_has(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SQLite takes no address that names a server.
    monkeypatch.setattr(
        Path, "as_uri", lambda path: f"file://server{path.as_posix()}", raising=False
    )
    store = Store(profile)
    conversation = saved(store, "needle", "answer")
    store.close()
    overwrite(profile, root_page(profile, "messages_by_conversation"))
    store = Store(profile)
    assert "2 messages could be taken over" in store.problems[0].message
    assert contents(loaded(store, conversation)) == ["needle", "answer"]
    store.close()
