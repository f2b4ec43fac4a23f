"""What the engine tells its clients. Every event is a frozen value.

Conversation events always flow, to the client that made the request. ``BlockEvents`` and snapshots
flow only to clients that subscribed. ``conversation_id`` is the application's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.api.errors import ErrorInfo
from engine.api.params import ContextCut, EngineConfig, SamplingParams, TurnTokens


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


# --- the engine and its model ---------------------------------------------------------------------


class EngineStatus(StrEnum):
    STARTING = "starting"
    NO_MODEL = "no_model"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class EngineStatusChanged(Event):
    """``paused`` and ``steps_per_s`` tell slow motion; ``error`` only with FAILED."""

    status: EngineStatus
    paused: bool = False
    steps_per_s: float | None = None
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True)
class ModelLoading(Event):
    """``stage``: fetch, read, expand, weights, tokenizer, warm_up. ``fraction`` of it: 0 to 1."""

    stage: str
    fraction: float
    detail: str = ""


class TemplateNote(StrEnum):
    """What the model's chat template does to earlier turns, found out when it was loaded.

    REASONING: it drops the reasoning of earlier answers. SYSTEM: it moves the system message to the
    newest question. ANSWERS: it writes earlier answers in another way. REFUSES: it fails even for
    a plain chat. ABSENT: there is none, messages are given to the model as plain text.
    """

    NONE = ""
    REASONING = "reasoning"
    SYSTEM = "system"
    ANSWERS = "answers"
    REFUSES = "refuses"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts of the loaded model. Sizes in bytes, lengths in tokens.

    ``keeps_blocks``: whether the attention backend keeps keys and values in the pool's blocks.
    ``template_stable``: whether each turn of a conversation begins with all turns before, exactly;
    if not, a typical turn computes ``template_recomputed_tokens`` again, for the reason in
    ``template_note``. ``template_error``: the template's own words where it refuses.
    ``takes_system_message``: whether the template has a place for one.
    """

    name: str
    path: str
    architecture: str
    num_parameters: int
    weights_bytes: int
    kv_bytes_per_token: int
    context_length: int
    vocab_size: int
    dtype: str
    device: str
    backend: str
    backend_reason: str
    num_blocks: int
    block_size: int
    fingerprint: str
    has_chat_template: bool
    license: str = ""
    keeps_blocks: bool = True
    template_stable: bool = True
    template_recomputed_tokens: int = 0
    template_note: TemplateNote = TemplateNote.NONE
    template_error: str = ""
    takes_system_message: bool = True


@dataclass(frozen=True, slots=True)
class ModelLoaded(Event):
    command_id: str
    model: ModelInfo
    load_s: float


@dataclass(frozen=True, slots=True)
class ModelLoadFailed(Event):
    command_id: str
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class ModelUnloaded(Event):
    command_id: str


# --- requests -------------------------------------------------------------------------------------


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


# --- the pool -------------------------------------------------------------------------------------


class BlockState(StrEnum):
    FREE = "free"
    CACHED = "cached"
    USED = "used"


class BlockEventKind(StrEnum):
    """Names follow the field.

    *stored* and *removed* are hashes entering and leaving the prefix cache.
    """

    ALLOCATED = "allocated"
    HIT = "hit"
    FILLED = "filled"
    STORED = "stored"
    COPIED = "copied"
    RELEASED = "released"
    REMOVED = "removed"
    PINNED = "pinned"
    UNPINNED = "unpinned"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block at one moment.

    ``block_hash``: first 8 bytes, or empty. ``fill``: tokens computed.
    """

    state: BlockState
    ref_count: int
    block_hash: bytes
    owner: str
    fill: int
    pins: int = 0


@dataclass(frozen=True, slots=True)
class BlockChanged:
    """One block changed. ``seq`` has no gaps; ``cause`` says why in one word of the engine's.

    Folding forwards takes ``after``, backwards ``before``. ``source_block_id``: of a copy, else -1.
    """

    seq: int
    step: int
    kind: BlockEventKind
    cause: str
    block_id: int
    request_id: str
    conversation_id: str
    before: BlockView
    after: BlockView
    source_block_id: int = -1


@dataclass(frozen=True, slots=True)
class TableChanged:
    """A block table changed from logical block ``start`` on: ``removed`` became ``added``."""

    seq: int
    step: int
    cause: str
    request_id: str
    conversation_id: str
    start: int
    removed: tuple[int, ...]
    added: tuple[int, ...]


PoolEvent = BlockChanged | TableChanged


@dataclass(frozen=True, slots=True)
class BlockEvents(Event):
    """Pool events in order, gap-free after the snapshot's ``last_seq``.

    The first batch after subscribing, and after a new pool, is empty: it says that the snapshot is
    there.
    """

    events: tuple[PoolEvent, ...]


@dataclass(frozen=True, slots=True)
class EngineStats(Event):
    """Counters for the status strip, twice a second while something runs. Rates are per second."""

    step: int
    num_running: int
    num_waiting: int
    used_blocks: int
    cached_blocks: int
    free_blocks: int
    shared_blocks: int
    decode_tokens_per_s: float
    prefill_tokens_per_s: float
    invariant_violations: int


# --- replies --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply(Event):
    command_id: str


@dataclass(frozen=True, slots=True)
class CommandFailed(Reply):
    command: str
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class TokensCounted(Reply):
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Configured(Reply):
    """Settings have changed, for all clients.

    ``config``: what is in force now. ``model``: its facts, with the backend in use. ``applied``:
    settings that changed at once; ``needs_reload``: those that take effect when the model is loaded
    again.
    """

    config: EngineConfig
    model: ModelInfo
    applied: tuple[str, ...]
    needs_reload: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForecastReady(Reply):
    """``evicted_conversation_ids``: whose cached blocks would go, the first to go first. ``cut``:
    messages that would be dropped. ``recomputed_tokens``: tokens of earlier turns that are not in
    the cache.
    """

    prompt_tokens: int
    cached_tokens: int
    blocks_needed: int
    blocks_shared: int
    blocks_evicted: int
    blocks_short: int
    context_length: int
    evicted_conversation_ids: tuple[str, ...] = ()
    cut: ContextCut = ContextCut()
    recomputed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EditCostReady(Reply):
    invalidated_tokens: int
    invalidated_blocks: int
    recompute_s: float


@dataclass(frozen=True, slots=True)
class BlockTextReady(Reply):
    block_id: int
    text: str
    token_ids: tuple[int, ...]
    first_position: int
    conversation_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParityReport(Reply):
    """``layer_errors``: largest error of each layer, relative to the largest value of its column.

    Indices are -1 where nothing is over the bound. ``bad_position``: of the first wrong token in
    its sequence, which lies in ``bad_slot``. ``logits_error``: with two backends only.
    """

    backend: str
    reference: str
    bound: float
    layer_errors: tuple[float, ...]
    first_bad_layer: int
    bad_block_id: int
    bad_slot: int
    verdict: str
    bad_position: int = -1
    num_tokens: int = 0
    logits_error: float = 0.0
    within_bound: bool = True
