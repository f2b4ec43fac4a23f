"""A family of conversations as a tree of blocks: each branch hangs where it parts. Free of Qt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.cache_panel.looks import LOST, Looks
from app.cache_panel.pool_model import Array, PoolModel
from app.cache_panel.pool_values import GhostTable
from app.conversation import ASSISTANT, Conversation, Message

LABEL_CHARS = 48
MOST_BRANCHES = 24


@dataclass(frozen=True, slots=True)
class Branch:
    """From the first message of a conversation down to ``leaf_id``.

    ``label``: the first words in which it differs from the branch before it, or its title.
    """

    conversation_id: str
    leaf_id: str
    label: str
    is_shown: bool


@dataclass(frozen=True, slots=True)
class BranchRow:
    """One branch and its blocks, logical block by logical block.

    ``codes``: their looks, ``LOST`` for what is not in the pool. The first ``start`` blocks are
    those of row ``parent`` and drawn there; -1 for a row that shares nothing.
    """

    branch: Branch
    number: int
    blocks: tuple[int, ...]
    codes: Array = field(repr=False)
    parent: int
    start: int

    @property
    def num_kept(self) -> int:
        """Blocks that are in the pool now."""
        return int(np.count_nonzero(self.codes != LOST))


def family_of(
    conversation: Conversation, open_conversations: Iterable[Conversation]
) -> list[Conversation]:
    """Open conversations that are forks of one another, that one first."""
    others = {c.conversation_id: c for c in open_conversations}
    root = _root(conversation, others)
    same = [c for c in others.values() if c is not conversation and _root(c, others) == root]
    return [conversation, *sorted(same, key=lambda c: c.number)]


def _root(conversation: Conversation, known: dict[str, Conversation]) -> str:
    seen: set[str] = set()
    while conversation.forked_from_id and conversation.conversation_id not in seen:
        seen.add(conversation.conversation_id)
        above = known.get(conversation.forked_from_id)
        if above is None:
            # Closed by now, and still the one that both came from.
            return conversation.forked_from_id
        conversation = above
    return conversation.conversation_id


def branches_of(family: Sequence[Conversation]) -> list[Branch]:
    """All branches, the shown one of each conversation first, the newest ``MOST_BRANCHES``."""
    found: list[Branch] = []
    for conversation in family:
        parents = {message.parent_id for message in conversation.messages.values()}
        leaves = [m for m in conversation.messages.values() if m.message_id not in parents]
        shown = conversation.active_leaf_id
        leaves.sort(key=lambda m: (m.message_id != shown, -m.created_at))
        paths = [conversation.path_to(leaf.message_id) for leaf in leaves]
        for index, leaf in enumerate(leaves):
            label = _label(conversation, paths[index], paths[:index])
            is_shown = leaf.message_id == shown
            found.append(Branch(conversation.conversation_id, leaf.message_id, label, is_shown))
    return found[:MOST_BRANCHES]


def _label(conversation: Conversation, path: list[Message], before: list[list[Message]]) -> str:
    if not before:
        return conversation.title
    seen = {message.message_id for other in before for message in other}
    own = [message for message in path if message.message_id not in seen]
    # A question says more than the answer that follows it.
    first = next((m for m in own if m.role != ASSISTANT), own[0] if own else path[-1])
    words = " ".join(first.content.split())
    return words if len(words) <= LABEL_CHARS else words[: LABEL_CHARS - 1].rstrip() + "…"


def rows_of(
    branches: Sequence[Branch],
    found: dict[tuple[str, str], GhostTable],
    num_blocks: dict[tuple[str, str], int],
    model: PoolModel,
    looks: Looks,
    numbers: dict[str, int],
) -> list[BranchRow]:
    """The tree. ``found``: the blocks of each (conversation, leaf) as they were located.

    ``num_blocks``: how many it has, in the pool or not. The running request of a conversation
    gives the blocks of its shown branch as they are now.
    """
    rows: list[BranchRow] = []
    live = {t.conversation_id: t for t in model.tables.values()}
    for branch in branches:
        key = branch.conversation_id, branch.leaf_id
        table = live.get(branch.conversation_id) if branch.is_shown else None
        if table is not None:
            blocks, codes = tuple(table.blocks), looks.codes(model, np.array(table.blocks, int))
        else:
            blocks, codes = _located(found.get(key), num_blocks.get(key, 0), model, looks)
        if not len(codes):
            continue
        parent, start = _parent(rows, blocks)
        number = numbers.get(branch.conversation_id, 0)
        rows.append(BranchRow(branch, number, blocks, codes, parent, start))
    return rows


def _located(
    ghost: GhostTable | None, num_blocks: int, model: PoolModel, looks: Looks
) -> tuple[tuple[int, ...], Array]:
    codes = np.full(num_blocks, LOST, np.int32)
    blocks = [-1] * num_blocks
    if ghost is not None and ghost.blocks:
        alive = model.ghost_alive(ghost)
        # What lies behind a gap cannot be used.
        kept = int(np.argmin(alive)) if not alive.all() else len(alive)
        kept = min(kept, num_blocks)
        blocks[:kept] = ghost.blocks[:kept]
        codes[:kept] = looks.codes(model, np.array(ghost.blocks[:kept], int))
    return tuple(blocks), codes


def _parent(rows: list[BranchRow], blocks: tuple[int, ...]) -> tuple[int, int]:
    """The row with the longest common beginning, and its length; (-1, 0) if none has any."""
    best, length = -1, 0
    for index, row in enumerate(rows):
        common = 0
        for mine, theirs in zip(blocks, row.blocks, strict=False):
            if mine != theirs or mine < 0:
                break
            common += 1
        if common > length:
            best, length = index, common
    return best, length
