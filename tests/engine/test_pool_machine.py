"""BlockPool and its free queue against a naive model, on any sequence of operations."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

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

NAMES = "abc"
# Few different contents, so that twins and hits are frequent.
CONTENTS = [(token,) * SIZE for token in range(3)]
# Not rules of their own: of those hypothesis switches off many in each example.
WEIGHTS = {
    "allocate": 6,
    "hit": 3,
    "release": 6,
    "fill": 1,
    "publish": 6,
    "publish_partial": 1,
    "copy": 2,
    "pin": 2,
    "unpin": 2,
    "drop_cached": 1,
    "forget": 1,
    "reset": 1,
    "misuse": 1,
}
kinds = st.sampled_from([name for name, weight in WEIGHTS.items() for _ in range(weight)])
picks = st.integers(0, 999)


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

    @rule(kind=kinds, a=picks, b=picks, c=picks)
    def act(self, kind, a, b, c):
        """One operation; ``a``, ``b``, ``c`` choose whose and how much of what there is."""
        getattr(self, kind)(a, b, c)

    def some(self, pick: int, found: list[int]) -> int | None:
        return found[pick % len(found)] if found else None

    def published(self) -> list[int]:
        return [i for i, block in enumerate(self.naive.blocks) if block.block_hash]

    def allocate(self, a, b, c):
        if self.naive.queue():
            block_id = self.pool.allocate(request(NAMES[a % 3]), "test")
            assert block_id == self.naive.allocate(NAMES[a % 3])
            self.held.append(block_id)

    def hit(self, a, b, c):
        block_id = self.some(a, self.naive.ids(CACHED, USED))
        if block_id is not None:
            self.pool.hit(block_id, request(NAMES[b % 3]), "test")
            self.naive.hit(block_id, NAMES[b % 3])
            self.held.append(block_id)

    def release(self, a, b, c):
        if self.held:
            block_id = self.held.pop(a % len(self.held))
            self.pool.release(block_id, request("a"), "test")
            self.naive.release(block_id)

    def fill(self, a, b, c):
        block_id = self.some(a, self.held)
        if block_id is not None and self.naive.blocks[block_id].block_hash is None:
            fill = b % SIZE + 1
            self.pool.set_fill(block_id, fill, request("a"), 1)
            self.naive.blocks[block_id].fill = fill

    def publish_partial(self, a, b, c):
        partial = [i for i in self.held if self.naive.blocks[i].fill < SIZE]
        block_id = self.some(a, partial)
        if block_id is not None:
            with pytest.raises(AssertionError, match="full block"):
                self.pool.publish(block_id, b"hash", ROOT, CONTENTS[0], request("a"))

    def publish(self, a, b, c):
        """Fills a block and publishes it; one published already stays what it is."""
        block_id = self.some(a, self.held)
        if block_id is None:
            return
        if self.naive.blocks[block_id].block_hash is None:
            self.fill(a, SIZE - 1, 0)
        before, tokens = self.hashes[b % len(self.hashes)], CONTENTS[c % 3]
        digest = block_hash(before, tokens)
        expected = self.naive.publish(block_id, digest, before, tokens)
        assert self.pool.publish(block_id, digest, before, tokens, request("a")) is expected
        if expected and digest not in self.hashes:
            self.hashes.append(digest)

    def copy(self, a, b, c):
        source = self.some(a, self.held)
        if source is not None and self.naive.queue():
            block_id = self.pool.copy(source, request(NAMES[b % 3]))
            assert block_id == self.naive.allocate(NAMES[b % 3])
            self.naive.blocks[block_id].fill = self.naive.blocks[source].fill
            self.held.append(block_id)

    def pin(self, a, b, c):
        block_id = self.some(a, self.published())
        if block_id is not None:
            self.pool.pin(block_id, NAMES[b % 3])
            self.naive.pin(block_id, NAMES[b % 3])
            self.pinned.append(block_id)

    def unpin(self, a, b, c):
        if self.pinned:
            block_id = self.pinned.pop(a % len(self.pinned))
            self.pool.unpin(block_id, "a")
            self.naive.unpin(block_id)

    def forget(self, a, b, c):
        used = [i for i in self.published() if i in self.held and i not in self.pinned]
        block_id = self.some(a, used)
        if block_id is not None:
            self.pool.forget(block_id, "test", request("a"))
            self.naive.forget(block_id)

    def drop_cached(self, a, b, c):
        assert self.pool.drop_cached("test") == self.naive.drop_cached()

    def reset(self, a, b, c):
        if a % 4 == 0:
            self.pool.reset()
            self.naive = NaivePool(self.pool.num_blocks, SIZE)
            self.held, self.pinned = [], []

    def misuse(self, a, b, c):
        """Giving back what nobody holds and evicting what somebody holds change nothing."""
        unused = self.some(a, self.naive.ids(FREE, CACHED))
        if unused is not None:
            with pytest.raises(AssertionError, match="more often than taken"):
                self.pool.release(unused, request("a"), "test")
            with pytest.raises(AssertionError, match="in the free queue already"):
                self.pool.free.push_back(unused)
            with pytest.raises(AssertionError, match="not pinned"):
                self.pool.unpin(unused, "a")
            with pytest.raises(AssertionError, match="not in use"):
                self.pool.forget(unused, "test", request("a"))
        used = self.some(b, self.held)
        if used is not None:
            with pytest.raises(AssertionError, match="in use"):
                self.pool.evict(used, "test")
        pinned = self.some(c, self.pinned)
        if pinned is not None:
            with pytest.raises(AssertionError, match="is pinned"):
                self.pool.forget(pinned, "test", request("a"))

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
            for tokens in CONTENTS:
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
    operations = run_machine(PoolMachine, examples=200, steps=50)
    record_property("operations", operations)
    assert operations >= 5_000
