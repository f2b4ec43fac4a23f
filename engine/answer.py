"""The text side of a request.

From sampled ids to whole characters, stops, times and the final account.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.api.errors import ErrorInfo
from engine.api.events import (
    FinishReason,
    PrefillProgress,
    RequestFinished,
    RequestUsage,
    TokensGenerated,
)
from engine.api.params import TurnTokens
from engine.request import Request
from engine.scheduler_output import SampledTokens, ScheduledChunk


class TextPiece(Protocol):
    """What a text stream gives for some ids."""

    @property
    def text(self) -> str: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def stop(self) -> str: ...


class TextStream(Protocol):
    """Turns ids into text, bit by bit; ``engine.detokenizer.Detokenizer`` is the real one."""

    def follow(self, token_ids: Sequence[int]) -> None:
        """Before all else: the ids of the answer so far, whose text has been told already."""

    def feed(self, token_ids: Sequence[int]) -> TextPiece:
        """Text that these ids complete; ``stopped`` when a stop string ended it."""

    def flush(self) -> str:
        """What was still held back, at the end."""

    def kept_tokens(self) -> tuple[int, int]:
        """How many leading ids stand for visible text only, and how many characters that is."""


@dataclass(slots=True)
class Times:
    """Moments on the engine's clock, in seconds; 0 until they happened."""

    arrival: float
    scheduled: float = 0.0
    prefilled: float = 0.0
    first_token: float = 0.0
    first_text: float = 0.0
    last_token: float = 0.0


@dataclass(slots=True)
class Ending:
    """Why an answer ended. ``limit``: max_tokens, context or pool, with LENGTH."""

    reason: FinishReason
    limit: str = ""
    stop: str = ""
    error: ErrorInfo | None = None


@dataclass(slots=True)
class Answer:
    """One request's output as the client sees it.

    ``turn_start``: where this turn's own ids begin in the request's ids. ``num_given_tokens``: ids
    that came with the request: the prompt, and of a continued answer what there was of it.
    ``num_once_computed``: leading ids that had been computed before a preemption or a cut, at most.
    ``num_chars``: characters of the answer so far. ``num_inherited``: tokens of the output that
    another request sampled before this one was forked from it. ``stop_ids``: end tokens.
    """

    request: Request
    stream: TextStream
    turn_start: int
    num_given_tokens: int
    fingerprint: str
    stop_ids: frozenset[int]
    context_length: int
    times: Times
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    num_once_computed: int = 0
    num_chars: int = 0
    num_given_chars: int = field(init=False, default=0)
    num_output: int = 0
    num_inherited: int = 0
    stop_string: str = ""
    ended_by_stop_string: bool = False

    def __post_init__(self) -> None:
        self.num_given_chars = self.num_chars

    def inherit(self, parent: Answer) -> None:
        """Takes over what the request that this one was forked from has said so far.

        Its text is not said again; the ids given stay those of the common prompt.
        """
        self.turn_start = parent.turn_start
        self.num_given_tokens = parent.num_given_tokens
        self.num_given_chars, self.num_chars = parent.num_given_chars, parent.num_chars
        self.num_output = self.num_inherited = parent.num_output
        self.stream.feed(self.request.token_ids[self.num_given_tokens :])

    def rewind(self, stream: TextStream, num_tokens: int) -> None:
        """The request goes back to its first ``num_tokens`` ids, which it still has: text and
        counts become those of what will be left. Nothing is changed if the stream breaks.

        ``stream``: a new one, which is fed with the output that is left.
        """
        output = self.request.token_ids[self.num_given_tokens : num_tokens]
        text = stream.feed(output).text if output else ""
        self.stream = stream
        self.num_output = len(output)
        self.num_inherited = min(self.num_inherited, len(output))
        self.num_once_computed = min(self.num_once_computed, num_tokens)
        self.num_chars = self.num_given_chars + len(text)

    def computed(self, chunk: ScheduledChunk, now_s: float) -> PrefillProgress | None:
        """Accounts for a chunk whose KV is in the pool.

        Progress to tell if it was of the prompt.
        """
        request, end = self.request, chunk.start + chunk.num_tokens
        if self.num_once_computed <= chunk.start >= self.num_given_tokens:
            # As nearly always: a new token of the answer.
            self.num_once_computed = end
            return None
        given = max(0, min(end, self.num_given_tokens) - chunk.start)
        known = max(self.num_once_computed, request.num_cached_tokens)
        again = max(0, min(end, known) - chunk.start)
        self.recomputed_tokens += again
        self.computed_tokens += max(0, given - again)
        self.num_once_computed = max(self.num_once_computed, end)
        if not given:
            return None
        if chunk.samples:
            self.times.prefilled = self.times.prefilled or now_s
        return PrefillProgress(
            request.request_id,
            request.conversation_id,
            computed_tokens=min(end, self.num_given_tokens),
            prompt_tokens=self.num_given_tokens,
            cached_tokens=self._num_cached,
        )

    def accept(self, token_id: int, sample: SampledTokens, now_s: float) -> TokensGenerated:
        """Takes one sampled token and returns what to tell the client."""
        times = self.times
        times.last_token = now_s
        times.first_token = times.first_token or now_s
        self.num_output += 1
        text = ""
        if not self._is_end(token_id):
            piece = self.stream.feed((token_id,))
            text = piece.text
            self.ended_by_stop_string = piece.stopped
            self.stop_string = piece.stop
        if text:
            times.first_text = times.first_text or now_s
            self.num_chars += len(text)
        request = self.request
        return TokensGenerated(
            request.request_id,
            request.conversation_id,
            (token_id,),
            text,
            sample.logprobs,
            sample.top_logprobs,
        )

    def ending(self, token_id: int) -> Ending | None:
        """Whether the answer ends with this token, and why."""
        request = self.request
        if self._is_end(token_id):
            return Ending(FinishReason.STOP)
        if self.ended_by_stop_string:
            return Ending(FinishReason.STOP, stop=self.stop_string)
        limit = request.params.max_tokens
        if limit is not None and self.num_output >= limit:
            return Ending(FinishReason.LENGTH, limit="max_tokens")
        if self.num_given_tokens + self.num_output >= self.context_length:
            return Ending(FinishReason.LENGTH, limit="context")
        return None

    def finish(self, ending: Ending, now_s: float) -> RequestFinished:
        """The last event: the rest of the text, the exact ids to keep, the account."""
        request = self.request
        rest = "" if self.ended_by_stop_string else self.stream.flush()
        self.num_chars += len(rest)
        if rest:
            self.times.first_text = self.times.first_text or now_s
        return RequestFinished(
            request.request_id,
            request.conversation_id,
            reason=ending.reason,
            text=rest,
            usage=self._usage(now_s),
            turn=self._turn(),
            seed=request.seed,
            limit=ending.limit,
            stop=ending.stop,
            error=ending.error,
        )

    def broken_off(self, error: ErrorInfo) -> RequestFinished:
        """The last event where the rest of the text cannot be had: no ids to keep."""
        request = self.request
        return RequestFinished(
            request.request_id,
            request.conversation_id,
            reason=FinishReason.ERROR,
            text="",
            usage=RequestUsage(self.num_given_tokens, output_tokens=self.num_output),
            turn=None,
            seed=request.seed,
            error=error,
        )

    @property
    def _num_cached(self) -> int:
        """Of what was found in the pool a fork's answer so far is no part of the prompt."""
        return min(self.request.num_cached_tokens, self.num_given_tokens)

    def _is_end(self, token_id: int) -> bool:
        return token_id in self.stop_ids and not self.request.params.ignore_eos

    def _turn(self) -> TurnTokens | None:
        request = self.request
        end, covered = request.num_tokens, self.num_chars
        if self.ended_by_stop_string:
            kept, chars = self.stream.kept_tokens()
            end = self.num_given_tokens + kept
            covered = self.num_given_chars + chars
        output = request.token_ids[request.num_prompt_tokens : end]
        prompt = tuple(request.token_ids[self.turn_start : request.num_prompt_tokens])
        return TurnTokens(prompt, tuple(output), covered, self.fingerprint)

    def _usage(self, now_s: float) -> RequestUsage:
        times = self.times
        ttft = max(times.first_text - times.arrival, 0.0) if times.first_text else 0.0
        queue = max((times.scheduled or now_s) - times.arrival, 0.0)
        prefill = max(times.prefilled - times.scheduled, 0.0) if times.prefilled else 0.0
        span = times.last_token - times.first_token
        num_sampled = self.num_output - self.num_inherited
        return RequestUsage(
            prompt_tokens=self.num_given_tokens,
            cached_tokens=self._num_cached,
            computed_tokens=self.computed_tokens,
            recomputed_tokens=self.recomputed_tokens,
            output_tokens=self.num_output,
            ttft_s=ttft,
            queue_s=queue,
            prefill_s=prefill,
            first_decode_s=max(ttft - queue - prefill, 0.0) if ttft else 0.0,
            total_s=now_s - times.arrival,
            tokens_per_s=max(num_sampled - 1, 0) / span if span > 0.0 else 0.0,
        )
