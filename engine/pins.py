"""Pinned prefixes: blocks that stay in the pool although nobody uses them."""

from __future__ import annotations

from collections.abc import Sequence

from engine.block_manager import BlockManager


class Pins:
    """Which blocks each conversation has pinned. A pin holds one reference."""

    def __init__(self, manager: BlockManager) -> None:
        self._manager = manager
        self._blocks: dict[str, list[int]] = {}
        self._token_ids: dict[str, tuple[int, ...]] = {}
        self._lapsed: set[str] = set()

    def pin(self, conversation_id: str, token_ids: Sequence[int]) -> int:
        """Pins the blocks that hold the longest known prefix of these tokens; replaces earlier
        pins.

        Returns how many blocks are pinned now. What is not in the pool yet cannot be pinned.
        """
        found = self._manager.known_prefix(token_ids)
        pool = self._manager.pool
        for block_id in found:
            pool.pin(block_id, conversation_id)
        # Only now, so that a block of both never falls out of the cache in between.
        self.unpin(conversation_id)
        self._blocks[conversation_id] = found
        self._token_ids[conversation_id] = tuple(token_ids)
        return len(found)

    def unpin(self, conversation_id: str) -> None:
        """Lets the blocks of a conversation go; nothing happens if it has none."""
        self._lapsed.discard(conversation_id)
        self._token_ids.pop(conversation_id, None)
        for block_id in reversed(self._blocks.pop(conversation_id, [])):
            self._manager.pool.unpin(block_id, conversation_id)

    def trim(self, conversation_id: str, token_ids: Sequence[int]) -> None:
        """Lets go of what a conversation has pinned beyond the common beginning with these tokens;
        nothing happens if it has no pins.
        """
        pinned = self._token_ids.get(conversation_id)
        if pinned is None:
            return
        pairs = enumerate(zip(pinned, token_ids, strict=False))
        shorter = min(len(pinned), len(token_ids))
        num_kept = next((i for i, (old, new) in pairs if old != new), shorter)
        self._token_ids[conversation_id] = pinned[:num_kept]
        blocks = self._blocks.get(conversation_id, [])
        num_blocks = num_kept // self._manager.block_size
        while len(blocks) > num_blocks:
            self._manager.pool.unpin(blocks.pop(), conversation_id)

    def lapse(self) -> None:
        """Lets all blocks go because their content is void; the wish to have them pinned stays."""
        wanted = dict(self._token_ids)
        for conversation_id in wanted:
            self.unpin(conversation_id)
        self._token_ids = wanted
        self._lapsed = set(wanted)

    def lost(self) -> None:
        """The pool was reset: no block is pinned any more; the wish to have them pinned stays."""
        self._blocks.clear()
        self._lapsed = set(self._token_ids)

    def renew(self, conversation_id: str) -> None:
        """Pins again what lapsed, once it has been computed anew; O(1) where nothing lapsed."""
        if conversation_id not in self._lapsed:
            return
        token_ids = self._token_ids[conversation_id]
        wanted = len(token_ids) // self._manager.block_size
        if self.pin(conversation_id, token_ids) < wanted:
            self._lapsed.add(conversation_id)
