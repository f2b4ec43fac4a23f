"""The engine, its model and its pace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.api.errors import ErrorInfo
from engine.api.events.base import Event


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
    """``stage``: fetch, read, expand, weights, convert, tokenizer, warm_up. ``fraction`` of it,
    from 0 to 1. ``command_id``: of the ``LoadModel`` that it is about.
    """

    stage: str
    fraction: float
    detail: str = ""
    command_id: str = ""


class TemplateNote(StrEnum):
    """What the model's chat template does to earlier turns, found out when it was loaded.

    REASONING: it drops the reasoning of earlier answers. SYSTEM: it moves the system message to the
    newest question. ANSWERS: it writes earlier answers in another way. REFUSES: it fails even for
    a plain chat. ABSENT: there is none and none was chosen, messages are given to the model as
    plain text.
    """

    NONE = ""
    REASONING = "reasoning"
    SYSTEM = "system"
    ANSWERS = "answers"
    REFUSES = "refuses"
    ABSENT = "absent"


class WeightsKept(StrEnum):
    """How a model's weights lie in memory. ``EXPANDED``: all in the model's dtype. ``PACKED``: what
    is quantised in the file stays so. ``BOTH``: packed for decoding, expanded for prompts.
    """

    EXPANDED = "expanded"
    PACKED = "packed"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts of the loaded model. Sizes in bytes, lengths in tokens.

    ``keeps_blocks``: whether the attention backend keeps keys and values in the pool's blocks.
    ``template_stable``: whether each turn of a conversation begins with all turns before, exactly;
    if not, a typical turn computes ``template_recomputed_tokens`` again, for the reason in
    ``template_note``. ``template_error``: the template's own words where it refuses.
    ``takes_system_message``: whether the template has a place for one. ``chat_template``: the name
    of the one in use, "" if it is the model's own; ``chat_template_choices``: those that can be
    chosen instead, without those whose control tokens the model does not have.
    ``weights_kept``: how, in the ``weights_bytes`` that they take.
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
    chat_template: str = ""
    chat_template_choices: tuple[str, ...] = ()
    weights_kept: WeightsKept = WeightsKept.EXPANDED


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
