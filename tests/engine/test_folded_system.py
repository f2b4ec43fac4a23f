"""A model whose template refuses system messages reads the prompt with the first question."""

from __future__ import annotations

import pytest

from engine.api.errors import ChatTemplateError
from engine.api.params import ChatMessage, TurnTokens
from engine.chat_encoder import ChatEncoder
from tests.helpers.chat_models import CHAT_MODELS, ChatModel

REFUSING = [model for model in CHAT_MODELS if not model.system]
SYSTEM = ChatMessage("system", "Be kind.")


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def encoder(model: ChatModel, takes_system: bool) -> ChatEncoder:
    return ChatEncoder(model.tokenizer(), model.template(), takes_system=takes_system)


def test_there_is_such_a_model() -> None:
    assert REFUSING


@pytest.mark.parametrize("model", REFUSING, ids=lambda model: model.name)
def test_prompt_stands_before_the_first_question(model: ChatModel) -> None:
    with pytest.raises(ChatTemplateError):
        encoder(model, True).encode([SYSTEM, user("Hello")])
    folded = encoder(model, False).encode([SYSTEM, user("Hello")])
    assert folded == encoder(model, True).encode([user("Be kind.\n\nHello")])
    alone = encoder(model, False).encode([user("Hello")])
    assert alone == encoder(model, True).encode([user("Hello")])


@pytest.mark.parametrize("model", REFUSING, ids=lambda model: model.name)
def test_next_turn_appends(model: ChatModel) -> None:
    each = encoder(model, False)
    prompt = each.encode([SYSTEM, user("Hello")])
    tokenizer = model.tokenizer()
    output = (*tokenizer.encode_text("Hi there"), model.end_id())
    turn = TurnTokens(tuple(prompt.token_ids), output, len("Hi there"), tokenizer.fingerprint)
    history = [SYSTEM, user("Hello"), ChatMessage("assistant", "Hi there", turn), user("And?")]
    following = each.encode(history)
    fed = [*prompt.token_ids, *output]
    assert following.token_ids[: len(fed)] == fed
    assert following.reencoded_tokens == 0
    going_on = each.encode(history[:3], continue_answer=True)
    assert going_on.token_ids == [*prompt.token_ids, *output[:-1]]
