"""What is wrong with a pool: everything is counted again."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from engine.api.snapshot import CACHED, FREE, USED

if TYPE_CHECKING:
    from engine.pool_state import PoolState


def audit(pool: PoolState, tables: Iterable[Sequence[int]], part_size: int) -> Iterator[list[str]]:
    """What is wrong, found bit by bit, so that an idle engine can count and still answer. Worth
    nothing once the pool has changed since the first part.

    Args:
        pool: the pool.
        tables: all live block tables.
        part_size: blocks that are looked at one by one in a part: a microsecond or two each. Of
            entries of the queue and of the tables a part has sixteen times as many.
    """
    many = part_size * 16
    references = array("I", bytes(4 * pool.num_blocks))
    entries = chain.from_iterable(tables)
    while part := list(islice(entries, many)):
        for block_id in part:
            references[block_id] += 1
        yield []
    queued = bytearray(pool.num_blocks)
    length, queue = 0, iter(pool.free)
    while part := list(islice(queue, many)):
        for block_id in part:
            queued[block_id] = 1
        length += len(part)
        yield []
    if not length == queued.count(1) == len(pool.free):
        yield ["the free queue has duplicates or a wrong length"]
    counts, num_shared, num_hashed, num_skipped = [0, 0, 0], 0, 0, 0
    for first in range(0, pool.num_blocks, part_size):
        last = min(first + part_size, pool.num_blocks)
        is_free = queued.count(1, first, last) == last - first
        if is_free and not any(references[first:last]) and pool.is_untouched(first, last):
            # Most of a large pool.
            counts[FREE] += last - first
            num_skipped += 1
            if num_skipped % 16 == 0:
                yield []
            continue
        found: list[str] = []
        for block_id in range(first, last):
            counts[pool.state(block_id)] += 1
            num_shared += pool.ref_count(block_id) > 1
            num_hashed += pool.hash_of(block_id) is not None
            found.extend(_block_violations(pool, block_id, references[block_id]))
        yield found
    found = []
    if counts != [pool.num_free, pool.num_cached, pool.num_used]:
        found.append(
            f"counted free/cached/used {counts}, kept "
            f"[{pool.num_free}, {pool.num_cached}, {pool.num_used}]"
        )
    if num_shared != pool.num_shared:
        found.append(f"{num_shared} blocks are shared, kept count {pool.num_shared}")
    if num_hashed != pool.num_hashed:
        found.append("the hash index and the blocks' hashes differ in number")
    yield found


def _block_violations(pool: PoolState, block_id: int, references: int) -> list[str]:
    found: list[str] = []
    count, block_hash = pool.ref_count(block_id), pool.hash_of(block_id)
    pins, state, fill = pool.pins(block_id), pool.state(block_id), pool.fill(block_id)
    if count != references + pins:
        found.append(
            f"block {block_id}: ref_count {count}, but {references} table entries and {pins} pins"
        )
    if (block_id in pool.free) != (count == 0):
        found.append(f"block {block_id}: ref_count {count} and its place in the queue disagree")
    expected = USED if count else (CACHED if block_hash is not None else FREE)
    if state != expected:
        found.append(f"block {block_id}: state {state}, expected {expected}")
    if block_hash is not None and pool.block_of(block_hash) != block_id:
        found.append(f"block {block_id}: its hash leads to another block")
    if block_hash is not None and fill != pool.block_size:
        found.append(f"block {block_id}: hashed with {fill} tokens computed")
    return found
