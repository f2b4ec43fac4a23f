"""BlockManager and pins against a model that knows what every slot truly holds.

What a request reads is compared token by token with its own ids, so a hit on a block with another
content, a write into a shared block or a skipped copy is seen in the step that does it.
"""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

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

picks = st.integers(0, 999)
tokens = st.integers(0, 1)
lengths = st.integers(1, 20)
MOST_SEQUENCES = 8


class ManagerMachine(CountingMachine):
    """Each sequence is a real ``Request`` beside its model."""

    def __init__(self) -> None:
        super().__init__()
        self.real: dict[NaiveSequence, Request] = {}
        self.withdrawn: set[NaiveSequence] = set()
        self.histories: list[list[int]] = [[0] * 12]
        self.num_made = 0

    @initialize(
        num_blocks=st.integers(2, 9),
        block_size=st.integers(1, 8),
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

    def make(self, ids: list[int]) -> NaiveSequence:
        name = f"s{self.num_made}"
        self.num_made += 1
        seq = NaiveSequence(name, ids)
        self.real[seq] = Request(name, name, list(ids), len(ids), GREEDY, 0, 0.0)
        self.histories.append(seq.ids)
        return seq

    def some(self, pick: int, *, live: bool) -> NaiveSequence | None:
        found = [seq for seq in self.real if bool(seq.table) is live]
        return found[pick % len(found)] if found else None

    # --- sequences come ---

    @precondition(lambda self: len(self.real) < MOST_SEQUENCES)
    @rule(pick=picks, cut=picks, token=tokens, fresh=lengths)
    def arrive(self, pick, cut, token, fresh):
        history = self.histories[pick % len(self.histories)]
        self.make([*history[: cut % (len(history) + 1)], *[token] * fresh])

    @rule(pick=picks, reserve=st.integers(0, 9))
    def examine(self, pick, reserve):
        """What a refusal leaves behind: nothing (the invariants look)."""
        seq = self.some(pick, live=False)
        if seq is None:
            return
        admission = self.manager.examine(self.real[seq], reserve)
        twin = self.naive.twin(seq.ids)
        assert list(admission.hits) == self.naive.match(seq.ids)
        assert len(admission.hits) * self.naive.block_size < len(seq.ids)
        assert admission.num_short == self.naive.short(seq.ids, reserve)
        assert admission.twin is (self.real[twin] if twin else None)
        assert self.manager.twin_still_computing(self.real[seq]) is (twin is not None)

    @rule(pick=picks)
    def admit(self, pick):
        seq = self.some(pick, live=False)
        if seq is None:
            return
        admission = self.manager.examine(self.real[seq], 0)
        assert admission.num_short == self.naive.short(seq.ids, 0)
        if admission.num_short == 0:
            self.manager.admit(self.real[seq], admission)
            self.naive.admit(seq)

    @precondition(lambda self: len(self.real) < MOST_SEQUENCES)
    @rule(pick=picks, cut=picks, token=tokens)
    def fork(self, pick, cut, token):
        parent = self.some(pick, live=True)
        if parent is None or parent.num_committed == 0:
            return
        num_tokens = 1 + cut % parent.num_committed
        child = self.make([*parent.ids[:num_tokens], token])
        self.manager.fork(self.real[parent], self.real[child], num_tokens)
        self.naive.fork(parent, child, num_tokens)

    # --- steps ---

    @rule(pick=picks, token=tokens, count=st.integers(1, 3))
    def say(self, pick, token, count):
        seq = self.some(pick, live=True)
        if seq is not None:
            seq.ids.extend([token] * count)
            self.real[seq].token_ids.extend([token] * count)

    @rule(pick=picks, wanted=lengths)
    def compute(self, pick, wanted):
        seq = self.some(pick, live=True)
        if seq is None or seq.num_computed == len(seq.ids):
            return
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

    @rule(pick=picks)
    def commit(self, pick):
        flying = [seq for seq in self.real if seq.flights]
        if flying:
            seq = flying[pick % len(flying)]
            start, num_tokens = self.naive.commit(seq)
            self.manager.commit(self.real[seq], start, num_tokens, 1)

    # --- sequences go ---

    @rule(pick=picks, ends=st.booleans())
    def free(self, pick, ends):
        """Ends or preempts a sequence. What was computed and not committed is lost."""
        seq = self.some(pick, live=True)
        if seq is None:
            return
        before = len(self.naive.pool.queue())
        freed = self.manager.free(self.real[seq], "test")
        self.naive.free(seq)
        assert freed == len(self.naive.pool.queue()) - before
        self.withdrawn.discard(seq)
        if ends:
            del self.real[seq]

    @rule(pick=picks)
    def pause_or_resume(self, pick):
        seq = self.some(pick, live=True)
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

    @rule(pick=picks, cut=picks, name=st.sampled_from("ab"))
    def pin(self, pick, cut, name):
        history = self.histories[pick % len(self.histories)]
        ids = history[: cut % (len(history) + 1)]
        assert self.pins.pin(name, ids) == self.naive.pin(name, ids)

    @rule(name=st.sampled_from("ab"))
    def unpin(self, name):
        self.pins.unpin(name)
        self.naive.unpin(name)

    @rule()
    def drop_cached(self):
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
        size, pool = self.naive.block_size, self.manager.pool
        for history in self.histories:
            found = self.manager.known_prefix(history)
            assert found == self.naive.known(history, len(history) // size)
            for position in range(len(found) * size):
                place = (found[position // size], position % size)
                assert self.naive.slots[place] == (history[position], position)
        usable = pool.num_blocks - sum(block.pins > 0 for block in self.naive.pool.blocks)
        for num_tokens in range(1, pool.num_blocks * size + 2):
            fits = -(-(num_tokens + 1) // size) <= usable
            assert self.manager.can_ever_fit(num_tokens) is fits

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
    operations = run_machine(ManagerMachine, examples=250, steps=60)
    record_property("operations", operations)
    assert operations >= 8_000
