"""Conversations to ids: what was sampled stays exactly what it was, from turn to turn."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.api.params import ChatMessage, TurnTokens
from engine.chat_encoder import ChatEncoder
from engine.chat_template import ChatTemplate
from engine.tokenizer import Tokenizer
from tests.helpers.tiny_chat import (
    START_ID,
    TRIMMED,
    answer,
    chatml,
    fed_so_far,
    system,
    tiny_encoder,
    user,
)
from tests.helpers.tiny_gguf import CHATML
from tests.helpers.tiny_tokenizer import END_ID, byte_ids, tiny_tokenizer

# Drops what an answer says before </think>, but for the newest one.
REASONING = CHATML.replace(
    "message['content']",
    "(message['content'].split('</think>')[-1] if message['role'] == 'assistant'"
    " else message['content'])",
)


# --- token-exact history --------------------------------------------------------------------------


def test_the_next_turn_begins_with_what_was_fed_and_sampled() -> None:
    tokenizer, encoder = tiny_tokenizer(), tiny_encoder()
    messages = [system("Be brief."), user("hello")]
    first = encoder.encode(messages)
    # "hello" byte by byte: encoding the text would give one token.
    sampled = [*byte_ids(b"hello"), END_ID]
    messages += [answer(first, sampled, tokenizer), user("more")]
    second = encoder.encode(messages)
    assert second.token_ids[: second.turn_start] == [*first.token_ids, *sampled]
    assert second.token_ids[second.turn_start :] == [
        *byte_ids(b"\n"),
        *chatml(("user", "more")),
        START_ID,
        *tokenizer.encode_text("assistant\n"),
    ]
    assert second.reencoded_tokens == 0


def test_sampled_newlines_stay_apart() -> None:
    newlines = tiny_tokenizer()
    encoder = tiny_encoder()
    messages = [user("x")]
    sampled = [*byte_ids(b"\n"), *byte_ids(b"\n"), END_ID]
    messages += [answer(encoder.encode(messages), sampled, newlines), user("y")]
    prompt = encoder.encode(messages)
    assert prompt.token_ids[prompt.turn_start - 3 : prompt.turn_start] == sampled


@given(
    answers=st.lists(
        st.tuples(st.lists(st.integers(3, 260), max_size=12), st.booleans()), max_size=5
    ),
    template=st.sampled_from([CHATML, TRIMMED]),
)
def test_every_turn_begins_with_all_turns_before(
    answers: list[tuple[list[int], bool]], template: str
) -> None:
    """Any bytes, broken characters too; ended by the model or cut off."""
    tokenizer, encoder = tiny_tokenizer(), tiny_encoder(template)
    messages = [user("q0")]
    for number, (sampled, ended) in enumerate(answers):
        prompt = encoder.encode(messages)
        assert prompt.token_ids[: prompt.turn_start] == fed_so_far(messages)
        assert prompt.reencoded_tokens == 0
        assert prompt.answer_start == len(prompt.token_ids)
        sampled = [*sampled, END_ID] if ended else sampled
        messages += [answer(prompt, sampled, tokenizer), user(f"q{number + 1}")]
    # A fresh encoder, as after a restart, finds the same.
    again = tiny_encoder(template).encode(messages)
    assert again == encoder.encode(messages)
    assert again.token_ids[: again.turn_start] == fed_so_far(messages)
    assert again.reencoded_tokens == 0


SAMPLED = st.lists(
    st.one_of(
        st.integers(3, 260).map(lambda token_id: [token_id]),
        st.sampled_from(["hello", " w", "l", "<|im_end|>", "é", "\n"]).map(
            lambda text: tiny_tokenizer().encode_text(text)
        ),
    ),
    max_size=6,
).map(lambda parts: [token_id for part in parts for token_id in part])


@given(
    turns=st.lists(
        st.tuples(SAMPLED, st.sampled_from(["ended", "cut", "stopped", "continued"])), max_size=5
    )
)
def test_turns_of_all_endings_stay_exact_and_read_as_they_were_shown(
    turns: list[tuple[list[int], str]],
) -> None:
    tokenizer, encoder = tiny_tokenizer(), tiny_encoder()
    messages = [user("q")]
    for sampled, how in turns:
        prompt = encoder.encode(messages)
        assert prompt.token_ids[: prompt.turn_start] == fed_so_far(messages)
        stop = ("lo", "\n") if how == "stopped" else ()
        reply = answer(prompt, [*sampled, END_ID] if how == "ended" else sampled, tokenizer, stop)
        if how == "continued":
            prompt = encoder.encode([*messages, reply], continue_answer=True)
            assert prompt.token_ids[: prompt.turn_start] == fed_so_far(messages)
            assert prompt.answer_chars == len(reply.content)
            rest = answer(prompt, [*byte_ids(b"more"), END_ID], tokenizer)
            reply = replace(rest, content=reply.content + rest.content)
        messages += [reply, user("r")]
    final = encoder.encode(messages)
    assert final.token_ids[: final.turn_start] == fed_so_far(messages)
    assert final.reencoded_tokens == 0
    assert tokenizer.decode(final.token_ids, False) == (
        "".join(f"<|im_start|>{m.role}\n{read(m)}<|im_end|>\n" for m in messages)
        + "<|im_start|>assistant\n"
    )


def read(message: ChatMessage) -> str:
    """What the model reads of a message: what was shown, and what a character left unfinished."""
    if message.turn is None:
        return message.content
    covered = message.turn.covered_chars
    said = tiny_tokenizer().decode(message.turn.output_ids)
    assert message.content[:covered] in (said, said.removesuffix("\ufffd"))
    return said + message.content[covered:]


def test_an_answer_that_was_cut_off_gets_the_templates_full_end() -> None:
    tokenizer, encoder = tiny_tokenizer(), tiny_encoder()
    messages = [user("q")]
    messages += [answer(encoder.encode(messages), byte_ids(b"cut"), tokenizer), user("r")]
    prompt = encoder.encode(messages)
    assert prompt.token_ids[prompt.turn_start : prompt.turn_start + 3] == [
        END_ID,
        *byte_ids(b"\n"),
        START_ID,
    ]


def test_a_stop_string_that_cuts_a_token_leaves_a_rest_to_encode() -> None:
    tokenizer, encoder = tiny_tokenizer(), tiny_encoder()
    messages = [user("q")]
    hello = tokenizer.encode_text("hello")
    sampled = [*byte_ids(b"oh "), *hello, *byte_ids(b"!")]
    reply = answer(encoder.encode(messages), sampled, tokenizer, stop=("lo!",))
    assert reply.content == "oh hel"
    assert reply.turn is not None
    assert (reply.turn.output_ids, reply.turn.covered_chars) == (tuple(byte_ids(b"oh ")), 3)
    messages += [reply, user("r")]
    prompt = encoder.encode(messages)
    assert prompt.token_ids[: prompt.turn_start] == fed_so_far(messages)
    rest = [*tokenizer.encode_text("hel"), END_ID, *byte_ids(b"\n"), START_ID]
    assert prompt.token_ids[prompt.turn_start :][: len(rest)] == rest
    assert tokenizer.decode(prompt.token_ids, False).count("oh hel<|im_end|>") == 1


def test_another_end_token_than_the_templates_stands_for_it() -> None:
    text = tiny_tokenizer()._tokenizer.to_str()
    tokenizer = Tokenizer(text, [0, END_ID], "tiny")
    encoder = ChatEncoder(tokenizer, ChatTemplate(CHATML))
    messages = [user("q")]
    messages += [answer(encoder.encode(messages), [*byte_ids(b"a"), 0], tokenizer), user("r")]
    prompt = encoder.encode(messages)
    assert tokenizer.decode(prompt.token_ids, False).count("a<|endoftext|>\n<|im_start|>user") == 1


def test_an_answer_without_ids_is_encoded_as_text() -> None:
    tokenizer, encoder = tiny_tokenizer(), tiny_encoder()
    messages = [user("q"), ChatMessage("assistant", "imported"), user("r")]
    prompt = encoder.encode(messages)
    assert prompt.turn_start == 0
    assert prompt.reencoded_tokens == 0
    turns = [("user", "q"), ("assistant", "imported"), ("user", "r")]
    header = [START_ID, *tokenizer.encode_text("assistant\n")]
    assert prompt.token_ids == [*chatml(*turns), *header]
    # The turn that follows it is exact again.
    messages += [answer(prompt, [*byte_ids(b"ok"), END_ID], tokenizer), user("s")]
    second = encoder.encode(messages)
    assert second.token_ids[: second.turn_start] == [*prompt.token_ids, *byte_ids(b"ok"), END_ID]
    assert second.reencoded_tokens == 0


# --- when ids cannot be used ----------------------------------------------------------------------


def one_turn(fingerprint: str = "tiny") -> tuple[Tokenizer, list[ChatMessage]]:
    tokenizer, encoder = tiny_tokenizer(fingerprint), tiny_encoder(CHATML, fingerprint)
    messages = [system("s"), user("hello")]
    prompt = encoder.encode(messages)
    return tokenizer, [*messages, answer(prompt, [*byte_ids(b"hello"), END_ID], tokenizer)]


def test_another_models_ids_are_encoded_again_and_counted() -> None:
    tokenizer, messages = one_turn("other")
    prompt = tiny_encoder().encode([*messages, user("more")])
    assert prompt.turn_start == 0
    expected = chatml(("system", "s"), ("user", "hello"), ("assistant", "hello"))
    assert prompt.token_ids[: len(expected)] == expected
    assert prompt.reencoded_tokens == len(expected)
    assert tokenizer.fingerprint == "other"


def test_back_to_the_first_model_its_own_answers_are_exact_again() -> None:
    tokenizer, messages = one_turn("tiny")
    encoder = tiny_encoder()
    other = tiny_tokenizer("other")
    messages.append(user("two"))
    second = tiny_encoder(CHATML, "other").encode(messages)
    messages += [answer(second, [*byte_ids(b"hello"), END_ID], other), user("three")]
    third = encoder.encode(messages)
    assert third.token_ids[: third.turn_start] == fed_so_far(messages[:3])
    messages += [answer(third, [*byte_ids(b"x"), END_ID], tokenizer), user("four")]
    fourth = encoder.encode(messages)
    assert fourth.token_ids[: fourth.turn_start] == [*third.token_ids, *byte_ids(b"x"), END_ID]
    assert fourth.reencoded_tokens == 0


def test_a_changed_system_prompt_is_fed_and_what_follows_it_counted() -> None:
    tokenizer, messages = one_turn()
    before = tiny_encoder().encode([*messages, user("more")])
    messages[0] = system("t")
    after = tiny_encoder().encode([*messages, user("more")])
    at = before.token_ids.index(tokenizer.encode_text("s")[0], 8)
    assert after.token_ids[:at] == before.token_ids[:at]
    assert tokenizer.decode(after.token_ids, False).startswith("<|im_start|>system\nt<|im_end|>")
    assert after.turn_start == before.turn_start
    assert after.reencoded_tokens == after.turn_start - at


def test_an_edited_answer_is_encoded_as_it_reads_now() -> None:
    tokenizer, messages = one_turn()
    messages[2] = replace(messages[2], content="jello")
    prompt = tiny_encoder().encode([*messages, user("more")])
    assert "jello<|im_end|>" in tokenizer.decode(prompt.token_ids, False)
    assert prompt.turn_start == 0
    assert prompt.reencoded_tokens > 0


def test_dropped_oldest_turns_do_not_take_the_system_prompt_with_them() -> None:
    tokenizer, messages = one_turn()
    encoder = tiny_encoder()
    messages.append(user("two"))
    messages += [
        answer(encoder.encode(messages), [*byte_ids(b"b"), END_ID], tokenizer),
        user("three"),
    ]
    kept = [messages[0], *messages[3:]]
    prompt = encoder.encode(kept)
    expected = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n"
    assert tokenizer.decode(prompt.token_ids, False).startswith(expected)


def test_a_template_that_rewrites_answers_falls_back_to_the_last_stable_one() -> None:
    tokenizer = tiny_tokenizer()
    encoder = tiny_encoder(REASONING)
    messages = [user("q")]
    plain = [*byte_ids(b"plain"), END_ID]
    messages += [answer(encoder.encode(messages), plain, tokenizer), user("r")]
    stable = encoder.encode(messages)
    reasoned = [*byte_ids(b"hm</think>yes"), END_ID]
    messages += [answer(stable, reasoned, tokenizer), user("s")]
    prompt = encoder.encode(messages)
    # The first answer is as it was, the second lost its reasoning.
    assert prompt.token_ids[: prompt.turn_start] == fed_so_far(messages[:2])
    text = tokenizer.decode(prompt.token_ids, False)
    assert "assistant\nyes<|im_end|>" in text
    assert "hm" not in text
    # The question before it was fed as it still is.
    assert prompt.reencoded_tokens == len(tokenizer.encode_template("yes<|im_end|>\n"))


# --- going on with an answer ----------------------------------------------------------------------


def test_a_continued_answer_keeps_its_turn_and_ids() -> None:
    tokenizer, encoder = tiny_tokenizer(), tiny_encoder()
    messages = [user("q")]
    first = encoder.encode(messages)
    reply = answer(first, byte_ids(b"hel"), tokenizer)
    going_on = encoder.encode([*messages, reply], continue_answer=True)
    assert going_on.token_ids == [*first.token_ids, *byte_ids(b"hel")]
    assert (going_on.turn_start, going_on.answer_start) == (0, len(first.token_ids))
    assert (going_on.answer_chars, going_on.reencoded_tokens) == (3, 0)
    # The whole answer is one turn afterwards.
    rest = answer(going_on, [*byte_ids(b"lo"), END_ID], tokenizer)
    whole = replace(rest, content="hel" + rest.content)
    second = encoder.encode([*messages, whole, user("r")])
    assert second.token_ids[: second.turn_start] == [
        *first.token_ids,
        *byte_ids(b"hello"),
        END_ID,
    ]
    assert second.reencoded_tokens == 0


def test_continuing_leaves_out_the_end_token() -> None:
    tokenizer, encoder = tiny_tokenizer(), tiny_encoder()
    messages = [user("q")]
    first = encoder.encode(messages)
    reply = answer(first, [*byte_ids(b"done"), END_ID], tokenizer)
    going_on = encoder.encode([*messages, reply], continue_answer=True)
    assert going_on.token_ids == [*first.token_ids, *byte_ids(b"done")]


def test_continuing_an_answer_without_ids_encodes_its_text() -> None:
    tokenizer, encoder = tiny_tokenizer(), tiny_encoder()
    first = encoder.encode([user("q")])
    going_on = encoder.encode(
        [user("q"), ChatMessage("assistant", "<|im_end|>hello")], continue_answer=True
    )
    text = tokenizer.encode_text("<|im_end|>hello")
    assert END_ID not in text
    assert going_on.token_ids == [*first.token_ids, *text]
    assert going_on.answer_chars == len("<|im_end|>hello")


def test_an_answer_that_a_crash_cut_goes_on_from_the_ids_whose_text_came() -> None:
    encoder = tiny_encoder()
    first = encoder.encode([user("q")])
    # A stop string might have begun with it.
    ids = [*byte_ids("hel缓".encode()), *byte_ids(b"!?")]
    turn = TurnTokens((), tuple(ids), 4, tiny_tokenizer().fingerprint)
    messages = [user("q"), ChatMessage("assistant", "hel缓", turn)]
    going_on = encoder.encode(messages, continue_answer=True)
    kept = ids[:-2]
    assert going_on.token_ids == [*first.token_ids, *kept]
    assert (going_on.answer_chars, going_on.reencoded_tokens) == (4, 0)
    # As an earlier turn too.
    second = encoder.encode([*messages, user("r")])
    assert second.token_ids[: second.turn_start] == [*first.token_ids, *kept]
    assert second.reencoded_tokens == 0
