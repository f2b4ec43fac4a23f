"""Chained block hashes.

Two blocks with one hash hold the KV of the same tokens after the same prefix.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

SHORT_HASH_BYTES = 8
NO_SHORT_HASH = bytes(SHORT_HASH_BYTES)


def root_hash(*seeds: str) -> bytes:
    """The parent of every first block.

    ``seeds``: whatever changes the KV of equal tokens (weights, dtype, attention backend) and a
    salt. Lengths are hashed too, so that no two lists of seeds run into one another.
    """
    digest = hashlib.sha256()
    for seed in seeds:
        data = seed.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def block_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """SHA-256 over the parent's hash and the block's token ids (32 bits each, little-endian)."""
    digest = hashlib.sha256(parent)
    digest.update(array("I", token_ids).tobytes())
    return digest.digest()


class HashChain:
    """The block hashes of one request, grown as its tokens become known.

    Each full block is hashed once, however often the chain is asked for.
    """

    __slots__ = ("_block_size", "_hashes", "_root")

    def __init__(self, root: bytes, block_size: int) -> None:
        self._root = root
        self._block_size = block_size
        self._hashes: list[bytes] = []

    def upto(self, token_ids: Sequence[int], num_blocks: int) -> list[bytes]:
        """Hashes of the first ``num_blocks`` full blocks. The list is the chain's own: do not keep
        it.

        The tokens of those blocks must be known for good.
        """
        size = self._block_size
        hashes = self._hashes
        while len(hashes) < num_blocks:
            index = len(hashes)
            parent = hashes[-1] if hashes else self._root
            hashes.append(block_hash(parent, token_ids[index * size : (index + 1) * size]))
        return hashes

    def cut(self, num_blocks: int) -> None:
        """Forgets all but the first ``num_blocks`` hashes: the tokens after them change."""
        del self._hashes[num_blocks:]

    def parent_of(self, index: int) -> bytes:
        """The hash before block ``index``; the root for the first."""
        return self._hashes[index - 1] if index else self._root
