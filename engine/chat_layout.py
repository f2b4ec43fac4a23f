"""Finds the answers of earlier turns in a rendered conversation."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from engine.api.errors import ChatTemplateError
from engine.api.params import ChatMessage
from engine.chat_template import ChatTemplate
from engine.content_guard import ContentGuard

_REMEMBERED = 4096
_SPACES = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class AnswerSpan:
    """Message ``index`` stands in the rendered text from character ``start`` to ``end``."""

    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Prefix:
    """A prompt of an earlier turn, without its text; ``length`` −1 if it cannot be rendered."""

    length: int
    digest: bytes
    spans: tuple[AnswerSpan, ...]


class ChatLayout:
    """Renders conversations and finds those answers that the template leaves where they were.

    Such an answer is *stable*: the text begins with the prompt that it answered, then the answer.
    What was found is remembered by the messages' text, so that a turn costs two renderings, not one
    for each answer. All texts are escaped by ``guard``.
    """

    def __init__(self, template: ChatTemplate, guard: ContentGuard) -> None:
        self._template = template
        self._guard = guard
        self._prefixes: OrderedDict[bytes, _Prefix] = OrderedDict()

    def render(self, messages: Sequence[ChatMessage], *, prompt: bool = True) -> str:
        """The text of ``messages``, with the header of the next answer if ``prompt``.

        Raises:
            ChatTemplateError: the template refuses the messages or fails.
        """
        values = [{"role": m.role, "content": self._guard.escape(m.content)} for m in messages]
        return self._template.render(values, add_generation_prompt=prompt)

    def stable_answers(self, messages: Sequence[ChatMessage], text: str) -> tuple[AnswerSpan, ...]:
        """Where the stable answers of ``messages`` stand in ``text``, their rendering, in order.

        If the template changed an answer, those before the change count, those after it do not.
        """
        prefixes: dict[int, _Prefix] = {}
        for index, key in self._answer_keys(messages):
            known = self._prefixes.get(key)
            if known is None:
                known = self._prefix(messages, index, prefixes)
                self._prefixes[key] = known
                if len(self._prefixes) > _REMEMBERED:
                    self._prefixes.popitem(last=False)
            else:
                self._prefixes.move_to_end(key)
            prefixes[index] = known
        return self._latest(messages, text, prefixes)

    def _prefix(
        self, messages: Sequence[ChatMessage], index: int, before: dict[int, _Prefix]
    ) -> _Prefix:
        try:
            text = self.render(messages[:index])
        except ChatTemplateError:
            # For instance an answer that stands before any question.
            return _Prefix(-1, b"", ())
        return _Prefix(len(text), _digest(text), self._latest(messages, text, before))

    def _latest(
        self, messages: Sequence[ChatMessage], text: str, prefixes: dict[int, _Prefix]
    ) -> tuple[AnswerSpan, ...]:
        """The latest stable answer and, since its prompt begins the text, those in its prompt."""
        for index in sorted(prefixes, reverse=True):
            prefix = prefixes[index]
            end = self._answer_end(text, prefix, messages[index].content)
            if end is not None:
                return (*prefix.spans, AnswerSpan(index, prefix.length, end))
        return ()

    def _answer_end(self, text: str, prefix: _Prefix, content: str) -> int | None:
        if not 0 <= prefix.length <= len(text):
            return None
        escaped = self._guard.escape(content)
        # Many templates trim, some put a space before; the answer's own ids keep what was sampled.
        spaces = _SPACES.match(text, prefix.length)
        begin = spaces.end() if spaces else prefix.length
        for start, answer in ((prefix.length, escaped), (begin, escaped.strip())):
            if text.startswith(answer, start):
                same = _digest(text[: prefix.length]) == prefix.digest
                return start + len(answer) if same else None
        return None

    def _answer_keys(self, messages: Sequence[ChatMessage]) -> list[tuple[int, bytes]]:
        """For each answer a digest of all that stands before it."""
        chain = hashlib.sha256()
        if "strftime_now" in self._template.source:
            chain.update(date.today().isoformat().encode())
        keys = []
        for index, message in enumerate(messages):
            if message.role == "assistant":
                keys.append((index, chain.digest()))
            content = message.content.encode("utf-8", "surrogatepass")
            chain.update(f"{message.role}:{len(content)}:".encode() + content)
        return keys


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
