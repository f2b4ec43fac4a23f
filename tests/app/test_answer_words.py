"""Facts of an answer in words."""

from __future__ import annotations

import pytest

from app.answer_facts import CONTINUED, Departure, why_not_repeat
from app.conversation import ASSISTANT, REPEATS, USER, Conversation, Message, MessageStatus
from app.session_state import RequestPhase, RequestState
from app.widgets.answer_words import departure_words, fact_sections, facts_text
from app.widgets.words import request_words, usage_words
from engine.api.events import RequestUsage
from engine.api.params import SamplingParams, TurnTokens

USAGE = RequestUsage(
    prompt_tokens=1200,
    cached_tokens=1184,
    computed_tokens=16,
    recomputed_tokens=640,
    output_tokens=48,
    ttft_s=0.12,
    queue_s=0.02,
    prefill_s=0.07,
    first_decode_s=0.03,
    total_s=1.7,
    tokens_per_s=31.44,
)


def told(**more: object) -> dict[str, str]:
    """The facts of one answer by name."""
    conversation = Conversation()
    conversation.append(Message(USER, "Why?"))
    answer = Message(ASSISTANT, "Because.", usage=USAGE, **more)  # type: ignore[arg-type]
    conversation.append(answer)
    sections = fact_sections(conversation, answer)
    return {name: value for section in sections for name, value in section.rows}


def test_time_to_the_first_text_is_told_in_its_parts() -> None:
    facts = told()
    assert facts["Waiting"] == "20 ms"
    assert facts["Reading the prompt"] == "70 ms"
    assert facts["First text after that"] == "30 ms"
    assert facts["In all to the first text"] == "120 ms"


def test_tokens_are_told_apart() -> None:
    facts = told()
    assert (facts["Prompt"], facts["From the cache"], facts["Computed"]) == ("1,200", "1,184", "16")
    assert facts["Recomputed after losing memory"] == "640"


def test_sampling_is_told_with_the_seed_that_was_used() -> None:
    params = SamplingParams(temperature=0.3, top_k=40, presence_penalty=0.5, stop=("END",))
    facts = told(params=params, seed=2**64 - 1)
    assert (facts["Temperature"], facts["Top-k"], facts["Top-p"]) == ("0.3", "40", "off")
    assert facts["Presence penalty"] == "0.5"
    assert "Frequency penalty" not in facts
    assert facts["Stop texts"] == "'END'"
    assert facts["Seed"] == "18446744073709551615"


def test_a_continued_answer_tells_both_counts() -> None:
    turn = TurnTokens((1,), tuple(range(100)), 8, "f")
    facts = told(turn=turn, facts={CONTINUED: 2})
    assert (facts["Answer"], facts["Of these in the last run"]) == ("100", "48")
    assert facts["Continued"] == "2 times"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"finish_reason": "stop"}, "By itself"),
        ({"finish_reason": "length", "limit": "max_tokens"}, "Ended at the answer's token limit"),
        ({"status": MessageStatus.STOPPED}, "Stopped by you"),
        ({"status": MessageStatus.INTERRUPTED}, "Interrupted: the program ended"),
        ({}, "Unknown"),
    ],
)
def test_the_end_is_explained(more: dict[str, object], words: str) -> None:
    assert told(**more)["Ended"] == words


def test_facts_are_copied_as_plain_text() -> None:
    conversation = Conversation()
    answer = conversation.append(Message(ASSISTANT, "Because.", usage=USAGE))
    text = facts_text(fact_sections(conversation, answer))
    assert "Tokens\n  Prompt: 1,200\n" in text


def test_tokens_computed_twice_are_in_the_quiet_line() -> None:
    assert usage_words(USAGE).endswith(" · 640 computed again")


def test_the_others_of_several_answers_wait_for_the_first() -> None:
    state = RequestState(RequestPhase.WAITING, reason="first_answer", waits_on="c")
    assert request_words(state, lambda _id: "Title").startswith("Waits for the first answer")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Departure(True), "Same text as version 1"),
        (Departure(True, is_cut=True), "Same text as version 1, as far as both go"),
        (Departure(False, 3, 12), "Departs from version 1 at token 3 (character 12)"),
        (Departure(False, 0, 12), "Departs from version 1 at character 12"),
    ],
)
def test_a_repeat_is_compared_in_words(found: Departure, words: str) -> None:
    assert departure_words(found, 1) == words


@pytest.mark.parametrize(("dtype", "explained"), [("bfloat16", True), ("float32", False)])
def test_why_a_repeat_may_differ_is_explained(dtype: str, explained: bool) -> None:
    conversation = Conversation()
    conversation.append(Message(USER, "Why?"))
    first = conversation.append(Message(ASSISTANT, "Because.", finish_reason="stop"))
    again = Message(ASSISTANT, "Why not?", first.parent_id, finish_reason="stop")
    again.facts = {REPEATS: first.message_id}
    conversation.insert(again)
    (made, *_) = fact_sections(conversation, again, dtype)
    assert ("Why" in dict(made.rows)) is explained


def test_a_system_prompt_that_is_not_known_is_not_said_to_have_changed() -> None:
    conversation = Conversation(system_prompt="Be brief.")
    conversation.append(Message(USER, "Why?"))
    answer = conversation.append(Message(ASSISTANT, "So.", params=SamplingParams(), seed=1))
    words = "Under which system prompt this answer was made is not known."
    assert why_not_repeat(conversation, answer, None) == words
