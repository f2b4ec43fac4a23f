"""The pool: states, counts, queue order, events. Exact block ids throughout."""

from itertools import pairwise

import pytest

from engine.api.events import BlockChanged, BlockEventKind, BlockState
from engine.api.params import GREEDY
from engine.api.snapshot import CACHED, FREE, USED
from engine.block_hash import block_hash, root_hash
from engine.block_pool import BlockPool
from engine.pool_audit import audit
from engine.request import Request

ROOT = root_hash("test")


def request(name: str = "r", conversation: str = "c") -> Request:
    return Request(name, conversation, [0], 1, GREEDY, 0, 0.0)


def store(pool: BlockPool, block_id: int, tokens: tuple[int, ...], parent: bytes = ROOT) -> bytes:
    """Computes and publishes a block."""
    pool.set_fill(block_id, pool.block_size, request(), 1)
    digest = block_hash(parent, tokens)
    assert pool.publish(block_id, digest, parent, tokens, request())
    return digest


def test_blocks_are_given_in_address_order_first():
    pool = BlockPool(3, 8)
    assert [pool.allocate(request(), "t") for _ in range(3)] == [0, 1, 2]
    assert (pool.num_free, pool.num_cached, pool.num_used) == (0, 0, 3)


def test_unhashed_block_comes_back_to_the_front():
    pool = BlockPool(3, 8)
    for _ in range(2):
        pool.allocate(request(), "t")
    pool.release(1, request(), "t")
    assert list(pool.free) == [1, 2]


def test_hashed_block_goes_to_the_back_and_is_cached():
    pool = BlockPool(3, 2)
    pool.allocate(request(), "t")
    digest = store(pool, 0, (1, 2))
    pool.release(0, request(), "t")
    assert list(pool.free) == [1, 2, 0]
    assert (pool.num_free, pool.num_cached, pool.num_used) == (2, 1, 0)
    assert pool.lookup(digest, ROOT, [1, 2]) == 0


def test_cached_blocks_are_evicted_least_recently_used_first():
    pool = BlockPool(2, 1)
    for token in (7, 8):
        store(pool, pool.allocate(request(), "t"), (token,))
    pool.release(1, request(), "t")
    pool.release(0, request(), "t")
    assert pool.allocate(request(), "t") == 1
    assert pool.lookup(block_hash(ROOT, (8,)), ROOT, [8]) is None
    assert pool.lookup(block_hash(ROOT, (7,)), ROOT, [7]) == 0


def test_evicted_block_has_lost_its_hash_before_it_is_used_again():
    pool = BlockPool(1, 1)
    digest = store(pool, pool.allocate(request(), "t"), (7,))
    pool.release(0, request(), "t")
    pool.allocate(request(), "t")
    assert pool.hash_of(0) is None
    assert pool.fill(0) == 0
    assert pool.lookup(digest, ROOT, [7]) is None


def test_hit_takes_a_cached_block_out_of_the_queue():
    pool = BlockPool(2, 1)
    digest = store(pool, pool.allocate(request(), "t"), (7,))
    pool.release(0, request(), "t")
    pool.hit(pool.lookup(digest, ROOT, [7]), request(), "prefix")
    assert list(pool.free) == [1]
    assert (pool.num_cached, pool.num_used, pool.ref_count(0)) == (0, 1, 1)


def test_second_reference_makes_it_shared():
    pool = BlockPool(2, 1)
    store(pool, pool.allocate(request(), "t"), (7,))
    pool.hit(0, request("other"), "prefix")
    assert (pool.num_shared, pool.ref_count(0)) == (1, 2)
    pool.release(0, request(), "t")
    assert (pool.num_shared, pool.num_used, pool.num_cached) == (0, 1, 0)


def test_collision_does_not_serve_another_prompt():
    pool = BlockPool(2, 2)
    digest = store(pool, pool.allocate(request(), "t"), (1, 2))
    assert pool.lookup(digest, ROOT, [1, 3]) is None
    assert pool.lookup(digest, root_hash("other"), [1, 2]) is None


def test_first_published_stays_canonical():
    pool = BlockPool(2, 1)
    digest = store(pool, pool.allocate(request(), "t"), (7,))
    second = pool.allocate(request(), "t")
    pool.set_fill(second, 1, request(), 1)
    assert not pool.publish(second, digest, ROOT, (7,), request())
    assert pool.hash_of(second) is None
    assert pool.lookup(digest, ROOT, [7]) == 0


def test_only_a_computed_block_can_be_published():
    pool = BlockPool(1, 2)
    pool.allocate(request(), "t")
    pool.set_fill(0, 1, request(), 1)
    with pytest.raises(AssertionError, match="full block"):
        pool.publish(0, b"h" * 32, ROOT, (1, 2), request())


def test_releasing_twice_is_caught():
    pool = BlockPool(1, 1)
    pool.allocate(request(), "t")
    pool.release(0, request(), "t")
    with pytest.raises(AssertionError, match="more often than taken"):
        pool.release(0, request(), "t")


def test_pin_holds_a_reference():
    pool = BlockPool(2, 1)
    store(pool, pool.allocate(request(), "t"), (7,))
    pool.pin(0, "c")
    pool.release(0, request(), "t")
    assert (pool.num_used, pool.num_cached, pool.num_pinned) == (1, 0, 1)
    assert pool.violations([]) == []
    pool.unpin(0, "c")
    assert (pool.num_used, pool.num_cached, pool.num_pinned) == (0, 1, 0)


def test_drop_cached_empties_the_cache_only():
    pool = BlockPool(3, 1)
    for token in (1, 2):
        store(pool, pool.allocate(request(), "t"), (token,))
    pool.release(0, request(), "t")
    assert pool.drop_cached("test") == 1
    assert (pool.num_free, pool.num_cached, pool.num_used) == (2, 0, 1)
    assert pool.violations([[1]]) == []


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda pool: pool.free.remove(1), "its place in the queue"),
        (lambda pool: pool._columns.ref_count.__setitem__(0, 2), "2, but 1 table entries"),
        (lambda pool: pool._columns.state.__setitem__(1, USED), "state 2, expected 0"),
        (lambda pool: pool._hash.__setitem__(0, b"x" * 32), "its hash leads to another block"),
        (lambda pool: setattr(pool, "num_cached", 1), "counted free/cached/used"),
    ],
)
def test_damage_is_found(damage, words):
    pool = BlockPool(2, 1)
    pool.allocate(request(), "t")
    assert pool.violations([[0]]) == []
    damage(pool)
    assert any(words in text for text in pool.violations([[0]]))


LARGE_DAMAGE = [
    (lambda pool: pool.free.remove(5000), "its place in the queue"),
    (lambda pool: pool._columns.ref_count.__setitem__(5000, 1), "1, but 0 table entries"),
    (lambda pool: pool._columns.pins.__setitem__(5000, 1), "0, but 0 table entries and 1 pins"),
    (lambda pool: pool._columns.state.__setitem__(5000, USED), "state 2, expected 0"),
    (lambda pool: pool._hash.__setitem__(5000, b"x" * 32), "its hash leads to another block"),
]


@pytest.mark.parametrize(("damage", "words"), LARGE_DAMAGE)
def test_damage_is_found_among_blocks_that_were_never_used(damage, words):
    """They are not looked at one by one."""
    pool = BlockPool(9000, 1)
    pool.allocate(request(), "t")
    damage(pool)
    parts = list(audit(pool, [[0]], 256))
    assert any("block 5000" in text and words in text for part in parts for text in part)


def test_a_table_with_a_block_that_was_never_used_is_found():
    pool = BlockPool(9000, 1)
    (found,) = [part for part in audit(pool, [[5000]], 256) if part]
    assert found == ["block 5000: ref_count 0, but 1 table entries and 0 pins"]


def test_a_count_can_be_left_after_every_part_of_a_large_pool():
    """What is looked at one by one makes parts of its own, and so do 16 times as many others."""
    pool = BlockPool(64 * 1024, 1)
    for _ in range(1024):
        pool.allocate(request(), "t")
    table = list(range(1024))
    parts = list(audit(pool, [table], 256))
    assert not any(parts)
    walked = 1 + -(-63 * 1024 // 4096)
    one_by_one, skipped = 1024 // 256, 63 * 1024 // 4096
    assert len(parts) == walked + one_by_one + skipped + 1


def test_columns_are_flat_little_endian():
    pool = BlockPool(3, 4)
    store(pool, pool.allocate(request(conversation="one"), "t"), (1, 2, 3, 4))
    pool.release(0, request(), "t")
    pool.allocate(request(conversation="two"), "t")
    columns = pool.columns()
    assert list(columns.state) == [CACHED, USED, FREE]
    assert columns.ref_count == bytes([0, 0, 1, 0, 0, 0])
    assert columns.fill == bytes([4, 0, 0, 0, 0, 0])
    assert columns.block_hash[:8] == pool.hash_of(0)[:8]
    assert columns.block_hash[8:] == bytes(16)
    owners = [int.from_bytes(columns.owner[i : i + 4], "little", signed=True) for i in (0, 4, 8)]
    assert [pool.owners[i] if i >= 0 else None for i in owners] == ["one", "two", None]


def test_every_change_is_one_event_with_before_and_after():
    pool = BlockPool(1, 1)
    pool.log.enabled = True
    block = pool.allocate(request(), "prompt")
    store(pool, block, (7,))
    pool.release(block, request(), "finish")
    pool.allocate(request("r2", "c2"), "prompt")
    events = pool.log.drain()
    assert all(isinstance(event, BlockChanged) for event in events)
    assert [event.kind for event in events] == [
        BlockEventKind.ALLOCATED,
        BlockEventKind.FILLED,
        BlockEventKind.STORED,
        BlockEventKind.RELEASED,
        BlockEventKind.REMOVED,
        BlockEventKind.ALLOCATED,
    ]
    assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6]
    for earlier, later in pairwise(events):
        assert later.before == earlier.after
    assert events[4].before.state is BlockState.CACHED
    assert events[4].after.state is BlockState.FREE
    assert events[5].after.owner == "c2"


def test_nobody_listening_means_no_events():
    pool = BlockPool(1, 1)
    pool.allocate(request(), "t")
    assert pool.log.seq == 0
    assert pool.log.drain() == ()
