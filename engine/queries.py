"""Questions about the engine that change nothing, each with one reply.

Each is a first half that encodes, perhaps in another thread, and a second one on the engine thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine.api.commands import (
    BlockText,
    Command,
    CompareBackends,
    CountTokens,
    EditCost,
    Forecast,
    Inspect,
    LocateBlocks,
)
from engine.api.errors import (
    EmptyMessageError,
    InvalidValueError,
    NotSupportedYetError,
)
from engine.api.events import (
    BlocksLocated,
    BlockTextReady,
    EditCostReady,
    ForecastReady,
    Reply,
    TokensCounted,
)
from engine.api.params import ChatMessage, ContextPolicy, SamplingParams
from engine.block_pool import BlockPool
from engine.context_policy import FittedPrompt, fit_prompt, kept_messages
from engine.encoding import Encode
from engine.model_loader import LoadedEngine, TextSide
from engine.request import Request

if TYPE_CHECKING:
    # With it comes torch, which is there only once a model is loaded.
    from engine.parity import ParityInspector

_UNLIKELY = "\u2042"
"""A character (asterism) to begin an edited message with: no ordinary text begins so."""

_MAX_NAMED = 4096
"""Evicted blocks that a forecast names one by one."""

Sliced = Generator[float, None, Reply]
"""A reply that takes long: it is worked on bit by bit, between two steps. Each bit tells what share
of the work is done, 0 to 1.
"""


def nothing(text: TextSide, command: Command) -> None:
    """The first half of what encodes nothing."""


@dataclass(frozen=True, slots=True)
class Query:
    """``encode`` gives what ``reply`` takes last."""

    reply: Callable[[LoadedEngine, Any, Any], Reply | Sliced]
    encode: Encode = nothing


def query_of(command: Command) -> Query:
    """How to answer a command.

    Raises:
        NotSupportedYetError: a command of the interface that this engine does not do yet.
    """
    query = _QUERIES.get(type(command))
    if query is None:
        name = type(command).__name__
        raise NotSupportedYetError(f"{name} is not supported yet.", command=name)
    return query


def is_query(command: Command) -> bool:
    """Whether it is a question that changes nothing."""
    return type(command) in _QUERIES


def _encode_text(text: TextSide, command: CountTokens) -> int:
    return len(text.tokenizer.encode_text(command.text))


def _count_tokens(engine: LoadedEngine, command: CountTokens, num_tokens: int) -> Reply:
    return TokensCounted(command.command_id, num_tokens)


def _block_text(engine: LoadedEngine, command: BlockText, _: None) -> Reply:
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
        # Of a block that waits for its copy the fill runs ahead of the tokens that are known.
        end = min(first + pool.fill(block_id), holders[0].num_committed_tokens)
        tokens = tuple(holders[0].token_ids[first:end])
    return BlockTextReady(
        command.command_id,
        block_id=block_id,
        text=engine.tokenizer.decode(tokens, skip_special=False),
        token_ids=tokens,
        first_position=first,
        conversation_ids=tuple(dict.fromkeys(r.conversation_id for r in holders)),
    )


def _fit_forecast(text: TextSide, command: Forecast) -> FittedPrompt:
    return fit_prompt(text, command.messages, command.context, max_tokens=command.max_tokens)


def _forecast(engine: LoadedEngine, command: Forecast, fitted: FittedPrompt) -> Reply:
    core, prompt = engine.core, fitted.prompt
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
    going = _evicted(core.pool, admission.hits, evicted)
    owners = (core.pool.view(block_id).owner for block_id in going)
    return ForecastReady(
        command.command_id,
        prompt_tokens=len(prompt.token_ids),
        cached_tokens=cached,
        blocks_needed=needed,
        blocks_shared=len(admission.hits),
        blocks_evicted=evicted,
        blocks_short=max(0, new + revived - core.pool.num_available),
        context_length=engine.info.context_length,
        evicted_conversation_ids=tuple(dict.fromkeys(owners)),
        evicted_block_ids=going[:_MAX_NAMED],
        cut=fitted.cut,
        recomputed_tokens=max(0, prompt.history_end - cached),
    )


def _evicted(pool: BlockPool, kept: Collection[int], num_evicted: int) -> tuple[int, ...]:
    """Cached blocks that would go, the first to go first."""
    if not num_evicted:
        return ()
    spared = frozenset(kept)
    # Few free blocks stand before the cached ones, or nothing would be evicted.
    cached = (b for b in pool.free if pool.hash_of(b) is not None and b not in spared)
    return tuple(islice(cached, num_evicted))


@dataclass(frozen=True, slots=True)
class _Edit:
    """The first ``num_kept`` of a conversation's tokens stay when a message reads differently."""

    token_ids: list[int]
    num_kept: int


def _compare_edited(text: TextSide, command: EditCost) -> _Edit:
    """What still matches once the message at the index reads differently."""
    messages, index = command.messages, command.index
    if not 0 <= index < len(messages):
        raise InvalidValueError(f"index = {index}: there are {len(messages)} messages", index=index)
    before, answered = _encode_answered(text, kept_messages(messages, command.context))
    edited = replace(messages[index], content=_UNLIKELY + messages[index].content, turn=None)
    # Answers after the edited message no longer stand for ids that were fed after it.
    rest = [replace(message, turn=None) for message in messages[index + 1 :]]
    changed = [*messages[:index], edited, *rest]
    context = command.context
    if not any(message is edited for message in kept_messages(changed, context)):
        context = ContextPolicy()
    after, _ = _encode_answered(text, kept_messages(changed, context))
    kept = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    return _Edit([*before, *answered], kept)


def _encode_answered(
    text: TextSide, messages: Sequence[ChatMessage]
) -> tuple[list[int], Sequence[int]]:
    """The last prompt's ids, and those of the answer that may follow it."""
    if messages[-1].role != "assistant":
        return text.encoder.encode(messages).token_ids, ()
    prompt, answer = text.encoder.encode(messages[:-1]).token_ids, messages[-1]
    turn = text.encoder.usable_turn(answer)
    if turn is not None:
        return prompt, turn.output_ids
    return prompt, text.tokenizer.encode_text(answer.content)


def _encode_whole(
    text: TextSide, messages: Sequence[ChatMessage], context: ContextPolicy
) -> list[int]:
    prompt, answer = _encode_answered(text, kept_messages(messages, context))
    return [*prompt, *answer]


def _edit_cost(engine: LoadedEngine, command: EditCost, edit: _Edit) -> Reply:
    core = engine.core
    size, rate = core.pool.block_size, core.metrics.prefill_tokens_per_s
    # What is not in the pool now is computed anyway when the conversation goes on.
    known = len(core.manager.known_prefix(edit.token_ids))
    lost = max(0, known - edit.num_kept // size)
    return EditCostReady(
        command.command_id,
        invalidated_tokens=len(edit.token_ids) - edit.num_kept,
        invalidated_blocks=lost,
        recompute_s=lost * size / rate if rate else 0.0,
        kept_tokens=edit.num_kept,
    )


def _encode_located(text: TextSide, command: LocateBlocks) -> list[int]:
    if not command.messages:
        raise EmptyMessageError("There is nothing to look for: the conversation is empty.")
    return _encode_whole(text, command.messages, command.context)


def _locate(engine: LoadedEngine, command: LocateBlocks, token_ids: list[int]) -> Reply:
    found = tuple(engine.core.manager.known_prefix(token_ids))
    return BlocksLocated(command.command_id, found, len(token_ids))


def _encode_inspected(text: TextSide, command: Inspect) -> list[int]:
    return _encode_whole(text, command.messages, command.context) if command.messages else []


def _inspect(engine: LoadedEngine, command: Inspect, token_ids: list[int]) -> Sliced:
    return _inspector(engine).inspect_slices(
        command.conversation_id, token_ids, command_id=command.command_id
    )


def _encode_compared(text: TextSide, command: CompareBackends) -> list[int]:
    if not command.messages:
        raise EmptyMessageError("There is nothing to compare: the conversation is empty.")
    return _encode_whole(text, command.messages, command.context)


def _compare_backends(
    engine: LoadedEngine, command: CompareBackends, token_ids: list[int]
) -> Sliced:
    return _inspector(engine).compare_slices(
        token_ids,
        command.backend,
        command.reference,
        conversation_id=command.conversation_id,
        command_id=command.command_id,
    )


def _inspector(engine: LoadedEngine) -> ParityInspector:
    if engine.inspector is None:
        raise NotSupportedYetError(f"{engine.info.backend} has no attention to inspect.")
    return engine.inspector


_QUERIES: Mapping[type[Command], Query] = MappingProxyType(
    {
        CompareBackends: Query(_compare_backends, _encode_compared),
        Inspect: Query(_inspect, _encode_inspected),
        CountTokens: Query(_count_tokens, _encode_text),
        BlockText: Query(_block_text),
        LocateBlocks: Query(_locate, _encode_located),
        Forecast: Query(_forecast, _fit_forecast),
        EditCost: Query(_edit_cost, _compare_edited),
    }
)
