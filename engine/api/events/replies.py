"""Answers to commands, by the id of the command."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.errors import ErrorInfo
from engine.api.events.base import Event
from engine.api.events.model import ModelInfo
from engine.api.model_description import ModelDescription
from engine.api.params import ContextCut, EngineConfig


@dataclass(frozen=True, slots=True)
class Reply(Event):
    command_id: str


@dataclass(frozen=True, slots=True)
class CommandFailed(Reply):
    command: str
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class ModelDescribed(Reply):
    """``path``: as it was asked for."""

    path: str
    description: ModelDescription


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
    """``evicted_conversation_ids``: whose cached blocks would go, the first to go first;
    ``evicted_block_ids``: the first of these blocks, some thousands at most. ``cut``: messages
    that would be dropped. ``recomputed_tokens``: tokens of earlier turns that are not in
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
    evicted_block_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryProgress(Event):
    """How far the question with ``query_id`` has come: ``fraction`` 0 to 1. Its reply follows."""

    query_id: str
    fraction: float


@dataclass(frozen=True, slots=True)
class EditCostReady(Reply):
    """``kept_tokens``: those before the edit, which stay. The rest is invalidated.

    ``invalidated_blocks``: full blocks that hold invalidated tokens now; ``recompute_s``: to
    compute as much again.
    """

    invalidated_tokens: int
    invalidated_blocks: int
    recompute_s: float
    kept_tokens: int = 0


@dataclass(frozen=True, slots=True)
class BlocksLocated(Reply):
    """``block_ids``: full blocks that hold its first tokens, in order. ``num_tokens``: of all."""

    block_ids: tuple[int, ...]
    num_tokens: int


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
