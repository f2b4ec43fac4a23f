"""What the model reads of a conversation that outgrows its context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.errors import InvalidValueError, MessageTooLongError
from engine.api.params import ChatMessage, ContextCut, ContextPolicy, OverflowPolicy
from engine.context_policy import FittedPrompt, fit_prompt, kept_messages
from tests.helpers.fake_loaded import INFO
from tests.helpers.tiny_chat import START_ID, answer, chatml, system, tiny_encoder, user
from tests.helpers.tiny_tokenizer import END_ID, byte_ids, tiny_tokenizer

CONTEXT = 400


def engine_of(context: int = CONTEXT, pool: int = 100_000) -> Any:
    """What the policy needs of an engine; ``encoded`` counts the encodings."""
    encoder = tiny_encoder()
    encode = encoder.encode
    engine = SimpleNamespace(encoder=encoder, encoded=0)
    engine.info = replace(INFO, context_length=context, num_blocks=pool // 8, block_size=8)

    def counted(*args: Any, **named: Any) -> Any:
        engine.encoded += 1
        return encode(*args, **named)

    encoder.encode = counted  # type: ignore[method-assign]
    return engine


def dropping(num_dropped: int = 0) -> ContextPolicy:
    return ContextPolicy(OverflowPolicy.DROP_OLDEST, num_dropped)


class Chat:
    """A conversation that keeps its cut, as the application does."""

    def __init__(self, engine: Any, *messages: ChatMessage) -> None:
        self.engine, self.messages, self.cut = engine, list(messages), ContextCut()
        self.tokenizer = tiny_tokenizer()

    def turn(self, text: str, reply: str) -> FittedPrompt:
        self.messages.append(user(text))
        fitted = fit_prompt(self.engine, self.messages, dropping(self.cut.num_messages))
        self.cut = fitted.cut
        sampled = [*byte_ids(reply.encode()), END_ID]
        self.messages.append(answer(fitted.prompt, sampled, self.tokenizer))
        return fitted


def filled(engine: Any, num_turns: int, *sizes: int, head: Sequence[ChatMessage] = ()) -> Chat:
    """Answered turns, each question and answer as long as the sizes say, in turn."""
    chat = Chat(engine, *head)
    big = engine_of(1_000_000, 10_000_000)
    for number in range(num_turns):
        size = sizes[number % len(sizes)]
        chat.messages.append(user(f"{number:03}".ljust(size, "q")))
        prompt = fit_prompt(big, chat.messages, ContextPolicy()).prompt
        sampled = [*byte_ids(b"a" * size), END_ID]
        chat.messages.append(answer(prompt, sampled, chat.tokenizer))
    return chat


# --- which messages -------------------------------------------------------------------------------


def test_stop_keeps_everything_and_any_cut_counts_again() -> None:
    chat = filled(engine_of(), 20, 20)
    messages = [*chat.messages, user("new")]
    fitted = fit_prompt(chat.engine, messages, ContextPolicy(OverflowPolicy.STOP, 8))
    assert fitted.cut == ContextCut()
    assert fitted.messages == tuple(messages)
    assert len(fitted.prompt.token_ids) > CONTEXT
    assert fitted.prompt == tiny_encoder().encode(messages)


def test_what_fits_is_left_whole() -> None:
    chat = filled(engine_of(), 3, 20)
    fitted = fit_prompt(chat.engine, [*chat.messages, user("new")], dropping())
    assert (fitted.cut, len(fitted.messages)) == (ContextCut(), 7)
    assert chat.engine.encoded == 1


def test_the_fewest_pairs_go_that_leave_half() -> None:
    chat = filled(engine_of(), 8, 20, head=[system("Be brief.")])
    messages = [*chat.messages, user("new")]
    whole = len(tiny_encoder().encode(messages).token_ids)
    assert whole > CONTEXT
    fitted = fit_prompt(chat.engine, messages, dropping())
    dropped = fitted.cut.num_messages
    assert fitted.messages == (messages[0], *messages[1 + dropped :])
    assert len(fitted.prompt.token_ids) <= CONTEXT // 2
    one_more = [messages[0], *messages[1 + dropped - 2 :]]
    assert len(tiny_encoder().encode(one_more).token_ids) > CONTEXT // 2
    assert fitted.cut == ContextCut(dropped, dropped, whole - len(fitted.prompt.token_ids))


@given(
    sizes=st.lists(st.integers(3, 90), min_size=1, max_size=12),
    has_system=st.booleans(),
    has_ids=st.booleans(),
    context=st.integers(120, 900),
)
def test_any_conversation_is_cut_between_pairs_and_as_little_as_half_allows(
    sizes: list[int], has_system: bool, has_ids: bool, context: int
) -> None:
    head = [system("Be brief.")] if has_system else []
    chat = filled(engine_of(context), len(sizes), *sizes, head=head)
    messages = [*chat.messages, user("new")]
    if not has_ids:
        messages = [replace(message, turn=None) for message in messages]
    fitted = fit_prompt(chat.engine, messages, dropping())
    dropped = fitted.cut.num_messages
    lengths = [
        len(tiny_encoder().encode([*head, *messages[len(head) + start :]]).token_ids)
        for start in range(0, 2 * len(sizes) + 1, 2)
    ]
    if lengths[0] + context // 16 <= context:
        assert dropped == 0
    else:
        halves = [2 * n for n, length in enumerate(lengths) if n and length <= context // 2]
        assert dropped == (halves[0] if halves else 2 * len(sizes))
    assert list(fitted.messages) == [*head, *messages[len(head) + dropped :]]


def test_questions_without_an_answer_go_with_the_next_one() -> None:
    chat = filled(engine_of(), 1, 60)
    chat.messages += [user("x" * 200), *filled(engine_of(), 1, 20).messages]
    fitted = fit_prompt(chat.engine, [*chat.messages, user("new")], dropping())
    # Without the long question alone it would fit into half.
    shorter = tiny_encoder().encode([*chat.messages[3:], user("new")]).token_ids
    assert len(shorter) <= CONTEXT // 2
    assert fitted.cut.num_messages == 5


def test_a_cut_inside_a_pair_or_beyond_the_end_is_moved_back() -> None:
    chat = filled(engine_of(10_000), 3, 10)
    messages = [*chat.messages, user("new")]
    assert fit_prompt(chat.engine, messages, dropping(3)).cut == ContextCut(2)
    assert fit_prompt(chat.engine, messages, dropping(99)).cut == ContextCut(6)
    assert kept_messages(messages, dropping(3)) == tuple(messages[2:])
    assert kept_messages(messages, ContextPolicy(num_dropped=4)) == tuple(messages)
    with pytest.raises(InvalidValueError, match="num_dropped"):
        ContextPolicy(num_dropped=-1)


# --- limits ---------------------------------------------------------------------------------------


def test_the_newest_message_stays_even_if_it_fills_more_than_half() -> None:
    chat = filled(engine_of(), 6, 30)
    fitted = fit_prompt(chat.engine, [*chat.messages, user("n" * 300)], dropping())
    assert fitted.cut.num_messages == 12
    assert CONTEXT // 2 < len(fitted.prompt.token_ids) < CONTEXT


def test_what_cannot_fit_alone_is_refused_with_the_numbers() -> None:
    chat = filled(engine_of(), 2, 30, head=[system("s" * 40)])
    with pytest.raises(MessageTooLongError, match=r"alone have 449 tokens, .* context is 400"):
        fit_prompt(chat.engine, [*chat.messages, user("n" * 380)], dropping())


def test_exactly_one_token_of_room_is_enough_alone() -> None:
    length = len(tiny_encoder().encode([user("n" * 50)]).token_ids)
    fitted = fit_prompt(engine_of(length + 1), [user("n" * 50)], dropping())
    assert fitted.cut == ContextCut()
    with pytest.raises(MessageTooLongError):
        fit_prompt(engine_of(length), [user("n" * 50)], dropping())


def test_a_pool_smaller_than_the_context_is_the_limit() -> None:
    chat = filled(engine_of(100_000, pool=400), 8, 20)
    fitted = fit_prompt(chat.engine, [*chat.messages, user("new")], dropping())
    assert len(fitted.prompt.token_ids) <= 200
    # What does not fit alone is for the core to refuse: it names the pool.
    fitted = fit_prompt(chat.engine, [*chat.messages, user("n" * 500)], dropping())
    assert fitted.cut.num_messages == 16


def test_room_for_an_answer_is_kept_but_no_more_than_it_may_take() -> None:
    chat = filled(engine_of(100_000), 6, 20)
    messages = [*chat.messages, user("new")]
    length = len(tiny_encoder().encode(messages).token_ids)
    engine = engine_of(length + 8)
    assert fit_prompt(engine, messages, dropping(), max_tokens=8).cut == ContextCut()
    assert fit_prompt(engine, messages, dropping(), max_tokens=9).cut.num_messages > 0
    assert fit_prompt(engine, messages, dropping()).cut.num_messages > 0
    wide = engine_of(length + length // 15)
    assert fit_prompt(wide, messages, dropping()).cut == ContextCut()


def test_a_long_conversation_is_encoded_a_few_times_only() -> None:
    chat = filled(engine_of(4000), 60, 20, 60, 8)
    assert fit_prompt(chat.engine, [*chat.messages, user("new")], dropping()).cut.num_messages
    assert chat.engine.encoded <= 4
    engine = engine_of(4000)
    plain = [replace(message, turn=None) for message in chat.messages]
    assert fit_prompt(engine, [*plain, user("new")], dropping()).cut.num_messages
    assert engine.encoded <= 8


# --- ids ------------------------------------------------------------------------------------------


def test_ids_after_a_cut_are_the_templates_with_the_answers_as_they_were_sampled() -> None:
    chat = Chat(engine_of(), system("Be brief."))
    fitted = chat.turn("first", "hello")
    while not fitted.cut.num_messages:
        fitted = chat.turn("more of it", "hello")
    questions, dropped = len(chat.messages) // 2, fitted.cut.num_messages // 2
    kept = [
        (role, text)
        for _ in range(questions - dropped - 1)
        for role, text in (("user", "more of it"), ("assistant", "hello"))
    ]
    ids = chatml(("system", "Be brief."), *kept, ("user", "more of it"))
    # The tokenizer would make one token of "hello"; it was sampled byte by byte.
    hello = tuple(chat.tokenizer.encode_text("hello"))
    assert len(hello) == 1
    expected: list[int] = []
    for token_id in ids:
        expected += byte_ids(b"hello") if token_id == hello[0] else [token_id]
    header = [START_ID, *chat.tokenizer.encode_text("assistant\n")]
    assert fitted.prompt.token_ids == [*expected, *header]
    assert fitted.prompt.reencoded_tokens == 0


def test_the_cut_stays_so_that_turns_after_it_only_append_until_it_moves_again() -> None:
    chat = Chat(engine_of(), system("Be brief."))
    cuts, fed = [0], []
    for number in range(40):
        fitted = chat.turn(f"question {number}", "an answer")
        prompt = fitted.prompt
        if fitted.cut.num_messages == cuts[-1]:
            assert prompt.token_ids[: len(fed)] == fed
            assert prompt.turn_start == prompt.history_end == len(fed)
            assert (fitted.cut.new_messages, fitted.cut.new_tokens) == (0, 0)
        else:
            assert len(prompt.token_ids) <= CONTEXT // 2
            assert fitted.cut.new_messages == fitted.cut.num_messages - cuts[-1]
            cuts.append(fitted.cut.num_messages)
        assert prompt.reencoded_tokens == 0
        fed = [*prompt.token_ids, *byte_ids(b"an answer"), END_ID]
        assert len(fed) <= CONTEXT
    assert len(cuts) >= 5
    # A fresh encoder, as after a restart, finds the same.
    again = fit_prompt(engine_of(), chat.messages[:-1], dropping(chat.cut.num_messages))
    assert again.prompt == prompt


def test_back_to_stop_the_whole_history_is_exact_again() -> None:
    chat = filled(engine_of(), 6, 30)
    shown = [*chat.messages, user("new")]
    before = tiny_encoder().encode(shown)
    chat.turn("new", "yes")
    assert chat.cut.num_messages
    whole = fit_prompt(chat.engine, [*chat.messages, user("s")], ContextPolicy()).prompt
    assert whole.token_ids[: len(before.token_ids)] == before.token_ids


def test_an_edited_answer_after_the_cut_is_still_counted() -> None:
    chat = filled(engine_of(10_000), 4, 10)
    chat.messages[5] = replace(chat.messages[5], content="otherwise")
    prompt = fit_prompt(chat.engine, [*chat.messages, user("new")], dropping(2)).prompt
    # The first of the three kept turns is as it was.
    assert 0 < prompt.reencoded_tokens < prompt.history_end * 2 // 3


def test_a_continued_answer_keeps_its_question_and_what_there_is_of_it() -> None:
    chat = filled(engine_of(), 6, 20)
    question = user("go on?")
    first = fit_prompt(chat.engine, [*chat.messages, question], dropping())
    so_far = byte_ids(b"so far " * 20)
    reply = answer(first.prompt, so_far, chat.tokenizer)
    messages = [*chat.messages, question, reply]
    cut = dropping(first.cut.num_messages)
    fitted = fit_prompt(chat.engine, messages, cut, continue_answer=True)
    prompt = fitted.prompt
    assert prompt.token_ids[prompt.answer_start :] == so_far
    assert fitted.messages[-2:] == (question, reply)
    assert prompt.reencoded_tokens == 0
