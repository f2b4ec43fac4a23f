"""What the open conversations cost when another model reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from app.conversation import ASSISTANT, Conversation


@dataclass(frozen=True, slots=True)
class Rereading:
    """``num_tokens`` as the model that answered last counted them. ``num_too_long``: conversations
    with more of them than the other model reads.
    """

    num_conversations: int = 0
    num_tokens: int = 0
    num_too_long: int = 0


_NONE: Mapping[str, int] = MappingProxyType({})


def rereading(
    conversations: Iterable[Conversation],
    context_length: int,
    so_far: Mapping[str, int] = _NONE,
) -> Rereading:
    """Of the shown branches that a model has read so far; the others cost nothing more.

    ``context_length``: tokens that the other model reads, 0 if that is not known. ``so_far``: of
    answers that are being written, by message: what has come of them stays when they are stopped.
    """
    counts = [count for each in conversations if (count := tokens_read(each, so_far))]
    too_long = [count for count in counts if 0 < context_length < count]
    return Rereading(len(counts), sum(counts), len(too_long))


def tokens_read(conversation: Conversation, so_far: Mapping[str, int] = _NONE) -> int:
    """Tokens of the shown branch up to its last answer that was counted."""
    for message in reversed(conversation.path()):
        if message.message_id in so_far:
            return so_far[message.message_id]
        if message.role == ASSISTANT and message.usage is not None and message.usage.prompt_tokens:
            return message.usage.prompt_tokens + message.usage.output_tokens
    return 0


def answered_by(conversations: Iterable[Conversation], model_name: str) -> list[Conversation]:
    """Those whose newest shown answer is of the model with this name."""
    found = []
    for conversation in conversations:
        answers = [m for m in conversation.path() if m.role == ASSISTANT and m.model]
        if answers and answers[-1].model == model_name:
            found.append(conversation)
    return found
