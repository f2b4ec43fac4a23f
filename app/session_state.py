"""What the session tells about itself: values, no behaviour. Qt-free."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.api.errors import ErrorInfo
from engine.api.events import ModelInfo


class ModelStatus(StrEnum):
    """``STARTING``: the engine thread is not up yet. ``NO_MODEL``: nothing loaded, nothing
    loading.
    """

    STARTING = "starting"
    NO_MODEL = "no_model"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ModelState:
    """The engine's model.

    ``stage``, ``fraction`` (0 to 1) and ``detail`` while LOADING, as in ``ModelLoading``, and
    ``progress`` (0 to 1) of the whole load, which never falls; ``info`` and ``load_s`` (seconds)
    when READY; ``error`` when FAILED. ``starter_model_missing`` among its codes means that fetching
    it would help, ``engine_died`` a new engine, ``device_lost`` a new process.

    ``path``: what was asked for, empty for the starter model. ``is_asleep`` with NO_MODEL: the
    model at ``path`` was let go, and the next message loads it again. ``next_path`` with READY: the
    model that is loaded as soon as the running answers have ended, or None.
    """

    status: ModelStatus = ModelStatus.STARTING
    stage: str = ""
    fraction: float = 0.0
    detail: str = ""
    progress: float = 0.0
    info: ModelInfo | None = None
    load_s: float = 0.0
    error: ErrorInfo | None = None
    path: str = ""
    is_asleep: bool = False
    next_path: str | None = None


class RequestPhase(StrEnum):
    IDLE = "idle"
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class RequestState:
    """What a conversation's answer is doing.

    ``reason`` while WAITING: a value of ``WaitReason`` (``loading``, ``capacity``, ``batch_full``,
    ``twin``, ``paused``, ``engine_paused``), ``queued`` (handed to the engine, not answered yet) or
    ``preempted``. ``waits_on``: the conversation that it waits for, or empty. In PREFILL: tokens
    ``done`` of ``total``, of which ``cached`` came from the cache. ``message_id``: the answer.
    """

    phase: RequestPhase = RequestPhase.IDLE
    reason: str = ""
    blocks_short: int = 0
    waits_on: str = ""
    done: int = 0
    total: int = 0
    cached: int = 0
    message_id: str = ""


IDLE = RequestState()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What sending ``text`` would do to what the model reads of the conversation. Tokens.

    ``fits``: false if it would be refused, ``prompt_tokens`` against ``limit_tokens``. Otherwise
    ``dropped_messages`` (``dropped_tokens``) that were read so far would no longer be, and
    ``recomputed_tokens`` of earlier turns be computed again. ``error``: it cannot be told.
    """

    text: str
    fits: bool = True
    prompt_tokens: int = 0
    limit_tokens: int = 0
    dropped_messages: int = 0
    dropped_tokens: int = 0
    recomputed_tokens: int = 0
    error: ErrorInfo | None = None


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should read; ``app.error_text.describe_error(error)`` gives its words.

    ``conversation_id``: the conversation it concerns, or empty for the whole window.
    """

    severity: Severity
    error: ErrorInfo
    conversation_id: str = ""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A stored conversation without its messages, for lists. Times in seconds since the epoch."""

    conversation_id: str
    title: str
    number: int
    is_open: bool
    created_at: float
    updated_at: float
    pinned: bool = False
    archived: bool = False
    folder: str = ""
    tags: tuple[str, ...] = ()
