"""A conversation to token ids, so that what was sampled stays exactly what it was.

The rendered template is text; the ids of earlier answers are put into it where those answers stand,
and everything between is encoded: from control token to control token, in whole runs. The same text
gives the same ids each turn, so the ids of a turn begin with those of the turn before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.api.errors import ChatTemplateError, EmptyMessageError, InvalidValueError
from engine.api.params import ChatMessage, TurnTokens
from engine.chat_layout import AnswerSpan, ChatLayout
from engine.chat_template import ChatTemplate
from engine.content_guard import ContentGuard
from engine.encoded_runs import EncodedRuns
from engine.text_prefix import Before
from engine.tokenizer import Tokenizer

_ROLES = ("system", "user", "assistant")
_MAX_HELD_BACK = 8
"""Last ids of a cut-off answer whose text may not have come: of a character, a stop string."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A request's prompt.

    ``token_ids[:turn_start]``: the turns before, as they were fed and sampled. When the request is
    finished, its turn is ``TurnTokens(prompt_ids=token_ids[turn_start:answer_start],
    output_ids=token_ids[answer_start:] + sampled, covered_chars=answer_chars + new characters)``.
    ``answer_start`` is the prompt's length, except when an answer is continued: the ids from there
    on are the answer so far and stand for its first ``answer_chars`` characters.
    ``reencoded_tokens``: tokens of earlier turns that are not what those turns fed, or that come
    after such, because the model, the template or an earlier message changed. ``history_end``:
    where the earlier turns end, those whose ids could not be used too.
    """

    token_ids: list[int]
    turn_start: int
    reencoded_tokens: int
    answer_start: int
    answer_chars: int = 0
    history_end: int = 0


class ChatEncoder:
    """Encodes conversations for one model. Not for several threads at once.

    ``takes_system``: whether the template has a place for a system message; if not, it is put
    before the first question, as other templates do by themselves.

    Raises:
        ChatTemplateError: the model has no chat template.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, *, takes_system: bool = True
    ) -> None:
        if template is None:
            raise ChatTemplateError(
                "The model has no chat template.",
                action="Choose an instruction-tuned model, or add its chat_template.jinja.",
            )
        self._tokenizer = tokenizer
        self._takes_system = takes_system
        self._guard = ContentGuard(tokenizer.special_tokens)
        self._layout = ChatLayout(template, self._guard)
        self._end = tokenizer.end_pattern()
        self._runs = EncodedRuns(tokenizer.encode_text)

    def encode(
        self,
        messages: Sequence[ChatMessage],
        *,
        continue_answer: bool = False,
        follows_cut: bool = False,
    ) -> EncodedPrompt:
        """The ids to answer ``messages``, or to go on with the last one if ``continue_answer``.

        A continued answer keeps its turn: ``turn_start`` is where that turn began, the answer's
        end token is left out, and its ids follow from ``answer_start``. ``follows_cut``: earlier
        turns were left out of ``messages``, so that the first one stands after other text than
        when it was fed; that alone does not count as encoded again.

        Raises:
            EmptyMessageError: the message to answer is blank, or there is none.
            InvalidValueError: an unknown role, or the last message is not whose it has to be.
            ChatTemplateError: the template refuses the messages or fails.
        """
        _check(messages, continue_answer)
        if not self._takes_system:
            messages = _fold_system(messages)
        asked = messages[:-1] if continue_answer else messages
        text = self._layout.render(asked)
        splice = _Splice(self, asked, text, follows_cut)
        for span in self._layout.stable_answers(asked, text):
            turn = self.usable_turn(asked[span.index])
            if turn is not None:
                splice.answer(span, turn)
        turn_start = len(splice.ids)
        exact = continue_answer and self.usable_turn(messages[-1]) is not None
        history_end = turn_start if exact else turn_start + splice.num_lost()
        if not continue_answer:
            splice.template(len(text))
            answer_start = len(splice.ids)
            reencoded = splice.reencoded(history_end)
            return EncodedPrompt(
                splice.ids, turn_start, reencoded, answer_start, history_end=history_end
            )
        answer_start = splice.continued(messages[-1])
        end = len(splice.ids)
        chars = len(messages[-1].content)
        return EncodedPrompt(
            splice.ids, turn_start, splice.reencoded(end), answer_start, chars, end
        )

    def usable_turn(self, message: ChatMessage) -> TurnTokens | None:
        """The message's ids, if they are this tokenizer's and say what the message says.

        Without the last few where those say what the message does not: an answer that was cut off
        in the middle has the ids of text that was still held back.
        """
        turn = message.turn
        if turn is None or turn.fingerprint != self._tokenizer.fingerprint:
            return None
        covered = turn.covered_chars
        if not 0 <= covered <= len(message.content):
            return None
        if covered < len(message.content) and self.ends(turn.output_ids):
            return None
        try:
            said = self._tokenizer.decode(turn.output_ids)
        except InvalidValueError:
            return None
        content = message.content
        # At the very end, the bytes of a character that was cut off: no text until it goes on.
        if said == content[:covered] or (covered == len(content) and said == f"{content}\ufffd"):
            return turn
        return self._without_held_back(turn, content)

    def _without_held_back(self, turn: TurnTokens, content: str) -> TurnTokens | None:
        ids = turn.output_ids
        for length in range(len(ids) - 1, max(0, len(ids) - 1 - _MAX_HELD_BACK), -1):
            said = self._tokenizer.decode(ids[:length])
            if content.startswith(said):
                return replace(turn, output_ids=ids[:length], covered_chars=len(said))
        return None

    def ends(self, output_ids: Sequence[int]) -> bool:
        """Whether the last id is an end token."""
        return bool(output_ids) and output_ids[-1] in self._tokenizer.eos_token_ids

    def encode_run(self, text: str, before: Before) -> tuple[list[int], Before]:
        """Ids of rendered text: its control tokens are meant, those in message content are not.

        ``before``: what stands before the text. Second: what stands before text that follows.
        """
        ids: list[int] = []
        for run, special_id in self._tokenizer.split_special(text):
            if special_id is None:
                ids += self._runs.ids(self._guard.restore(run), before)
                before = Before.TEXT
            else:
                ids.append(special_id)
                before = Before.CONTROL
        return ids, before

    def end_length(self, text: str, position: int) -> int:
        """Length of the end token, with the spaces around it that are no text, that ``text`` has
        at ``position``; 0 if it has none there.
        """
        match = self._end.match(text, position)
        return len(match[0]) if match else 0

    def escape(self, content: str) -> str:
        """Message content as it stands in rendered text."""
        return self._guard.escape(content)

    def history_length(self, messages: Sequence[ChatMessage], text: str) -> int:
        """How many characters of ``text`` are the earlier turns, the last answer's end included."""
        last = max(i for i, message in enumerate(messages) if message.role == "assistant")
        question = messages[-1].content.strip()
        other = replace(messages[-1], content="y" if question.startswith("x") else "x")
        try:
            history = self._layout.render(messages[: last + 1], prompt=False)
            if text.startswith(history) and self._has_system(history, messages):
                return len(history)
            # Written otherwise while its end is the text's: all that stands before the question.
            return _same_length(text, self._layout.render([*messages[:-1], other]))
        except ChatTemplateError:
            return len(text)

    def fed_ids(self, turn: TurnTokens) -> tuple[int, ...]:
        """The turn's ids as they were fed and sampled; none if they are another tokenizer's."""
        same = turn.fingerprint == self._tokenizer.fingerprint
        return (*turn.prompt_ids, *turn.output_ids) if same else ()

    def _has_system(self, history: str, messages: Sequence[ChatMessage]) -> bool:
        system = [m.content for m in messages if m.role == "system"]
        return all(self.escape(content).strip() in history for content in system)


def _fold_system(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """The system message in front of the first question."""
    if len(messages) < 2 or (messages[0].role, messages[1].role) != ("system", "user"):
        return messages
    content = f"{messages[0].content}\n\n{messages[1].content}"
    return (replace(messages[1], content=content), *messages[2:])


class _Splice:
    """One prompt in the making: ids so far, and up to where the rendered text is in them."""

    def __init__(
        self,
        encoder: ChatEncoder,
        messages: Sequence[ChatMessage],
        text: str,
        follows_cut: bool,
    ) -> None:
        self.ids: list[int] = []
        self._is_after_cut = follows_cut
        self._encoder = encoder
        self._messages = messages
        self._text = text
        self._position = 0
        self._before = Before.NOTHING
        self._rest = ""  # of an answer whose ids do not cover all of it; escaped
        self._last_index = -1
        self._diverged_at: int | None = None

    def template(self, end: int) -> list[int]:
        """Appends the rendered text up to character ``end``; returns its ids."""
        text = self._rest + self._text[self._position : end]
        ids, self._before = self._encoder.encode_run(text, self._before)
        self.ids += ids
        self._position = max(end, self._position)
        self._rest = ""
        return ids

    def answer(self, span: AnswerSpan, turn: TurnTokens) -> None:
        """Appends the text up to an answer, and the answer as it was sampled."""
        self._compare(self.template(span.start), turn.prompt_ids)
        self.ids += turn.output_ids
        self._last_index = span.index
        self._position = span.end
        if self._encoder.ends(turn.output_ids):
            self._before = Before.CONTROL
            self._position += self._encoder.end_length(self._text, span.end)
        else:
            if turn.output_ids:
                self._before = Before.TEXT
            content = self._messages[span.index].content
            trimmed = not self._text.endswith(self._encoder.escape(content), 0, span.end)
            rest = self._encoder.escape(content[turn.covered_chars :])
            self._rest = rest.rstrip() if trimmed else rest

    def continued(self, message: ChatMessage) -> int:
        """Appends the text up to an unfinished answer and the answer; returns where it begins."""
        prompt_ids = self.template(len(self._text))
        answer_start = len(self.ids)
        turn = self._encoder.usable_turn(message)
        rest = message.content
        if turn is not None:
            self._compare(prompt_ids, turn.prompt_ids)
            ended = self._encoder.ends(turn.output_ids)
            output_ids = turn.output_ids[:-1] if ended else turn.output_ids
            self.ids += output_ids
            if output_ids:
                self._before = Before.TEXT
            rest = message.content[turn.covered_chars :]
        elif message.turn is not None:
            self._diverge(answer_start)
        ids, self._before = self._encoder.encode_run(self._encoder.escape(rest), self._before)
        self.ids += ids
        return answer_start

    def num_lost(self) -> int:
        """Tokens that follow and belong to earlier turns whose ids could not be used.

        They differ from where the newest of those turns, as it was fed, differs.
        """
        after = self._messages[self._last_index + 1 :]
        turns = [m.turn for m in after if m.role == "assistant" and m.turn is not None]
        if not turns:
            return 0
        end = self._encoder.history_length(self._messages, self._text)
        text = self._rest + self._text[self._position : end]
        ids, _ = self._encoder.encode_run(text, self._before)
        self._diverge(len(self.ids) + _same_length(ids, self._encoder.fed_ids(turns[-1])))
        return len(ids)

    def reencoded(self, history_end: int) -> int:
        """Tokens from the first difference to the end of the history."""
        return 0 if self._diverged_at is None else max(history_end - self._diverged_at, 0)

    def _compare(self, ids: Sequence[int], fed: Sequence[int]) -> None:
        if self._is_after_cut:
            self._is_after_cut = False
        elif fed and tuple(ids) != tuple(fed):
            self._diverge(len(self.ids) - len(ids) + _same_length(ids, fed))

    def _diverge(self, at: int) -> None:
        if self._diverged_at is None or at < self._diverged_at:
            self._diverged_at = at


def _same_length(first: Sequence[object], second: Sequence[object]) -> int:
    """How many leading items agree."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def _check(messages: Sequence[ChatMessage], continue_answer: bool) -> None:
    for message in messages:
        if message.role not in _ROLES:
            raise InvalidValueError(
                f"role = {message.role!r}: one of {', '.join(_ROLES)}", name="role"
            )
    if not messages:
        raise EmptyMessageError("There is no message to answer.")
    last = messages[-1]
    wanted = "assistant" if continue_answer else "user"
    if last.role != wanted:
        raise InvalidValueError(
            f"The last message is the {last.role}'s; it has to be the {wanted}'s.", name="role"
        )
    if not continue_answer and not last.content.strip():
        raise EmptyMessageError("The message is empty.")
