"""What a profile keeps beside the messages: labels, deleted things, system prompts, attachments."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.conversation import (
    ASSISTANT,
    Attachment,
    Conversation,
    Message,
    MessageStatus,
)
from app.paths import Profile
from app.store import Store
from app.store_prompts import SystemPrompt
from app.store_search import find_messages
from engine.api.params import SamplingParams, TurnTokens
from tests.helpers.stored import contents, loaded, saved


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path / "張 庭 é's dir")


@pytest.fixture
def store(profile: Profile) -> Iterator[Store]:
    store = Store(profile)
    yield store
    store.close()


def found(store: Store, query: str) -> list[str]:
    assert store.flush()
    with closing(sqlite3.connect(store.profile.database)) as connection:
        return [hit.message_id for hit in find_messages(connection, query).hits]


def test_a_stored_conversation_is_changed_without_loading_it(
    profile: Profile, store: Store
) -> None:
    conversation = saved(store, "question")
    params = SamplingParams(temperature=0.25)
    changed = store.change_conversation(
        conversation.conversation_id,
        title="Name",
        pinned=True,
        archived=True,
        folder="工作",
        tags=("a", "b"),
        params=params,
        prompt_id="p",
    )
    assert changed
    (summary,) = store.summaries()
    assert (summary.title, summary.pinned, summary.archived) == ("Name", True, True)
    assert (summary.folder, summary.tags) == ("工作", ("a", "b"))
    store.close()
    again = Store(profile)
    assert again.summaries() == [summary]
    stored = again.load_conversation(conversation.conversation_id)
    again.close()
    assert stored is not None
    assert (stored.title, stored.pinned, stored.archived) == ("Name", True, True)
    assert (stored.folder, stored.tags, stored.params) == ("工作", ("a", "b"), params)
    assert stored.prompt_id == "p"


def test_only_columns_of_a_stored_conversation_can_be_changed(store: Store) -> None:
    conversation = saved(store, "question")
    with pytest.raises(ValueError, match="no column"):
        store.change_conversation(conversation.conversation_id, colour="x")
    assert not store.change_conversation("nobody", pinned=True)


def test_summaries_know_what_is_still_being_written(store: Store) -> None:
    assert store.summaries() == []
    conversation = saved(store, "question")
    assert [s.title for s in store.summaries()] == ["question"]
    assert store.open_ids() == [conversation.conversation_id]
    store.delete_conversation(conversation.conversation_id)
    assert store.summaries() == []
    assert store.open_ids() == []


def test_a_deleted_conversation_can_be_brought_back(profile: Profile, store: Store) -> None:
    conversation = saved(store, "needle")
    key = conversation.conversation_id
    assert store.set_conversation_deleted(key)
    assert store.summaries() == []
    assert [s.conversation_id for s in store.summaries(deleted=True)] == [key]
    assert store.open_ids() == []
    assert found(store, "needle") == []
    store.close()
    again = Store(profile)
    assert (again.summaries(), again.open_ids()) == ([], [])
    assert again.set_conversation_deleted(key, False)
    assert again.open_ids() == [key]
    assert contents(loaded(again, conversation)) == ["needle"]
    assert found(again, "needle") == [conversation.active_leaf_id]
    again.close()


def test_deleted_messages_can_be_brought_back(store: Store) -> None:
    conversation = saved(store, "one", "two", "three needle", "four")
    branch = [m.message_id for m in conversation.path()[2:]]
    store.set_messages_deleted(branch)
    # Saving a message again, for whatever reason, does not bring it back.
    store.save_message(conversation.conversation_id, conversation.message(branch[0]))
    assert contents(loaded(store, conversation)) == ["one", "two"]
    assert found(store, "needle") == []
    store.set_messages_deleted(branch, False)
    stored = [message.content for message in loaded(store, conversation).messages.values()]
    assert stored == ["one", "two", "three needle", "four"]
    assert found(store, "needle") == [branch[0]]


def test_what_was_deleted_long_ago_goes_for_good(profile: Profile, store: Store) -> None:
    gone, kept, other = saved(store, "gone"), saved(store, "kept"), saved(store, "a", "b")
    store.set_conversation_deleted(gone.conversation_id)
    store.set_conversation_deleted(kept.conversation_id)
    store.set_messages_deleted([other.path()[1].message_id])
    store.close()
    with closing(sqlite3.connect(profile.database)) as connection:
        connection.execute("UPDATE conversations SET deleted_at = 1 WHERE title = 'gone'")
        connection.execute("UPDATE messages SET deleted_at = 1 WHERE deleted_at IS NOT NULL")
        connection.commit()
    again = Store(profile)
    deadline = time.monotonic() + 10.0
    rows = None
    with closing(sqlite3.connect(profile.database)) as connection:
        while rows != [("a",), ("kept",)]:
            assert time.monotonic() < deadline, rows
            time.sleep(0.01)
            rows = connection.execute("SELECT content FROM messages ORDER BY content").fetchall()
    assert [s.title for s in again.summaries(deleted=True)] == ["kept"]
    again.close()


def test_system_prompts_are_kept_with_one_default(profile: Profile, store: Store) -> None:
    assert store.prompts.default is None
    brief, poet = SystemPrompt("brief", "Be brief."), SystemPrompt("Anna", "诗人")
    store.prompts.save(brief)
    store.prompts.save(poet)
    store.prompts.set_default(poet.prompt_id)
    store.close()
    again = Store(profile)
    assert again.prompts.all() == [poet, brief]
    assert again.prompts.default == poet
    assert again.prompts.get(brief.prompt_id) == brief
    again.prompts.delete(poet.prompt_id)
    assert again.prompts.default is None
    again.prompts.save(SystemPrompt("brief", "Briefer.", brief.prompt_id))
    again.close()
    last = Store(profile)
    assert [prompt.text for prompt in last.prompts.all()] == ["Briefer."]
    last.close()


def test_attachments_of_a_draft_are_kept_in_order(profile: Profile, store: Store) -> None:
    conversation = saved(store, "question")
    store.save_attachments(
        conversation.conversation_id, [Attachment("", "x"), Attachment("b", "y")]
    )
    attachments = (Attachment("笔记.txt", "一"), Attachment("", "二"))
    store.save_attachments(conversation.conversation_id, attachments)
    store.close()
    again = Store(profile)
    assert loaded(again, conversation).attachments == attachments
    again.save_attachments(conversation.conversation_id, ())
    assert loaded(again, conversation).attachments == ()
    again.save_attachments(conversation.conversation_id, attachments)
    again.delete_conversation(conversation.conversation_id)
    errors: list[object] = []
    again.on_error = errors.append
    assert again.flush()
    assert errors == []
    again.close()


def test_a_growing_answer_is_stored_with_its_exact_ids(store: Store) -> None:
    conversation = saved(store, "question")
    answer = conversation.append(Message(ASSISTANT, "", status=MessageStatus.STREAMING))
    store.save_message(conversation.conversation_id, answer)
    store.save_conversation(conversation)
    answer.turn = TurnTokens((1, 2), (), 0, "print")
    answer.content, answer.streamed_ids = "seven", [7]
    store.save_partial(answer)
    # What comes after the call belongs to text that is not there yet.
    answer.streamed_ids.append(70_000)
    stored = loaded(store, conversation).path()[-1]
    assert (stored.content, stored.turn) == ("seven", TurnTokens((1, 2), (7,), 5, "print"))


def test_a_fork_takes_along_how_its_answers_are_made() -> None:
    original = Conversation(params=SamplingParams(top_k=3), prompt_id="p", folder="f", tags=("t",))
    copy = original.fork(None, 2)
    assert (copy.params, copy.prompt_id) == (original.params, "p")
    assert (copy.folder, copy.tags) == ("f", ("t",))
