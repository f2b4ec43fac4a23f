"""The order in which blocks are given away.

A doubly linked list over block ids, O(1) everywhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

_OUTSIDE = -1


class FreeBlockQueue:
    """Blocks that nobody uses. The front is taken first.

    Never-hashed blocks are put at the front, cached ones at the back; so an empty block is always
    taken before a cached one, and cached ones go in least-recently-used order.
    A sentinel (index ``num_blocks``) closes the ring.
    """

    __slots__ = ("_length", "_next", "_previous", "_sentinel")

    def __init__(self, num_blocks: int) -> None:
        self._sentinel = num_blocks
        ring = range(num_blocks + 1)
        self._next = array("i", [(i + 1) % (num_blocks + 1) for i in ring])
        self._previous = array("i", [(i - 1) % (num_blocks + 1) for i in ring])
        self._length = num_blocks

    def __len__(self) -> int:
        return self._length

    def __contains__(self, block_id: int) -> bool:
        return self._next[block_id] != _OUTSIDE

    def __iter__(self) -> Iterator[int]:
        """Block ids from the front. The queue must not change meanwhile.

        One more than there should be at most: a broken ring must not hold up who looks for faults.
        """
        block_id = self._next[self._sentinel]
        for _ in range(self._length + 1):
            if block_id == self._sentinel:
                return
            yield block_id
            block_id = self._next[block_id]

    def front(self) -> int:
        """The block that would be taken next; the queue must not be empty."""
        assert self._length, "the free queue is empty"
        return self._next[self._sentinel]

    def remove(self, block_id: int) -> None:
        """Takes a block out, wherever it stands."""
        after, before = self._next[block_id], self._previous[block_id]
        assert after != _OUTSIDE, f"block {block_id} is not in the free queue"
        self._next[before] = after
        self._previous[after] = before
        self._next[block_id] = self._previous[block_id] = _OUTSIDE
        self._length -= 1

    def push_front(self, block_id: int) -> None:
        """Puts a never-hashed block where it is taken next."""
        self._insert(block_id, self._sentinel, self._next[self._sentinel])

    def push_back(self, block_id: int) -> None:
        """Puts a cached block where it is taken last."""
        self._insert(block_id, self._previous[self._sentinel], self._sentinel)

    def _insert(self, block_id: int, before: int, after: int) -> None:
        assert self._next[block_id] == _OUTSIDE, f"block {block_id} is in the free queue already"
        self._next[before] = self._previous[after] = block_id
        self._previous[block_id] = before
        self._next[block_id] = after
        self._length += 1
