"""The message tree."""

from __future__ import annotations

import pytest

from app.conversation import (
    ASSISTANT,
    USER,
    Conversation,
    Message,
    MessageStatus,
    UnknownMessageError,
    storable,
    system_prompt_key,
)
from engine.api.params import ChatMessage, TurnTokens

TURN = TurnTokens((1, 2, 3), (4, 5), 6, "f")


def answered(system_prompt: str = "Be brief.", pairs: int = 2) -> Conversation:
    """A conversation of question–answer pairs with their ids."""
    conversation = Conversation(system_prompt=system_prompt)
    for n in range(pairs):
        conversation.append(Message(USER, f"question {n}", created_at=float(2 * n)))
        conversation.append(
            Message(
                ASSISTANT,
                f"answer {n}",
                created_at=float(2 * n + 1),
                turn=TURN,
                system_prompt_key=system_prompt_key(system_prompt),
            )
        )
    return conversation


def contents(conversation: Conversation) -> list[str]:
    return [message.content for message in conversation.path()]


def test_path_runs_from_the_first_message_to_the_active_leaf() -> None:
    assert contents(answered()) == ["question 0", "answer 0", "question 1", "answer 1"]


def test_chat_messages_begin_with_the_system_prompt_and_carry_the_exact_ids() -> None:
    assert answered(pairs=1).chat_messages() == (
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "question 0"),
        ChatMessage("assistant", "answer 0", TURN),
    )


def test_an_answer_that_still_streams_goes_along_with_the_ids_that_have_come() -> None:
    conversation = answered(pairs=1)
    answer = conversation.path()[-1]
    answer.turn, answer.content = None, ""
    answer.begin_stream("f")
    answer.content, answer.streamed_ids = "Hel", [7, 8]
    assert conversation.chat_messages()[-1].turn == TurnTokens((), (7, 8), 3, "f")


def test_chat_messages_without_a_system_prompt_begin_with_the_user() -> None:
    assert answered("", pairs=1).chat_messages()[0] == ChatMessage("user", "question 0")


def test_exact_ids_of_another_system_prompt_are_left_out_and_come_back_with_it() -> None:
    conversation = answered("first")
    conversation.system_prompt = "second"
    assert [m.turn for m in conversation.chat_messages()] == [None] * 5
    conversation.system_prompt = "first"
    assert [m.turn for m in conversation.chat_messages()] == [None, None, TURN, None, TURN]


def test_chat_messages_up_to_a_question_leave_out_what_follows() -> None:
    conversation = answered()
    question = conversation.path()[2]
    assert [m.content for m in conversation.chat_messages(up_to=question.message_id)] == [
        "Be brief.",
        "question 0",
        "answer 0",
        "question 1",
    ]


def test_a_second_answer_is_a_sibling_and_becomes_the_shown_one() -> None:
    conversation = answered(pairs=1)
    first = conversation.path()[-1]
    second = conversation.insert(
        Message(ASSISTANT, "other", parent_id=first.parent_id, created_at=9.0)
    )
    assert conversation.siblings(first.message_id) == [first, second]
    assert contents(conversation) == ["question 0", "other"]


def test_newest_leaf_follows_the_newest_branch() -> None:
    conversation = answered()
    first, *_, last = conversation.path()
    assert conversation.newest_leaf(first.message_id) == last.message_id


def test_removing_the_leaf_shows_its_parent_again() -> None:
    conversation = answered(pairs=1)
    conversation.remove(conversation.path()[-1].message_id)
    assert contents(conversation) == ["question 0"]


def test_removing_one_version_shows_the_other() -> None:
    conversation = answered(pairs=1)
    first = conversation.path()[-1]
    second = conversation.insert(Message(ASSISTANT, "other", parent_id=first.parent_id))
    conversation.remove(second.message_id)
    assert contents(conversation) == ["question 0", "answer 0"]


def test_a_message_with_children_cannot_be_removed() -> None:
    conversation = answered()
    with pytest.raises(ValueError, match="followed by others"):
        conversation.remove(conversation.path()[0].message_id)


def test_an_unknown_parent_is_refused() -> None:
    with pytest.raises(UnknownMessageError):
        Conversation().insert(Message(USER, "x", parent_id="nobody"))


def test_heal_shows_the_newest_branch_when_the_leaf_is_lost() -> None:
    conversation = answered()
    conversation.active_leaf_id = "lost"
    assert conversation.heal()
    assert contents(conversation)[-1] == "answer 1"


def test_heal_marks_streaming_answers_as_interrupted() -> None:
    conversation = answered(pairs=1)
    conversation.path()[-1].status = MessageStatus.STREAMING
    assert conversation.heal()
    assert conversation.path()[-1].status is MessageStatus.INTERRUPTED


def test_heal_leaves_a_sound_conversation_alone() -> None:
    assert not answered().heal()
    assert not Conversation().heal()


def test_a_cycle_of_parents_does_not_hang_the_path() -> None:
    conversation = answered(pairs=1)
    question, answer = conversation.path()
    question.parent_id = answer.message_id
    assert len(conversation.path()) == 2


def test_a_fork_copies_the_branch_with_new_ids_and_the_same_tokens() -> None:
    conversation = answered()
    copy = conversation.fork(conversation.path()[1].message_id, number=7)
    assert contents(copy) == ["question 0", "answer 0"]
    assert copy.chat_messages() == conversation.chat_messages(conversation.path()[1].message_id)
    assert not set(copy.messages) & set(conversation.messages)
    assert (copy.number, copy.forked_from_id) == (7, conversation.conversation_id)


def test_a_fork_leaves_out_an_answer_that_is_still_streaming() -> None:
    conversation = answered()
    conversation.path()[-1].status = MessageStatus.STREAMING
    assert contents(conversation.fork(None, 2)) == ["question 0", "answer 0"]


def test_changing_a_fork_leaves_the_original_alone() -> None:
    conversation = answered()
    copy = conversation.fork(None, 2)
    copy.path()[-1].content = "changed"
    assert contents(conversation)[-1] == "answer 1"


def test_the_first_question_names_the_conversation_and_later_ones_do_not() -> None:
    conversation = Conversation()
    conversation.append(Message(USER, "First"))
    conversation.append(Message(USER, "Second"))
    assert conversation.title == "First"


def test_storable_replaces_what_no_encoder_takes() -> None:
    assert storable("a\ud800b") == "a?b"
    assert storable("é 你 😀") == "é 你 😀"
