"""BlockPool and its free queue against a naive model, on any sequence of operations."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from engine.api.events import BlockState
from engine.api.params import GREEDY
from engine.block_hash import block_hash, root_hash
from engine.block_pool import BlockPool
from engine.event_log import PoolEventLog
from engine.request import Request
from tests.helpers.machines import CountingMachine, run_machine
from tests.helpers.naive_pool import NaivePool
from tests.helpers.pool_fold import PoolFold

SIZE = 8
ROOT = root_hash("test")
FREE, CACHED, USED = BlockState.FREE, BlockState.CACHED, BlockState.USED

picks = st.integers(0, 999)
names = st.sampled_from("abc")
# Few different contents, so that twins and hits are frequent.
contents = st.integers(0, 2).map(lambda token: (token,) * SIZE)


def request(name: str) -> Request:
    return Request(name, name, [0], 1, GREEDY, 0, 0.0)


class PoolMachine(CountingMachine):
    """``held``: one entry for each reference that is not a pin. ``pinned``: one for each pin."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []
        self.pinned: list[int] = []
        self.hashes = [ROOT]

    @initialize(num_blocks=st.integers(1, 7))
    def begin(self, num_blocks):
        log = PoolEventLog()
        log.enabled = True
        self.pool = BlockPool(num_blocks, SIZE, log)
        self.naive = NaivePool(num_blocks, SIZE)
        self.fold = PoolFold(num_blocks)

    def choose(self, candidates: list[int], pick: int) -> int:
        return candidates[pick % len(candidates)]

    @precondition(lambda self: self.naive.queue())
    @rule(name=names)
    def allocate(self, name):
        block_id = self.pool.allocate(request(name), "test")
        assert block_id == self.naive.allocate(name)
        self.held.append(block_id)

    @precondition(lambda self: self.naive.ids(CACHED, USED))
    @rule(pick=picks, name=names)
    def hit(self, pick, name):
        block_id = self.choose(self.naive.ids(CACHED, USED), pick)
        self.pool.hit(block_id, request(name), "test")
        self.naive.hit(block_id, name)
        self.held.append(block_id)

    @precondition(lambda self: self.held)
    @rule(pick=picks, name=names)
    def release(self, pick, name):
        block_id = self.held.pop(pick % len(self.held))
        self.pool.release(block_id, request(name), "test")
        self.naive.release(block_id)

    @precondition(lambda self: self.held)
    @rule(pick=picks, fill=st.sampled_from([1, SIZE - 1, SIZE, SIZE, SIZE]), name=names)
    def compute(self, pick, fill, name):
        block_id = self.choose(self.held, pick)
        if self.naive.blocks[block_id].block_hash is None:
            self.pool.set_fill(block_id, fill, request(name), 1)
            self.naive.blocks[block_id].fill = fill

    @precondition(lambda self: self.held)
    @rule(pick=picks, parent=picks, tokens=contents, name=names)
    def publish(self, pick, parent, tokens, name):
        block_id = self.choose(self.held, pick)
        before = self.hashes[parent % len(self.hashes)]
        digest = block_hash(before, tokens)
        if self.naive.blocks[block_id].fill < SIZE:
            with pytest.raises(AssertionError, match="full block"):
                self.pool.publish(block_id, digest, before, tokens, request(name))
            return
        expected = self.naive.publish(block_id, digest, before, tokens)
        assert self.pool.publish(block_id, digest, before, tokens, request(name)) is expected
        if expected and digest not in self.hashes:
            self.hashes.append(digest)

    @precondition(lambda self: self.held and self.naive.queue())
    @rule(pick=picks, name=names)
    def copy(self, pick, name):
        source = self.choose(self.held, pick)
        block_id = self.pool.copy(source, request(name))
        assert block_id == self.naive.allocate(name)
        self.naive.blocks[block_id].fill = self.naive.blocks[source].fill
        self.held.append(block_id)

    def published(self) -> list[int]:
        return [i for i, block in enumerate(self.naive.blocks) if block.block_hash]

    @precondition(lambda self: self.published())
    @rule(pick=picks, name=names)
    def pin(self, pick, name):
        block_id = self.choose(self.published(), pick)
        self.pool.pin(block_id, name)
        self.naive.pin(block_id, name)
        self.pinned.append(block_id)

    @precondition(lambda self: self.pinned)
    @rule(pick=picks, name=names)
    def unpin(self, pick, name):
        block_id = self.pinned.pop(pick % len(self.pinned))
        self.pool.unpin(block_id, name)
        self.naive.unpin(block_id)

    @rule()
    def drop_cached(self):
        assert self.pool.drop_cached("test") == self.naive.drop_cached()

    @precondition(lambda self: self.naive.ids(FREE, CACHED))
    @rule(pick=picks)
    def take_back_what_nobody_holds(self, pick):
        block_id = self.choose(self.naive.ids(FREE, CACHED), pick)
        with pytest.raises(AssertionError, match="more often than taken"):
            self.pool.release(block_id, request("a"), "test")
        with pytest.raises(AssertionError, match="in the free queue already"):
            self.pool.free.push_back(block_id)
        with pytest.raises(AssertionError, match="not pinned"):
            self.pool.unpin(block_id, "a")

    @precondition(lambda self: self.held)
    @rule(pick=picks)
    def evict_what_somebody_holds(self, pick):
        with pytest.raises(AssertionError, match="in use"):
            self.pool.evict(self.choose(self.held, pick), "test")

    @invariant()
    def equals_the_model(self):
        self.count()
        pool, naive = self.pool, self.naive
        for block_id, block in enumerate(naive.blocks):
            assert pool.view(block_id) == block.view()
            parent, tokens = block.content or (None, ())
            assert (pool.parent_of(block_id), pool.tokens_of(block_id)) == (parent, tokens)
        assert list(pool.free) == naive.queue()
        counts = [len(naive.ids(state)) for state in (FREE, CACHED, USED)]
        assert [pool.num_free, pool.num_cached, pool.num_used] == counts
        assert pool.num_shared == sum(block.ref_count > 1 for block in naive.blocks)
        assert pool.num_pinned == sum(block.pins > 0 for block in naive.blocks)

    @invariant()
    def finds_what_is_published_and_nothing_else(self):
        for parent in self.hashes:
            for token in range(3):
                tokens = (token,) * SIZE
                digest = block_hash(parent, tokens)
                found = self.naive.canonical(digest)
                assert self.pool.lookup(digest, parent, tokens) == found
                # A hash that two contents share serves neither of them the other.
                assert self.pool.lookup(digest, parent, (*tokens[1:], 9)) is None
                assert self.pool.lookup(digest, b"another parent", tokens) is None

    @invariant()
    def recounts_and_events_agree(self):
        assert self.pool.violations([[block_id] for block_id in self.held]) == []
        self.fold.apply(self.pool.log.drain())
        self.fold.check(self.pool, {})

    def teardown(self):
        if hasattr(self, "fold"):
            self.fold.rewind()


def test_pool_equals_its_model(record_property):
    operations = run_machine(PoolMachine, examples=120, steps=50)
    record_property("operations", operations)
    assert operations >= 3_000
