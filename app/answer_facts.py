"""What an answer tells about how it was made, and what can be done with it. Qt-free."""

from __future__ import annotations

from dataclasses import dataclass

from app.conversation import ASSISTANT, Conversation, Message, MessageStatus, system_prompt_key
from app.i18n import tr
from app.markdown_thoughts import CLOSE_TAG, THOUGHT_SECONDS
from engine.api.events import FinishReason, ModelInfo

EDITED = "edited"
"""Fact of an answer: the user wrote it."""
CONTINUED = "continued"
"""Fact of an answer: how often it was gone on with."""
ASKED_FOR = "asked_for"
"""Fact of an answer: how many were asked for at once."""


def note_thought(message: Message, text: str, seconds: float) -> bool:
    """Notes how long reasoning took, if it ended within ``text``, the latest of an answer."""
    latest = message.content[-len(text) - len(CLOSE_TAG) :]
    if THOUGHT_SECONDS in message.facts or CLOSE_TAG not in latest:
        return False
    message.facts = {**message.facts, THOUGHT_SECONDS: max(0.1, round(seconds, 1))}
    return True


def can_continue(message: Message) -> bool:
    """Whether an answer was cut off, so that there may be more of it."""
    if message.role != ASSISTANT or message.status is MessageStatus.STREAMING:
        return False
    is_whole = message.status is MessageStatus.DONE and not message.limit
    return EDITED in message.facts or not is_whole


def why_not_repeat(conversation: Conversation, message: Message, model: ModelInfo | None) -> str:
    """Why an answer cannot be run again identically, in words; empty if it can."""
    if message.role != ASSISTANT or message.status is MessageStatus.STREAMING:
        return tr("Only a finished answer can be run again.")
    if EDITED in message.facts:
        return tr("This answer was written by you: there is nothing to run again.")
    if message.params is None or message.seed is None:
        return tr("The parameters or the seed of this answer are not known.")
    if not message.system_prompt_key:
        return tr("Under which system prompt this answer was made is not known.")
    if message.system_prompt_key != system_prompt_key(conversation.system_prompt):
        return tr("The system prompt has changed since this answer was made.")
    if model is None:
        return tr("No model is loaded.")
    is_other = message.turn is not None and message.turn.fingerprint != model.fingerprint
    if message.model != model.name or is_other:
        return tr(
            "This answer was made by {model}, but {other} is loaded.",
            model=message.model,
            other=model.name,
        )
    return ""


@dataclass(frozen=True, slots=True)
class Departure:
    """How an answer that was run again compares with the first one.

    ``is_same``: as far as both go. ``token``: place of the first other token, from 1, 0 if none or
    unknown. ``char``: of the first other character, likewise. ``is_cut``: one of them ends
    earlier because it was stopped.
    """

    is_same: bool
    token: int = 0
    char: int = 0
    is_cut: bool = False


def departure(first: Message, again: Message) -> Departure:
    """Compares ids where both have them, and the texts."""
    char = _first_difference(first.content, again.content)
    is_cut = any(message.finish_reason != FinishReason.STOP.value for message in (first, again))
    shorter = min(len(first.content), len(again.content))
    is_same = first.content == again.content or (is_cut and char == shorter)
    if is_same:
        return Departure(True, is_cut=first.content != again.content)
    token = 0
    if first.turn is not None and again.turn is not None:
        token = _first_difference(first.turn.output_ids, again.turn.output_ids) + 1
    return Departure(False, token, char + 1)


def _first_difference(first: str | tuple[int, ...], second: str | tuple[int, ...]) -> int:
    """Index of the first item that differs; the shorter length if one goes on."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
