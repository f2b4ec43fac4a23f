"""Conversations on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.conversation import ASSISTANT, USER, Conversation, Message, MessageStatus
from app.paths import Profile
from app.store import Store
from app.store_rows import pack_ids, unpack_ids
from app.store_schema import connect
from engine.api.errors import ErrorInfo
from engine.api.events import RequestUsage
from engine.api.params import OverflowPolicy, SamplingParams, TurnTokens
from tests.helpers.stored import contents, loaded, saved


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path / "張 庭 é's dir")


@pytest.fixture
def store(profile: Profile) -> Iterator[Store]:
    store = Store(profile)
    yield store
    store.close()


def test_a_message_comes_back_with_everything(store: Store) -> None:
    conversation = saved(store, "question")
    answer = Message(
        ASSISTANT,
        "Grüße 你好 😀\x00 end",
        status=MessageStatus.ERROR,
        turn=TurnTokens((1, 2, 70_000), (3,), 5, "print"),
        usage=RequestUsage(prompt_tokens=9, ttft_s=0.25),
        error=ErrorInfo("code", "cause", "action", (("blocks", 3), ("name", "x"))),
        params=SamplingParams(temperature=0.5, stop=("a", "b")),
        seed=2**64 - 1,
        model="m",
        finish_reason="error",
        limit="pool",
        system_prompt_key="key",
        num_dropped=4,
    )
    conversation.append(answer)
    store.save_message(conversation.conversation_id, answer)
    store.save_conversation(conversation)
    found = loaded(store, conversation).path()[-1]
    for name in Message.__dataclass_fields__:
        assert getattr(found, name) == getattr(answer, name), name


def test_a_conversation_comes_back_with_everything(profile: Profile, store: Store) -> None:
    conversation = saved(store, "question", "answer")
    conversation.title, conversation.title_is_automatic = "Name", False
    conversation.number, conversation.draft = 5, "half a thought"
    conversation.forked_from_id, conversation.is_open = "other", False
    conversation.overflow = OverflowPolicy.DROP_OLDEST
    store.save_conversation(conversation)
    store.close()
    again = Store(profile)
    found = again.load_conversation(conversation.conversation_id)
    again.close()
    assert found is not None
    for name in set(Conversation.__dataclass_fields__) - {"messages"}:
        assert getattr(found, name) == getattr(conversation, name), name
    assert contents(found) == ["question", "answer"]


def test_versions_of_an_answer_are_both_kept(store: Store) -> None:
    conversation = saved(store, "question", "first")
    other = Message(ASSISTANT, "second", parent_id=conversation.path()[0].message_id)
    conversation.insert(other)
    store.save_message(conversation.conversation_id, other)
    store.save_conversation(conversation)
    found = loaded(store, conversation)
    assert [m.content for m in found.siblings(other.message_id)] == ["first", "second"]
    assert contents(found) == ["question", "second"]


@pytest.mark.parametrize("ids", [(), (0,), (1, 65_535), (1, 65_536), tuple(range(3000))])
def test_token_ids_are_packed_without_loss(ids: tuple[int, ...]) -> None:
    assert unpack_ids(pack_ids(ids)) == ids


def test_token_ids_of_a_small_vocabulary_take_two_bytes_each() -> None:
    assert len(pack_ids(range(49_152))) == 1 + 2 * 49_152


@pytest.mark.parametrize("blob", [b"", b"\x03abc", b"\x02a"])
def test_bytes_that_are_no_token_ids_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match="not packed"):
        unpack_ids(blob)


def test_a_row_that_cannot_be_read_whole_keeps_its_text(profile: Profile, store: Store) -> None:
    conversation = saved(store, "question", "answer")
    store.flush()
    connection = connect(profile.database)
    connection.execute(
        "UPDATE messages SET usage = '{\"new\": 1}', params = '{}', prompt_ids = x'09'"
    )
    connection.execute("UPDATE messages SET output_ids = x'', error = '[]', status = 'dreaming'")
    connection.close()
    assert contents(loaded(store, conversation)) == ["question", "answer"]


def test_a_partial_answer_is_written_within_a_second(profile: Profile, store: Store) -> None:
    conversation = saved(store, "question")
    answer = conversation.append(Message(ASSISTANT, "", status=MessageStatus.STREAMING))
    store.save_message(conversation.conversation_id, answer)
    store.flush()
    reader = connect(profile.database)
    query = "SELECT content FROM messages WHERE message_id = ?"
    writes = set()
    start = time.monotonic()
    while time.monotonic() - start < 1.6:
        answer.content += "x"
        store.save_partial(answer)
        time.sleep(0.01)
        writes.add(reader.execute(query, (answer.message_id,)).fetchone()[0])
    reader.close()
    assert 3 <= len(writes) <= 5
    assert len(answer.content) - max(map(len, writes)) <= 100


def test_one_job_at_fault_does_not_hold_up_the_others(store: Store) -> None:
    errors: list[str] = []
    store.on_error = lambda error: errors.append(str(error))
    orphan = Message(USER, "x")
    store.save_message("no such conversation", orphan)
    assert contents(loaded(store, saved(store, "fine"))) == ["fine"]
    assert len(errors) == 1
    assert "FOREIGN KEY" in errors[0]


def test_deleting_a_conversation_takes_queued_messages_with_it(
    profile: Profile, store: Store
) -> None:
    errors: list[str] = []
    store.on_error = lambda error: errors.append(str(error))
    conversation = saved(store, "question", "answer")
    store.delete_conversation(conversation.conversation_id)
    assert store.flush()
    assert store.load_conversation(conversation.conversation_id) is None
    reader = connect(profile.database)
    assert reader.execute("SELECT count(*) FROM messages").fetchone()[0] == 0
    reader.close()
    assert errors == []


def test_deleting_messages_leaves_the_rest(store: Store) -> None:
    conversation = saved(store, "one", "two", "three", "four")
    for message in reversed(conversation.path()[2:]):
        store.delete_message(message.message_id)
    assert [m.content for m in loaded(store, conversation).messages.values()] == ["one", "two"]


def test_a_lost_leaf_is_healed_on_loading(profile: Profile, store: Store) -> None:
    conversation = saved(store, "question", "answer")
    conversation.active_leaf_id = "lost"
    store.save_conversation(conversation)
    assert contents(loaded(store, conversation)) == ["question", "answer"]
    assert contents(loaded(store, conversation)) == ["question", "answer"]


def test_summaries_list_the_latest_used_first(store: Store) -> None:
    conversations = [saved(store, f"q{n}") for n in range(3)]
    for n, conversation in enumerate(conversations):
        conversation.updated_at = float(10 - n)
        store.save_conversation(conversation)
    store.flush()
    assert [s.title for s in store.summaries()] == ["q0", "q1", "q2"]


def test_small_texts_of_the_window_survive(profile: Profile, store: Store) -> None:
    store.set_state("geometry", "AAAA")
    store.set_state("geometry", "BBBB")
    assert store.state("geometry") == "BBBB"
    store.close()
    again = Store(profile)
    assert (again.state("geometry"), again.state("nothing")) == ("BBBB", "")
    again.close()


def test_an_idle_store_runs_nothing(store: Store) -> None:
    saved(store, "x")
    store.flush()
    before = store.writes
    time.sleep(1.2)
    assert store.writes == before


def test_what_belongs_together_is_written_in_one_transaction(
    profile: Profile, store: Store
) -> None:
    conversation = saved(store, "one", "two")
    store.flush()
    before = store.writes
    reader = connect(profile.database)
    with store.together():
        for number in range(20):
            store.set_state("name", str(number))
            message = conversation.append(Message(USER, f"message {number}"))
            store.save_message(conversation.conversation_id, message)
            time.sleep(0.002)
        assert reader.execute("SELECT count(*) FROM messages").fetchone()[0] == 2
    assert store.flush()
    assert reader.execute("SELECT count(*) FROM messages").fetchone()[0] == 22
    reader.close()
    assert store.writes == before + 1


def test_messages_below_what_is_gone_move_up_to_what_is_there(
    profile: Profile, store: Store
) -> None:
    conversation = saved(store, "one", "two", "three", "four", "five")
    first, second, third, fourth, fifth = conversation.path()
    # As if the process had been killed between the two halves of an undo.
    store.set_messages_deleted([second.message_id, third.message_id])
    found = loaded(store, conversation)
    assert contents(found) == ["one", "four", "five"]
    assert found.messages[fourth.message_id].parent_id == first.message_id
    # It is stored so; nothing is below something deleted any more.
    store.set_messages_deleted([first.message_id])
    found = loaded(store, conversation)
    assert contents(found) == ["four", "five"]
    assert found.messages[fifth.message_id].parent_id == fourth.message_id
