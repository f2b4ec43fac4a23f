"""What the model reads of a conversation that may be longer than its context. No torch.

*Stop*: everything; a prompt that no longer fits is refused. *Drop oldest*: once a prompt no longer
fits, whole user + answer pairs leave it from the oldest on, down to half of what fits. The client
keeps that cut and sends it along, so that the next turns begin with the same tokens and find them
in the cache.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.api.errors import MessageTooLongError
from engine.api.params import ChatMessage, ContextCut, ContextPolicy, OverflowPolicy

if TYPE_CHECKING:
    from engine.chat_encoder import EncodedPrompt
    from engine.model_loader import TextSide

_ROOM_SHARE = 16


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """``prompt`` encodes ``messages``, which are those of the conversation without the cut."""

    prompt: EncodedPrompt
    messages: tuple[ChatMessage, ...]
    cut: ContextCut


def fit_prompt(
    engine: TextSide,
    messages: Sequence[ChatMessage],
    context: ContextPolicy,
    *,
    max_tokens: int | None = None,
    continue_answer: bool = False,
) -> FittedPrompt:
    """The prompt that ``context`` makes of ``messages``.

    Fits means: less than the model's context and than the pool. *Drop oldest* also keeps room for
    an answer, ``max_tokens`` or a sixteenth of that, whichever is less. The leading system message
    and the newest user message are never dropped. With *stop* the core refuses what does not fit.

    Raises:
        MessageTooLongError: *drop oldest*, and what is never dropped does not fit by itself.
        EmptyMessageError, InvalidValueError, ChatTemplateError: see ``ChatEncoder.encode``.
    """
    history = _History(engine, tuple(messages), continue_answer)
    if context.overflow is OverflowPolicy.STOP:
        return history.without(0)
    info = engine.info
    fitting = min(info.context_length, info.num_blocks * info.block_size)
    room = min(max_tokens or fitting, max(1, fitting // _ROOM_SHARE))
    kept = history.start_at(context.num_dropped)
    if history.length(kept) + room > fitting:
        kept = history.fewest_dropped(kept, fitting // 2)
    if history.length(kept) >= info.context_length:
        raise MessageTooLongError(
            f"The system message and the newest message alone have {history.length(kept)} tokens, "
            f"but the model's context is {info.context_length} and the answer needs at least one.",
            prompt_tokens=history.length(kept),
            context_length=info.context_length,
        )
    return history.without(kept, before=history.start_at(context.num_dropped))


def kept_messages(
    messages: Sequence[ChatMessage], context: ContextPolicy
) -> tuple[ChatMessage, ...]:
    """Those of ``messages`` that the cut in ``context`` leaves, whether they fit or not."""
    turns = _Turns(messages)
    if context.overflow is OverflowPolicy.STOP:
        return tuple(messages)
    return turns.without(turns.start_at(context.num_dropped))


class _Turns:
    """Where a shortened conversation may begin. Positions count from after the system message."""

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        num_system = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
        self.system, self.rest = tuple(messages[:num_system]), tuple(messages[num_system:])
        # Questions that were never answered go with the one after them.
        self.starts = [0] + [
            i
            for i, message in enumerate(self.rest)
            if i and message.role == "user" and self.rest[i - 1].role != "user"
        ]

    def start_at(self, num_dropped: int) -> int:
        """The last start that drops at most ``num_dropped`` messages."""
        return self.starts[bisect_right(self.starts, num_dropped) - 1]

    def without(self, num_dropped: int) -> tuple[ChatMessage, ...]:
        return (*self.system, *self.rest[num_dropped:])


class _History:
    """One conversation, encoded from several starts on; each is encoded once."""

    def __init__(
        self, engine: TextSide, messages: tuple[ChatMessage, ...], continue_answer: bool
    ) -> None:
        self._encoder = engine.encoder
        self._turns = _Turns(messages)
        self._continue_answer = continue_answer
        self._prompts: dict[int, EncodedPrompt] = {}
        self.start_at = self._turns.start_at

    def length(self, start: int) -> int:
        """Tokens of the prompt that begins at ``start``."""
        return len(self._prompt(start).token_ids)

    def without(self, num_dropped: int, before: int = 0) -> FittedPrompt:
        """The prompt without its first messages; ``before`` of them were dropped already."""
        shorter = self.length(before) - self.length(num_dropped) if num_dropped > before else 0
        cut = ContextCut(num_dropped, num_dropped - before, shorter)
        return FittedPrompt(self._prompt(num_dropped), self._turns.without(num_dropped), cut)

    def fewest_dropped(self, start: int, num_tokens: int) -> int:
        """The first start after ``start`` whose prompt has at most ``num_tokens``, or the last."""
        starts = [s for s in self._turns.starts if s > start]
        if not starts:
            return start
        guess = self._guess(starts, start, self.length(start) - num_tokens)
        index = _first(starts, guess, lambda s: self.length(s) <= num_tokens)
        return starts[min(index, len(starts) - 1)]

    def _prompt(self, start: int) -> EncodedPrompt:
        if start not in self._prompts:
            self._prompts[start] = self._encoder.encode(
                self._turns.without(start),
                continue_answer=self._continue_answer,
                follows_cut=start > 0,
            )
        return self._prompts[start]

    def _guess(self, starts: Sequence[int], start: int, too_many: int) -> int:
        """Index of the start that drops about ``too_many`` tokens: from the turns' own ids, or in
        proportion to the characters.
        """
        chars = sum(len(message.content) for message in self._turns.without(start))
        share = self.length(start) / max(1, chars)
        begin = start
        for index, end in enumerate(starts):
            pair = self._turns.rest[begin:end]
            turn = pair[-1].turn
            if turn is not None:
                too_many -= len(turn.prompt_ids) + len(turn.output_ids)
            else:
                too_many -= round(share * sum(len(message.content) for message in pair))
            if too_many <= 0:
                return index
            begin = end
        return len(starts) - 1


def _first(starts: Sequence[int], guess: int, fits: Callable[[int], bool]) -> int:
    """Index of the first start that fits, ``len(starts)`` if none does. Later ones are shorter."""
    low, high = 0, len(starts)
    # An encoding costs milliseconds, and the guess is mostly right.
    for index in (guess, guess - 1, guess + 1):
        if low <= index < high:
            if fits(starts[index]):
                high = index
            else:
                low = index + 1
    return bisect_left(starts, True, low, high, key=fits)
