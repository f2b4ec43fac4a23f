"""Whether a chat template leaves earlier turns as they were, found out when a model is loaded.

Short made-up conversations are answered and encoded turn by turn, as real ones are. A turn that the
template writes otherwise afterwards (it drops reasoning, or moves the system message) is computed
again each time; a few milliseconds here tell by how much before anybody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.api.errors import ChatTemplateError, EngineError
from engine.api.events import TemplateNote
from engine.api.params import ChatMessage, TurnTokens
from engine.chat_encoder import ChatEncoder
from engine.chat_template import ChatTemplate
from engine.text_prefix import Before
from engine.tokenizer import Tokenizer

_SYSTEM = (
    "You are a careful assistant. Answer in the language of the question, be brief where the "
    "question is simple, and say so when you do not know something."
)
_QUESTIONS = (
    "How many bridges cross the river in the old town?",
    "Show me how to add two numbers in Python.",
    "Thank you. Anything else that I should know?",
    "And what was my first question?",
)
_ANSWERS = (
    "Seven bridges cross it. The oldest is made of stone and was built for carts, the newest is a "
    "footbridge; all of them are open today.",
    "Write a function:\n\n```python\ndef add(a, b):\n    return a + b\n```\n\nThen call it:\n\n"
    "1. `add(1, 2)`\n2. `add(3, 4)`\n",
    "",
)
_THOUGHT = (
    "<think>\nThe user asks a question. I should recall what I know, check it, think about how "
    "long the answer should be, and then write it down in plain words.\n</think>\n\n"
)


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """What was found. ``recomputed``: for each later turn of the talk that showed it, the tokens
    of earlier turns that are computed again. ``error``: the template's own words.
    """

    note: TemplateNote = TemplateNote.NONE
    recomputed: tuple[int, ...] = ()
    takes_system: bool = True
    error: str = ""

    @property
    def is_stable(self) -> bool:
        """Whether every turn begins with all turns before, exactly."""
        return self.note in (TemplateNote.NONE, TemplateNote.ABSENT)

    @property
    def recomputed_tokens(self) -> int:
        """Of a typical turn."""
        return round(sum(self.recomputed) / len(self.recomputed)) if self.recomputed else 0


def check_template(tokenizer: Tokenizer, template: ChatTemplate) -> TemplateReport:
    """Talks with a model that is not there. Raises nothing: what goes wrong is in the report."""
    try:
        return _report(tokenizer, template)
    except EngineError as error:
        reason = str(error.numbers.get("reason", error))
        return TemplateReport(TemplateNote.REFUSES, error=reason)
    except Exception as error:  # of the tokenizer; the model can be loaded all the same
        return TemplateReport(TemplateNote.REFUSES, error=f"{type(error).__name__}: {error}")


def _report(tokenizer: Tokenizer, template: ChatTemplate) -> TemplateReport:
    plain = _recomputed(tokenizer, template, _ANSWERS)
    try:
        instructed = _recomputed(tokenizer, template, _ANSWERS, _SYSTEM)
        takes_system = True
    except ChatTemplateError:
        instructed, takes_system = (), False
    reasoned = _recomputed(tokenizer, template, [_THOUGHT + text for text in _ANSWERS])
    if any(plain):
        drops_reasoning = "</think>" in template.source
        note = TemplateNote.REASONING if drops_reasoning else TemplateNote.ANSWERS
        return TemplateReport(note, plain, takes_system)
    if any(instructed):
        return TemplateReport(TemplateNote.SYSTEM, instructed, takes_system)
    if any(reasoned):
        return TemplateReport(TemplateNote.REASONING, reasoned, takes_system)
    return TemplateReport(takes_system=takes_system)


def _recomputed(
    tokenizer: Tokenizer, template: ChatTemplate, answers: Iterable[str], system: str = ""
) -> tuple[int, ...]:
    """Tokens computed again at each turn after the first."""
    encoder = ChatEncoder(tokenizer, template)
    messages = [ChatMessage("system", system)] if system else []
    messages.append(ChatMessage("user", _QUESTIONS[0]))
    prompt = encoder.encode(messages)
    ends = sorted(tokenizer.eos_token_ids)[:1]
    counts = []
    for text, question in zip(answers, _QUESTIONS[1:], strict=False):
        output_ids = [*tokenizer.encode_text(text, Before.TEXT), *ends]
        said = tokenizer.decode(output_ids)
        fed = prompt.token_ids[prompt.turn_start :]
        turn = TurnTokens(tuple(fed), tuple(output_ids), len(said), tokenizer.fingerprint)
        messages += [ChatMessage("assistant", said, turn), ChatMessage("user", question)]
        prompt = encoder.encode(messages)
        counts.append(prompt.reencoded_tokens)
    return tuple(counts)
