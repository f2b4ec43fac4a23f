"""What happens to requests. They flow to the client that made the request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.api.errors import ErrorInfo
from engine.api.events.base import Event
from engine.api.params import ContextCut, SamplingParams, TurnTokens


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class WaitReason(StrEnum):
    """Why a request is not computing yet."""

    NONE = ""
    CAPACITY = "capacity"
    BATCH_FULL = "batch_full"
    TWIN = "twin"
    PAUSED = "paused"
    ENGINE_PAUSED = "engine_paused"
    LOADING = "loading"


@dataclass(frozen=True, slots=True)
class RequestEvent(Event):
    request_id: str
    conversation_id: str


@dataclass(frozen=True, slots=True)
class RequestQueued(RequestEvent):
    """The prompt is encoded and the request waits.

    ``prompt_tokens``: its length. ``reencoded_tokens``: tokens of earlier turns that had to be
    encoded again because the model or the template changed them. ``waits_for`` and ``blocks_short``
    explain. ``cut``: messages that the model does not read.
    """

    prompt_tokens: int
    reencoded_tokens: int
    params: SamplingParams
    waits_for: WaitReason = WaitReason.NONE
    blocks_short: int = 0
    cut: ContextCut = ContextCut()


@dataclass(frozen=True, slots=True)
class RequestWaiting(RequestEvent):
    """The reason for waiting changed."""

    waits_for: WaitReason
    blocks_short: int = 0
    waits_on_request_id: str = ""


@dataclass(frozen=True, slots=True)
class PrefillProgress(RequestEvent):
    """``computed_tokens`` of ``prompt_tokens`` are in the pool, ``cached_tokens`` of them were
    already.
    """

    computed_tokens: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class TokensGenerated(RequestEvent):
    """New output of one step. ``text`` only appends and holds whole characters; it may be empty.

    ``token_ids`` are the sampled ids that ``text`` and text held back so far stand for. Where they
    were asked for: ``logprobs`` of those ids, and ``top_logprobs`` of the likeliest at each place,
    (id, logprob) each; both of the raw logits.
    """

    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestPreempted(RequestEvent):
    """The request lost its blocks and will be computed again; no text is lost or repeated."""

    reason: str
    freed_blocks: int


@dataclass(frozen=True, slots=True)
class RequestPaused(RequestEvent):
    """The request was paused by its owner."""


@dataclass(frozen=True, slots=True)
class RequestResumed(RequestEvent):
    """The request goes on."""


@dataclass(frozen=True, slots=True)
class RequestTruncated(RequestEvent):
    """The request was taken back to its first ``num_tokens`` tokens and goes on from there.

    ``output_tokens`` of them are output. The answer's text is now its first ``num_chars``
    characters; what comes next is appended to those.
    """

    num_tokens: int
    output_tokens: int
    num_chars: int


@dataclass(frozen=True, slots=True)
class RequestUsage:
    """What one request cost. Tokens, and seconds since submission.

    ``cached_tokens`` counts the first admission only; ``recomputed_tokens`` what a preemption cost.
    TTFT = ``queue_s`` + ``prefill_s`` + ``first_decode_s``, up to the first visible text.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    output_tokens: int = 0
    ttft_s: float = 0.0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    first_decode_s: float = 0.0
    total_s: float = 0.0
    tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestFinished(RequestEvent):
    """The last event of a request.

    ``text``: the rest of the text, to append. ``turn``: exact ids to keep with the answer (None if
    nothing was computed). ``limit``: with LENGTH, which of max_tokens, context or pool ended it.
    """

    reason: FinishReason
    text: str
    usage: RequestUsage
    turn: TurnTokens | None
    seed: int
    limit: str = ""
    stop: str = ""
    error: ErrorInfo | None = None
