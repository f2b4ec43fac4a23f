"""Questions about the engine that change nothing, each with one reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.api.commands import (
    BlockText,
    Command,
    CompareBackends,
    CountTokens,
    EditCost,
    Forecast,
    Inspect,
)
from engine.api.errors import (
    EmptyMessageError,
    InvalidValueError,
    NoModelError,
    NotSupportedYetError,
)
from engine.api.events import BlockTextReady, EditCostReady, ForecastReady, Reply, TokensCounted
from engine.api.params import ContextPolicy, SamplingParams
from engine.context_policy import fit_prompt, kept_messages
from engine.model_loader import LoadedEngine
from engine.request import Request

if TYPE_CHECKING:
    # With it comes torch, which is there only once a model is loaded.
    from engine.parity import ParityInspector

_UNLIKELY = "\u2042"
"""A character (asterism) to begin an edited message with: no ordinary text begins so."""


def answer(engine: LoadedEngine | None, command: Command) -> Reply:
    """The reply to a query.

    Raises:
        NotSupportedYetError: a command of the interface that this engine does not do yet.
        NoModelError: nothing is loaded.
    """
    handler = _HANDLERS.get(type(command))
    if handler is None:
        name = type(command).__name__
        raise NotSupportedYetError(f"{name} is not supported yet.", command=name)
    if engine is None:
        raise NoModelError("No model is loaded.")
    return handler(engine, command)


def _count_tokens(engine: LoadedEngine, command: Command) -> Reply:
    assert isinstance(command, CountTokens)
    return TokensCounted(command.command_id, len(engine.tokenizer.encode_text(command.text)))


def _block_text(engine: LoadedEngine, command: Command) -> Reply:
    assert isinstance(command, BlockText)
    pool = engine.core.pool
    block_id = command.block_id
    if not 0 <= block_id < pool.num_blocks:
        raise InvalidValueError(
            f"There is no block {block_id}: the pool has {pool.num_blocks}.", block_id=block_id
        )
    holders = [r for r in engine.core.requests.values() if block_id in r.block_table]
    tokens, first = pool.tokens_of(block_id), -1
    if holders:
        index = holders[0].block_table.index(block_id)
        first = index * pool.block_size
        tokens = tuple(holders[0].token_ids[first : first + pool.fill(block_id)])
    return BlockTextReady(
        command.command_id,
        block_id=block_id,
        text=engine.tokenizer.decode(tokens, skip_special=False),
        token_ids=tokens,
        first_position=first,
        conversation_ids=tuple(dict.fromkeys(r.conversation_id for r in holders)),
    )


def _forecast(engine: LoadedEngine, command: Command) -> Reply:
    assert isinstance(command, Forecast)
    core = engine.core
    fitted = fit_prompt(engine, command.messages, command.context, max_tokens=command.max_tokens)
    prompt = fitted.prompt
    request = Request(
        request_id="forecast",
        conversation_id=command.conversation_id,
        token_ids=prompt.token_ids,
        num_prompt_tokens=len(prompt.token_ids),
        params=SamplingParams(),
        seed=0,
        arrival_s=0.0,
    )
    room = engine.info.context_length - len(prompt.token_ids)
    num_output = min(command.max_tokens or room, room)
    admission = core.manager.examine(request, reserve=0)
    needed = core.manager.num_blocks_for(len(prompt.token_ids) + max(num_output, 1))
    new = needed - len(admission.hits)
    revived = sum(core.pool.is_unused(block_id) for block_id in admission.hits)
    evicted = max(0, min(new - core.pool.num_free, core.pool.num_cached - revived))
    cached = len(admission.hits) * core.pool.block_size
    return ForecastReady(
        command.command_id,
        prompt_tokens=len(prompt.token_ids),
        cached_tokens=cached,
        blocks_needed=needed,
        blocks_shared=len(admission.hits),
        blocks_evicted=evicted,
        blocks_short=max(0, new + revived - core.pool.num_available),
        context_length=engine.info.context_length,
        cut=fitted.cut,
        recomputed_tokens=max(0, prompt.history_end - cached),
    )


def _edit_cost(engine: LoadedEngine, command: Command) -> Reply:
    """What no longer matches once the message at the index reads differently."""
    assert isinstance(command, EditCost)
    messages, index = command.messages, command.index
    if not 0 <= index < len(messages):
        raise InvalidValueError(f"index = {index}: there are {len(messages)} messages", index=index)
    before = engine.encoder.encode(kept_messages(messages, command.context)).token_ids
    edited = replace(messages[index], content=_UNLIKELY + messages[index].content, turn=None)
    # Answers after the edited message no longer stand for ids that were fed after it.
    rest = [replace(message, turn=None) for message in messages[index + 1 :]]
    changed = [*messages[:index], edited, *rest]
    context = command.context
    if not any(message is edited for message in kept_messages(changed, context)):
        context = ContextPolicy()
    after = engine.encoder.encode(kept_messages(changed, context)).token_ids
    kept = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    core = engine.core
    size, rate = core.pool.block_size, core.metrics.prefill_tokens_per_s
    invalidated = len(before) - kept
    return EditCostReady(
        command.command_id,
        invalidated_tokens=invalidated,
        invalidated_blocks=-(-len(before) // size) - kept // size,
        recompute_s=(len(before) - kept // size * size) / rate if rate else 0.0,
    )


def _inspect(engine: LoadedEngine, command: Command) -> Reply:
    assert isinstance(command, Inspect)
    inspector = _inspector(engine)
    messages = kept_messages(command.messages, command.context)
    token_ids = engine.encoder.encode(messages).token_ids if messages else ()
    return inspector.inspect_conversation(
        command.conversation_id, token_ids, command_id=command.command_id
    )


def _compare_backends(engine: LoadedEngine, command: Command) -> Reply:
    assert isinstance(command, CompareBackends)
    if not command.messages:
        raise EmptyMessageError("There is nothing to compare: the conversation is empty.")
    messages = kept_messages(command.messages, command.context)
    token_ids = engine.encoder.encode(messages).token_ids
    return _inspector(engine).compare(
        token_ids, command.backend, command.reference, command_id=command.command_id
    )


def _inspector(engine: LoadedEngine) -> ParityInspector:
    if engine.inspector is None:
        raise NotSupportedYetError(f"{engine.info.backend} has no attention to inspect.")
    return engine.inspector


_HANDLERS: dict[type[Command], Callable[[LoadedEngine, Command], Reply]] = {
    CompareBackends: _compare_backends,
    Inspect: _inspect,
    CountTokens: _count_tokens,
    BlockText: _block_text,
    Forecast: _forecast,
    EditCost: _edit_cost,
}
