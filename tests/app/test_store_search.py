"""Messages are found by what they say, in step with every change, in old profiles too."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.conversation import ASSISTANT, USER, Conversation, Message, MessageStatus
from app.paths import Profile
from app.store import Store
from app.store_search import MAX_HITS, SearchResult, find_messages
from app.store_writer import StoreWriter
from tests.helpers.stored import back_to_schema_3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(Profile(tmp_path / "張 庭 é's dir"))
    yield made
    made.close()


def saved(store: Store, *texts: str, title: str = "A title") -> Conversation:
    """A stored conversation with these messages, one below the other."""
    conversation = Conversation(title=title)
    for number, text in enumerate(texts):
        conversation.append(Message(USER if number % 2 == 0 else ASSISTANT, text))
    store.save_conversation(conversation)
    for message in conversation.path():
        store.save_message(conversation.conversation_id, message)
    assert store.flush()
    return conversation


def look_up(store: Store, query: str) -> SearchResult:
    assert store.flush()
    with closing(sqlite3.connect(store.profile.database)) as connection:
        return find_messages(connection, query)


def found(store: Store, query: str) -> list[str]:
    """Message ids, the newest first."""
    return [hit.message_id for hit in look_up(store, query).hits]


def terms(store: Store) -> int:
    """How many places the index names."""
    with closing(sqlite3.connect(store.profile.database)) as connection:
        connection.execute("CREATE VIRTUAL TABLE temp.v USING fts5vocab (main, search, instance)")
        return int(connection.execute("SELECT count(*) FROM temp.v").fetchone()[0])


@pytest.mark.parametrize(
    "query",
    [
        *("缓", "存", "缓存", "存块", "缓存块表", "块表", "表"),
        *(
            "q",
            "z",
            "qz",
            "Zebra",
            "ZEBRA",
            "ebr",
            "ra",
            "zebra 缓存",
            "a 表",
            "%",
            "_x",
            '"',
            "🦓",
        ),
    ],
)
def test_a_message_is_found_by_any_part_of_it(store: Store, query: str) -> None:
    conversation = saved(store, 'Why qz? _x "100%" 🦓 zebra 缓存块表', "nothing")
    assert found(store, query) == [conversation.path()[0].message_id]


@pytest.mark.parametrize(
    "query", ["", "  ", "缓块", "鑫", "xq", "zebras", "zebra 鑫", "*", "OR", "%b"]
)
def test_what_no_message_says_is_not_found(store: Store, query: str) -> None:
    saved(store, "zebra 缓存块表")
    assert look_up(store, query) == SearchResult(query)


def test_short_words_are_found_far_behind_the_newest_messages(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store_search._NEWEST", 2)
    old = saved(store, "这是缓存", "ends with qz")
    saved(store, *["other words"] * 5)
    question, answer = (m.message_id for m in old.path())
    assert found(store, "缓存") == [question]
    assert found(store, "存") == [question]
    assert found(store, "z") == [answer]
    assert found(store, "这 缓存") == [question]
    assert found(store, "这 qz") == []


def test_what_is_not_looked_at_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.store_search._NEWEST", 2)
    saved(store, *["缓缓缓"] * 5, "x", "x")
    assert look_up(store, "缓").is_complete
    monkeypatch.setattr("app.store_search._MAX_PLACES", 3)
    assert not look_up(store, "缓").is_complete


def test_the_newest_hits_come_first_and_not_too_many(store: Store) -> None:
    conversation = saved(store, *[f"needle {n}" for n in range(MAX_HITS + 5)])
    newest = [m.message_id for m in reversed(conversation.path())][:MAX_HITS]
    assert found(store, "needle") == newest
    assert found(store, "n") == newest


def test_a_hit_tells_where_it_is(store: Store) -> None:
    conversation = saved(
        store, "first", f"{'before ' * 20}the Needle\u202e\n{'after ' * 40}", title="T"
    )
    (hit,) = look_up(store, "needle").hits
    assert (hit.conversation_id, hit.title) == (conversation.conversation_id, "T")
    assert (hit.message_id, hit.role) == (conversation.active_leaf_id, ASSISTANT)
    assert [hit.snippet[a:b] for a, b in hit.marks] == ["Needle"]
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet) < 140
    assert hit.snippet.isprintable()


def test_a_snippet_keeps_what_joins_letters_and_emoji(store: Store) -> None:
    saved(store, "👩\u200d🚀 می\u200cخواهم")
    (hit,) = look_up(store, "می\u200cخواهم").hits
    assert hit.snippet == "👩\u200d🚀 می\u200cخواهم"
    assert [hit.snippet[a:b] for a, b in hit.marks] == ["می\u200cخواهم"]


def test_a_snippet_begins_with_a_whole_word(store: Store) -> None:
    saved(store, f"{'wonderful ' * 9}needle")
    (hit,) = look_up(store, "needle").hits
    assert hit.snippet == "…wonderful wonderful needle"


def test_messages_from_elsewhere_are_found_in_the_order_of_their_times(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store_search.MAX_HITS", 2)
    conversations = []
    for moment in (300.0, 100.0, 200.0):
        conversation = Conversation()
        conversation.append(Message(USER, f"needle {moment}", created_at=moment))
        conversations.append(conversation)
    store.add_conversations(conversations)
    wait_until_indexed(store)
    assert [hit.created_at for hit in look_up(store, "needle").hits] == [300.0, 200.0]


def test_a_changed_message_is_found_by_its_new_text_only(store: Store) -> None:
    conversation = saved(store, "old words", "answer")
    message = conversation.path()[0]
    message.content = "新的内容"
    store.save_message(conversation.conversation_id, message)
    assert found(store, "old words") == []
    assert found(store, "新的") == [message.message_id]
    # Another figure alone changes nothing.
    before = terms(store)
    message.model = "other"
    store.save_message(conversation.conversation_id, message)
    assert found(store, "新的") == [message.message_id]
    assert terms(store) == before


def test_a_streamed_answer_is_found_when_it_has_ended(store: Store) -> None:
    conversation = saved(store, "question")
    answer = conversation.append(Message(ASSISTANT, "", status=MessageStatus.STREAMING))
    store.save_message(conversation.conversation_id, answer)
    answer.content = "partial"
    store.save_partial(answer)
    assert found(store, "partial") == []
    answer.content, answer.status = "partial and whole", MessageStatus.DONE
    store.save_message(conversation.conversation_id, answer)
    assert found(store, "partial") == [answer.message_id]
    # It is continued.
    answer.status = MessageStatus.STREAMING
    store.save_message(conversation.conversation_id, answer)
    assert found(store, "partial") == []
    answer.content, answer.status = "partial and more", MessageStatus.STOPPED
    store.save_message(conversation.conversation_id, answer)
    assert found(store, "whole") == []
    assert found(store, "more") == [answer.message_id]


def test_an_answer_that_a_crash_cut_is_found(tmp_path: Path) -> None:
    profile = Profile(tmp_path)
    store = Store(profile)
    conversation = saved(store, "question")
    answer = conversation.append(Message(ASSISTANT, "cut", status=MessageStatus.STREAMING))
    store.save_message(conversation.conversation_id, answer)
    store.close()
    store = Store(profile)
    assert found(store, "cut") == [answer.message_id]
    store.close()


def test_what_is_deleted_leaves_nothing_in_the_index(store: Store) -> None:
    kept = saved(store, "a needle that stays")
    before = terms(store)
    gone = saved(store, "a needle", "below it 缓存", "and below that")
    store.delete_message(gone.path()[0].message_id)
    assert found(store, "needle") == [kept.path()[0].message_id]
    assert found(store, "缓存") == []
    assert terms(store) == before
    store.delete_conversation(kept.conversation_id)
    assert found(store, "needle") == []
    assert terms(store) == 0


def test_many_conversations_are_added_at_once_or_not_at_all(store: Store) -> None:
    good = Conversation(title="good")
    good.append(Message(USER, "needle"))
    bad = Conversation(title="bad")
    bad.append(Message("narrator", "no such role"))
    errors: list[str] = []
    store.on_error = lambda error: errors.append(error.code)
    store.add_conversations([good, bad])
    assert found(store, "needle") == []
    assert store.summaries() == []
    assert errors == ["store_write"]
    bad.path()[0].role = USER
    store.add_conversations([good, bad])
    wait_until_indexed(store)
    assert found(store, "needle") == [good.active_leaf_id]
    # Indexed once.
    store.delete_conversation(good.conversation_id)
    store.delete_conversation(bad.conversation_id)
    assert found(store, "needle") == []
    assert terms(store) == 0


# --- profiles of before there was an index ---


def without_index(store: Store) -> None:
    """Closes the store and makes its profile one of version 2."""
    store.close()
    with closing(sqlite3.connect(store.profile.database)) as connection:
        back_to_schema_3(connection)
        for name in ("added", "changed", "reopened", "removed"):
            connection.execute(f"DROP TRIGGER search_{name}")
        connection.execute("DROP TABLE search")
        connection.execute("DROP TABLE search_documents")
        connection.execute("PRAGMA user_version = 2")


def wait_until_indexed(store: Store) -> None:
    deadline = time.monotonic() + 10.0
    while not look_up(store, "x").is_complete:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_old_profile_is_indexed_in_slices_after_it_was_opened(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store_search._SLICE_MESSAGES", 2)
    conversation = saved(store, *[f"needle 缓存 {n}" for n in range(7)])
    without_index(store)
    store = Store(store.profile)
    assert store.problems == []
    wait_until_indexed(store)
    newest_first = [m.message_id for m in reversed(conversation.path())]
    assert found(store, "needle") == newest_first
    assert (store.profile.data_dir / "conversations.schema-2.sqlite3").exists()
    places = terms(store)
    # The same as if it had been there from the start.
    conversation.path()[0].content = "changed"
    store.save_message(conversation.conversation_id, conversation.path()[0])
    assert found(store, "needle") == newest_first[:-1]
    store.delete_conversation(conversation.conversation_id)
    assert found(store, "changed") == []
    assert (places > 0, terms(store)) == (True, 0)
    store.close()


def test_messages_may_change_before_they_are_indexed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = saved(store, "one 缓存", "two", "three")
    without_index(store)
    monkeypatch.setattr("app.store_jobs.index_slice", lambda _connection: False)
    waiting = Store(store.profile)
    assert not look_up(waiting, "three").is_complete
    first, second, third = conversation.path()
    second.content = "changed"
    waiting.save_message(conversation.conversation_id, second)
    waiting.delete_message(third.message_id)
    assert found(waiting, "changed") == [second.message_id]
    assert waiting.close()
    monkeypatch.undo()
    store = Store(store.profile)
    wait_until_indexed(store)
    assert found(store, "changed") == [second.message_id]
    assert found(store, "缓存") == [first.message_id]
    assert found(store, "three") == []
    store.delete_conversation(conversation.conversation_id)
    assert found(store, "one") == []
    assert terms(store) == 0
    store.close()


def test_a_damaged_index_keeps_nothing_from_being_saved(store: Store) -> None:
    conversation = saved(store, "needle 缓存", "answer")
    with closing(sqlite3.connect(store.profile.database)) as connection:
        connection.execute("UPDATE search_data SET block = x'ffffffffffffffff'")
        connection.commit()
    errors: list[object] = []
    store.on_error = errors.append
    added = conversation.append(Message(USER, "another needle"))
    store.save_message(conversation.conversation_id, added)
    assert store.flush()
    assert errors == []
    wait_until_indexed(store)
    assert found(store, "needle") == [added.message_id, conversation.path()[0].message_id]
    assert found(store, "缓存") == [conversation.path()[0].message_id]


def test_writing_goes_before_work_in_the_background(tmp_path: Path) -> None:
    done: list[str] = []

    def idle(_connection: sqlite3.Connection) -> bool:
        done.append("idle")
        time.sleep(0.005)
        return True

    writer = StoreWriter(
        lambda: sqlite3.connect(tmp_path / "x", isolation_level=None, check_same_thread=False),
        lambda _error: None,
        lambda: None,
        idle,
    )
    writer.put(("job", "1"), lambda _connection: done.append("job"))
    assert writer.flush(2.0)
    assert "job" in done
    assert writer.close(2.0)


def test_an_error_in_the_background_ends_it_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[object] = []

    def idle(connection: sqlite3.Connection) -> bool:
        connection.execute("SELECT * FROM nowhere")
        return True

    writer = StoreWriter(
        lambda: sqlite3.connect(tmp_path / "x", isolation_level=None, check_same_thread=False),
        errors.append,
        lambda: None,
        idle,
    )
    writer.put(("job", "1"), lambda connection: connection.execute("CREATE TABLE t (x)") and None)
    assert writer.flush(2.0)
    assert writer.close(2.0)
    assert errors == []
    assert "nowhere" in caplog.text
