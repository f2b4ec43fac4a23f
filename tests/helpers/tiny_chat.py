"""Conversations over the tiny tokenizer, answered as the engine answers them."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api.params import ChatMessage, TurnTokens
from engine.chat_encoder import ChatEncoder, EncodedPrompt
from engine.chat_template import ChatTemplate
from engine.detokenizer import Detokenizer
from engine.tokenizer import Tokenizer
from tests.helpers.tiny_gguf import CHATML
from tests.helpers.tiny_tokenizer import END_ID, byte_ids, tiny_tokenizer

START_ID = 1
TRIMMED = CHATML.replace("message['content']", "message['content'] | trim")


def tiny_encoder(template: str = CHATML, fingerprint: str = "tiny") -> ChatEncoder:
    return ChatEncoder(tiny_tokenizer(fingerprint), ChatTemplate(template))


def system(text: str) -> ChatMessage:
    return ChatMessage("system", text)


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def answer(
    prompt: EncodedPrompt,
    sampled: Sequence[int],
    tokenizer: Tokenizer,
    stop: tuple[str, ...] = (),
) -> ChatMessage:
    """The message that the engine makes of what was sampled after ``prompt``."""
    detokenizer = Detokenizer(tokenizer, stop)
    detokenizer.follow(prompt.token_ids[prompt.answer_start :])
    text = detokenizer.feed(sampled).text + detokenizer.flush()
    kept, covered = detokenizer.kept_tokens()
    output = [*prompt.token_ids[prompt.answer_start :], *sampled[:kept]]
    fed = prompt.token_ids[prompt.turn_start : prompt.answer_start]
    turn = TurnTokens(
        tuple(fed), tuple(output), prompt.answer_chars + covered, tokenizer.fingerprint
    )
    return ChatMessage("assistant", text, turn)


def fed_so_far(messages: Sequence[ChatMessage]) -> list[int]:
    return [
        token_id
        for message in messages
        if message.turn is not None
        for token_id in (*message.turn.prompt_ids, *message.turn.output_ids)
    ]


def chatml(*turns: tuple[str, str]) -> list[int]:
    """Byte-wise ids of whole ChatML turns."""
    tokenizer = tiny_tokenizer()
    ids: list[int] = []
    for role, content in turns:
        ids += [START_ID, *tokenizer.encode_text(f"{role}\n{content}"), END_ID, *byte_ids(b"\n")]
    return ids
