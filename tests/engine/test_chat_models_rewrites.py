"""Templates that rewrite earlier turns: what is encoded again, and how many tokens that are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.params import ChatMessage
from engine.chat_encoder import EncodedPrompt
from tests.helpers.chat_models import BY_NAME, ChatModel
from tests.helpers.tiny_chat import answer, fed_so_far, system, user

THOUGHT = "<think>\nThe river has seven bridges.\n</think>\n\n"


class Talk:
    """A conversation that is answered as the engine answers it."""

    def __init__(self, model: ChatModel, *messages: ChatMessage) -> None:
        self.model = model
        self.encoder = model.encoder()
        self.messages = list(messages)
        self.fed: list[int] = []
        self.prompt = self.encoder.encode(self.messages)

    def ask(self, text: str, question: str) -> EncodedPrompt:
        """Answers by ``text``, asks the next question; the prompt for it."""
        tokenizer = self.model.tokenizer()
        sampled = [*tokenizer.encode_text(text), self.model.end_id()]
        self.fed = [*self.prompt.token_ids, *sampled]
        self.messages += [answer(self.prompt, sampled, tokenizer), user(question)]
        self.prompt = self.encoder.encode(self.messages)
        return self.prompt

    def same_length(self) -> int:
        return same_length(self.prompt.token_ids, self.fed)


def same_length(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return count


@pytest.mark.parametrize("name", ["qwen3", "deepseek-r1-distill"])
def test_of_a_turn_whose_reasoning_goes_the_answer_alone_is_encoded_again(name: str) -> None:
    model = BY_NAME[name]
    tokenizer = model.tokenizer()
    # DeepSeek's prompt opens the reasoning itself.
    thought = THOUGHT if name == "qwen3" else THOUGHT.removeprefix("<think>\n")
    talk = Talk(model, system("Be kind"), user("How many bridges?"))
    for number in range(4):
        prompt = talk.ask(f"{thought}Seven.", f"And now {number}?")
        assert prompt.turn_start == 0
        assert "seven bridges" not in tokenizer.decode(prompt.token_ids, False)
        # All that was fed before the answer stands where it stood.
        same = talk.same_length()
        assert same >= len(talk.fed) - len(tokenizer.encode_text(thought + "Seven.")) - 4
        assert prompt.reencoded_tokens == prompt.history_end - same > 0
        end = "Seven.<|im_end|>\n" if name == "qwen3" else "Seven.<｜end▁of▁sentence｜>"
        again = tokenizer.decode(prompt.token_ids[same : prompt.history_end], False)
        assert again.removeprefix("\n\n").removesuffix("<|im_start|>user\n") == end
    # Not the whole conversation, each turn anew.
    assert prompt.reencoded_tokens < 12


def test_answers_without_reasoning_are_exact_in_a_template_that_drops_it() -> None:
    talk = Talk(BY_NAME["qwen3"], user("Hello"))
    for _ in range(3):
        prompt = talk.ask("Hi there", "Next")
        assert prompt.token_ids[: prompt.turn_start] == talk.fed == fed_so_far(talk.messages)
        assert prompt.reencoded_tokens == 0
    # What came before an answer that is rewritten stays exact.
    exact = prompt.turn_start
    prompt = talk.ask(THOUGHT + "Yes.", "And?")
    assert prompt.turn_start == exact
    assert prompt.token_ids[:exact] == talk.fed[:exact]
    assert prompt.reencoded_tokens == prompt.history_end - talk.same_length() > 0


@pytest.mark.parametrize("name", ["qwen3", "deepseek-r1-distill", "mistral-v3", "mistral-nemo"])
@settings(max_examples=40, deadline=None)
@given(
    with_system=st.booleans(),
    answers=st.lists(
        st.tuples(st.booleans(), st.text("ab é\n", max_size=8)), min_size=1, max_size=5
    ),
)
def test_the_number_is_what_differs_from_the_turn_before(
    name: str, with_system: bool, answers: list[tuple[bool, str]]
) -> None:
    """Reasoning now and then, system message or none: no token more or less than differs."""
    messages = [system("Be kind"), user("Hello")] if with_system else [user("Hello")]
    talk = Talk(BY_NAME[name], *messages)
    for thinks, text in answers:
        prompt = talk.ask(THOUGHT * thinks + text, "Next?")
        same = talk.same_length()
        assert prompt.reencoded_tokens == max(prompt.history_end - same, 0)
        if prompt.reencoded_tokens == 0:
            assert same == len(talk.fed)


@pytest.mark.parametrize("name", ["mistral-v3", "mistral-nemo"])
def test_a_system_message_that_moves_to_the_newest_question_is_counted(name: str) -> None:
    model = BY_NAME[name]
    tokenizer = model.tokenizer()
    instructions = "You are a helpful assistant. Answer briefly."
    talk = Talk(model, system(instructions), user("Hello"))
    for _ in range(3):
        prompt = talk.ask("Hi there", "Next")
        assert prompt.turn_start == 0
        # From where it stood in the last question to where it stands now.
        again = tokenizer.decode(prompt.token_ids[talk.same_length() : prompt.history_end])
        assert "Hi there" in again
        assert instructions in again
        assert prompt.reencoded_tokens == prompt.history_end - talk.same_length()


@pytest.mark.parametrize("name", ["qwen3", "deepseek-r1-distill", "mistral-nemo"])
def test_going_on_with_an_answer_encodes_nothing_again(name: str) -> None:
    model = BY_NAME[name]
    tokenizer = model.tokenizer()
    talk = Talk(model, system("Be kind"), user("Hello"))
    prompt = talk.ask(THOUGHT + "Yes.", "And?")
    said = tokenizer.encode_text("Because the")
    reply = answer(prompt, said, tokenizer)
    going_on = talk.encoder.encode([*talk.messages, reply], continue_answer=True)
    assert going_on.token_ids == [*prompt.token_ids, *said]
    assert going_on.reencoded_tokens == 0


def test_the_first_difference_is_where_an_edited_turn_differs() -> None:
    """An answer that the user changed is encoded again, the question before it is not."""
    model = BY_NAME["llama3"]
    tokenizer = model.tokenizer()
    talk = Talk(model, user("How many bridges?"))
    talk.ask("There are seven bridges", "Next")
    changed = talk.messages[1]
    talk.messages[1] = ChatMessage("assistant", "There are eight bridges", changed.turn)
    prompt = talk.encoder.encode(talk.messages)
    same = same_length(prompt.token_ids, talk.fed)
    assert prompt.reencoded_tokens == prompt.history_end - same
    assert "How many" not in tokenizer.decode(prompt.token_ids[same:], False)
