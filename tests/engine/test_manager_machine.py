"""BlockManager and pins against a model that knows what every slot truly holds.

What a request reads is compared token by token with its own ids, so a hit on a block with another
content, a write into a shared block or a skipped copy is seen in the step that does it.
"""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from engine.api.params import GREEDY
from engine.block_hash import root_hash
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool
from engine.event_log import PoolEventLog
from engine.pins import Pins
from engine.request import Request
from tests.helpers.machines import CountingMachine, run_machine
from tests.helpers.naive_manager import NaiveManager, NaiveSequence
from tests.helpers.pool_fold import PoolFold

MOST_SEQUENCES = 8
# How often each is tried. Rules of their own would be switched off by halves in each example, and
# a copy or a hit needs many kinds of operations in a row.
WEIGHTS = {
    "arrive": 6,
    "admit": 3,
    "examine": 2,
    "fork": 5,
    "prefill": 8,
    "decode": 8,
    "end": 3,
    "fail": 1,
    "preempt": 1,
    "truncate": 2,
    "reset": 1,
    "pause_or_resume": 1,
    "pin": 1,
    "unpin": 1,
    "drop_cached": 1,
}
kinds = st.sampled_from([name for name, weight in WEIGHTS.items() for _ in range(weight)])
picks = st.integers(0, 999)


class ManagerMachine(CountingMachine):
    """Each sequence is a real ``Request`` beside its model."""

    def __init__(self) -> None:
        super().__init__()
        self.real: dict[NaiveSequence, Request] = {}
        self.withdrawn: set[NaiveSequence] = set()
        self.histories: list[list[int]] = [[0] * 12]
        self.num_made = 0

    @initialize(
        num_blocks=st.integers(3, 16),
        block_size=st.integers(1, 5),
        caching=st.sampled_from([True, True, True, False]),
    )
    def begin(self, num_blocks, block_size, caching):
        log = PoolEventLog()
        log.enabled = True
        pool = BlockPool(num_blocks, block_size, log)
        self.manager = BlockManager(pool, root_hash("test"), prefix_caching=caching)
        self.pins = Pins(self.manager)
        self.naive = NaiveManager(num_blocks, block_size, caching)
        self.fold = PoolFold(num_blocks)

    @rule(kind=kinds, a=picks, b=picks, c=picks)
    def act(self, kind, a, b, c):
        """One operation; ``a``, ``b``, ``c`` choose whose and how much of what there is."""
        getattr(self, kind)(a, b, c)

    def make(self, ids: list[int]) -> NaiveSequence:
        name = f"s{self.num_made}"
        self.num_made += 1
        seq = NaiveSequence(name, ids)
        self.real[seq] = Request(name, name, list(ids), len(ids), GREEDY, 0, 0.0)
        self.histories.append(seq.ids)
        return seq

    def some(self, pick: int, found: list[NaiveSequence]) -> NaiveSequence | None:
        return found[pick % len(found)] if found else None

    def live(self) -> list[NaiveSequence]:
        return [seq for seq in self.real if seq.table]

    def waiting(self) -> list[NaiveSequence]:
        return [seq for seq in self.real if not seq.table]

    # --- sequences come ---

    def arrive(self, a, b, c):
        if len(self.real) < MOST_SEQUENCES:
            history = self.histories[a % len(self.histories)]
            fresh = 1 + c // 2 % (2 * self.naive.block_size)
            self.make([*history[: b % (len(history) + 1)], *[c % 2] * fresh])

    def admit(self, a, b, c):
        seq = self.some(a, self.waiting())
        if seq is None:
            return
        admission = self.manager.examine(self.real[seq], 0)
        assert admission.num_short == self.naive.short(seq.ids, 0)
        if admission.num_short == 0:
            self.manager.admit(self.real[seq], admission)
            self.naive.admit(seq)

    def examine(self, a, b, c):
        """What a refusal leaves behind: nothing (the invariants look)."""
        seq, reserve = self.some(a, self.waiting()), b % 10
        if seq is None:
            return
        admission = self.manager.examine(self.real[seq], reserve)
        twin = self.naive.twin(seq.ids)
        assert list(admission.hits) == self.naive.match(seq.ids)
        assert len(admission.hits) * self.naive.block_size < len(seq.ids)
        assert admission.num_short == self.naive.short(seq.ids, reserve)
        assert admission.twin is (self.real[twin] if twin else None)
        assert self.manager.twin_still_computing(self.real[seq]) is (twin is not None)

    def fork(self, a, b, c):
        parent = self.some(a, [seq for seq in self.live() if seq.num_committed])
        if parent is not None and len(self.real) < MOST_SEQUENCES:
            # At its end most of the time: there the last block is partial and still written.
            num_tokens = 1 + b % parent.num_committed if c % 3 == 0 else parent.num_committed
            child = self.make([*parent.ids[:num_tokens], c % 2])
            self.manager.fork(self.real[parent], self.real[child], num_tokens)
            self.naive.fork(parent, child, num_tokens)

    # --- steps ---

    def compute(self, seq: NaiveSequence, wanted: int) -> None:
        request = self.real[seq]
        grown = self.manager.append_slot(request)
        assert grown is self.naive.grow(seq)
        if not grown:
            return
        pair = self.manager.own_block(request)
        assert pair == self.naive.own(seq)
        if pair is not None:
            self.naive.copy_content(*pair)
        assert request.block_table == seq.table
        num_tokens = min(wanted, len(seq.ids) - seq.num_computed)
        self.naive.compute(seq, num_tokens)
        request.num_computed_tokens += num_tokens

    def commit(self, seq: NaiveSequence) -> None:
        while seq.flights:
            start, num_tokens = self.naive.commit(seq)
            self.manager.commit(self.real[seq], start, num_tokens, 1)

    def prefill(self, a, b, c):
        seq = self.some(a, [seq for seq in self.live() if seq.num_computed < len(seq.ids)])
        if seq is not None:
            self.compute(seq, 1 + b % (3 * self.naive.block_size))
            if c % 3:
                self.commit(seq)

    def decode(self, a, b, c):
        seq = self.some(a, self.live())
        if seq is None:
            return
        for _ in range(1 + b % (2 * self.naive.block_size)):
            if seq.num_computed == len(seq.ids):
                seq.ids.append(c % 2)
                self.real[seq].token_ids.append(c % 2)
            self.compute(seq, 1)
            if c % 3:
                self.commit(seq)

    # --- sequences go ---

    def end(self, a, b, c):
        seq = self.some(a, self.live())
        if seq is not None:
            self.preempt(a, b, c)
            del self.real[seq]

    def fail(self, a, b, c):
        """What a sequence alone used is not found again; what others use or have pinned is."""
        seq = self.some(a, self.live())
        if seq is None:
            return
        self.manager.doubt(self.real[seq], "test")
        pool = self.naive.pool
        for block_id in self.real[seq].block_table:
            if pool.blocks[block_id].ref_count == 1:
                pool.forget(block_id)
        self.end(a, b, c)

    def preempt(self, a, b, c):
        """What was computed and not committed is lost."""
        seq = self.some(a, self.live())
        if seq is None:
            return
        before = len(self.naive.pool.queue())
        freed = self.manager.free(self.real[seq], "test")
        self.naive.free(seq)
        assert freed == len(self.naive.pool.queue()) - before
        self.withdrawn.discard(seq)

    def truncate(self, a, b, c):
        seq = self.some(a, [seq for seq in self.live() if not seq.flights])
        if seq is None:
            return
        num_tokens, request = 1 + b % len(seq.ids), self.real[seq]
        # The whole history may still be asked for by others.
        self.histories.append(list(seq.ids))
        del request.token_ids[num_tokens:]
        self.manager.truncate(request)
        self.naive.truncate(seq, num_tokens)
        self.withdrawn.add(seq)

    def reset(self, a, b, c):
        if a % 4 == 0:
            for request in self.real.values():
                self.manager.disown(request)
            self.manager.reset()
            self.pins.lost()
            self.naive.reset(list(self.real))
            self.withdrawn.clear()

    def pause_or_resume(self, a, b, c):
        seq = self.some(a, self.live())
        if seq is None:
            return
        if seq in self.withdrawn:
            self.withdrawn.remove(seq)
            self.manager.renew_promise(self.real[seq])
            self.naive.promise(seq)
        else:
            self.withdrawn.add(seq)
            self.manager.withdraw(self.real[seq])
            self.naive.withdraw(seq)

    def pin(self, a, b, c):
        history = self.histories[a % len(self.histories)]
        ids, name = history[: b % (len(history) + 1)], "ab"[c % 2]
        assert self.pins.pin(name, ids) == self.naive.pin(name, ids)

    def unpin(self, a, b, c):
        self.pins.unpin("ab"[a % 2])
        self.naive.unpin("ab"[a % 2])

    def drop_cached(self, a, b, c):
        assert self.manager.pool.drop_cached("test") == self.naive.pool.drop_cached()

    # --- what must hold at any time ---

    @invariant()
    def pool_equals_the_model(self):
        self.count()
        pool, naive = self.manager.pool, self.naive.pool
        for block_id, block in enumerate(naive.blocks):
            view = pool.view(block_id)
            assert (view.state, view.ref_count, view.owner, view.fill, view.pins) == (
                block.state,
                block.ref_count,
                block.owner,
                block.fill,
                block.pins,
            )
            assert bool(view.block_hash) is bool(block.block_hash)
        assert list(pool.free) == naive.queue()

    @invariant()
    def tables_equal_the_model(self):
        for seq, request in self.real.items():
            assert request.block_table == seq.table
            assert request.num_computed_tokens == seq.num_computed
            assert request.num_committed_tokens == seq.num_committed
        tables = {r.request_id: r.block_table for r in self.real.values() if r.block_table}
        assert self.manager.pool.violations(tables.values()) == []
        self.fold.apply(self.manager.pool.log.drain())
        self.fold.check(self.manager.pool, tables)

    @invariant()
    def every_sequence_reads_its_own_tokens(self):
        size = self.naive.block_size
        for seq, request in self.real.items():
            for position in range(seq.num_computed):
                place = (request.block_table[position // size], position % size)
                assert self.naive.slots[place] == (seq.ids[position], position)

    @invariant()
    def every_known_prefix_is_truly_there(self):
        size = self.naive.block_size
        for history in self.histories:
            found = self.manager.known_prefix(history)
            assert found == self.naive.known(history, len(history) // size)
            for position in range(len(found) * size):
                place = (found[position // size], position % size)
                assert self.naive.slots[place] == (history[position], position)

    @invariant()
    def refuses_what_can_never_fit(self):
        naive = self.naive
        pinned = {i for i, block in enumerate(naive.pool.blocks) if block.pins}
        for seq in self.real:
            own = pinned & set(naive.match(seq.ids))
            needed = naive.blocks_for(len(seq.ids) + 1) - len(own)
            fits = needed <= len(naive.pool.blocks) - len(pinned)
            assert self.manager.can_ever_fit(seq.ids) is fits

    def teardown(self):
        """Everybody goes: only pins and cached blocks are left."""
        if not hasattr(self, "fold"):
            return
        for request in self.real.values():
            self.manager.free(request, "test")
        for name in "ab":
            self.pins.unpin(name)
        assert self.manager.pool.num_used == 0
        self.fold.apply(self.manager.pool.log.drain())
        self.fold.rewind()


def test_manager_equals_its_model(record_property):
    operations = run_machine(ManagerMachine, examples=300, steps=60)
    record_property("operations", operations)
    assert operations >= 12_000
