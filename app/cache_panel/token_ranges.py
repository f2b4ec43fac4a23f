"""Which tokens of its sequence each message of a conversation is. Free of Qt."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from app.cache_panel.pool_model import PoolModel
from app.conversation import ASSISTANT, Conversation, Message, MessageStatus

OPEN_END = sys.maxsize
"""The end of an answer that is still growing."""


@dataclass(frozen=True, slots=True)
class TokenRange:
    """Positions ``start`` to ``end`` (excluded), with what the template puts around the message."""

    start: int
    end: int

    def blocks(self, block_size: int, num_blocks: int) -> range:
        """Logical blocks of a table of ``num_blocks`` that hold one of the tokens."""
        first = self.start // block_size
        last = num_blocks if self.end == OPEN_END else -(-self.end // block_size)
        return range(first, min(last, num_blocks))


def token_ranges(
    conversation: Conversation, running_prompt_tokens: int = 0
) -> dict[str, TokenRange]:
    """By message id, for those messages of the shown branch of which it is known.

    Counted back from the last answer whose exact tokens are known, up to what the model no longer
    reads. ``running_prompt_tokens``: of the request that is being answered, 0 if none is.
    """
    kept = conversation.path()[conversation.num_dropped() :]
    last = next((i for i in range(len(kept) - 1, -1, -1) if _is_known(kept[i])), -1)
    found: dict[str, TokenRange] = {}
    end = 0
    if last >= 0:
        end = _end_of(conversation, kept[: last + 1])
        _count_back(kept[: last + 1], end, found)
    if running_prompt_tokens > end:
        _count_on(kept[last + 1 :], end, running_prompt_tokens, found)
    return found


def _end_of(conversation: Conversation, kept: list[Message]) -> int:
    """Where the last message, an answer of known tokens, ends."""
    turns = [message.turn for message in kept if message.role == ASSISTANT]
    if not conversation.num_dropped() and None not in turns:
        # Each turn says what it added; so an answer that was continued counts once.
        return sum(len(t.prompt_ids) + len(t.output_ids) for t in turns if t is not None)
    usage, turn = kept[-1].usage, kept[-1].turn
    assert usage is not None
    assert turn is not None
    return usage.prompt_tokens + len(turn.output_ids)


def _is_known(message: Message) -> bool:
    return message.role == ASSISTANT and message.turn is not None and message.usage is not None


def _count_back(kept: list[Message], end: int, found: dict[str, TokenRange]) -> None:
    index = len(kept) - 1
    while index >= 0 and end > 0:
        answer = kept[index]
        if answer.role != ASSISTANT or answer.turn is None:
            return
        start = end - len(answer.turn.output_ids)
        found[answer.message_id] = TokenRange(max(0, start), end)
        asked = start - len(answer.turn.prompt_ids)
        if index > 0:
            found[kept[index - 1].message_id] = TokenRange(max(0, asked), max(0, start))
        end = asked
        index -= 2


def _count_on(rest: list[Message], end: int, num_prompt: int, found: dict[str, TokenRange]) -> None:
    if not rest or rest[-1].status is not MessageStatus.STREAMING:
        return
    found[rest[-1].message_id] = TokenRange(num_prompt, OPEN_END)
    if len(rest) == 2:
        found[rest[0].message_id] = TokenRange(end, num_prompt)


def blocks_of_message(model: PoolModel, conversation_id: str, tokens: TokenRange) -> frozenset[int]:
    """Physical blocks that hold a message's tokens now, in live tables or left in the cache."""
    found: set[int] = set()
    is_live = False
    for table in model.tables.values():
        if table.conversation_id == conversation_id:
            is_live = True
            places = tokens.blocks(model.block_size, len(table.blocks))
            found.update(table.blocks[index] for index in places)
    ghost = model.ghosts.get(conversation_id)
    if ghost is not None and not is_live:
        alive = model.ghost_alive(ghost)
        places = tokens.blocks(model.block_size, len(ghost.blocks))
        found.update(ghost.blocks[index] for index in places if alive[index])
    return frozenset(found)


def positions_of_block(model: PoolModel, block_id: int) -> dict[str, int]:
    """The first position that a block has in each conversation that uses it or used it last."""
    found: dict[str, int] = {}
    for table, index in model.places_of(block_id):
        found.setdefault(table.conversation_id, index * model.block_size)
    for conversation_id, ghost in model.ghosts.items():
        if conversation_id not in found and block_id in ghost.blocks:
            index = ghost.blocks.index(block_id)
            if bool(model.ghost_alive(ghost)[index]):
                found[conversation_id] = index * model.block_size
    return found
