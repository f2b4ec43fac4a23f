"""The whole engine over the integer model: storms of commands, all checked after every operation.

Each answer equals what the model gives with no cache at all; see ``Storm`` for the rest. More
seeds, for as long as one likes: ``python tests/soak.py``.
"""

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.helpers.machines import CountingMachine, run_machine
from tests.helpers.storm import Storm
from tests.helpers.storm_search import run_seed
from tests.helpers.storm_setup import WEIGHTS, Operation, Setup
from tests.helpers.storm_subjects import IntegerSubject

kinds = st.sampled_from([name for name, weight in WEIGHTS.items() for _ in range(weight)])
picks = st.integers(0, 999)


class EngineMachine(CountingMachine):
    """Hypothesis chooses the operations, and makes a failing sequence short."""

    @initialize(data=st.data(), lag=st.sampled_from([0, 1]))
    def begin(self, data, lag):
        setup = Setup.choose(lambda choices: data.draw(st.sampled_from(choices)), lag)
        self.storm = Storm(setup, IntegerSubject(setup))

    @rule(kind=kinds, a=picks, b=picks, c=picks)
    def act(self, kind, a, b, c):
        self.storm.act(Operation(kind, a, b, c))

    def teardown(self):
        if hasattr(self, "storm"):
            self.storm.finish()
            type(self).operations += self.storm.num_operations


def test_engine_machine(record_property):
    operations = run_machine(EngineMachine, examples=60, steps=50)
    record_property("operations", operations)
    assert operations >= 2_000


@pytest.mark.parametrize("lag", [0, 1])
def test_an_answer_that_shares_its_last_block_alone_in_a_full_pool_begins_anew(lag):
    """Four answers of one prompt, for one of which the pool has room: the first fills and publishes
    the last block of the prompt, which the second one takes over and has to copy.
    """
    setup = Setup(8, 7, 1, 2, 0.0, 10_000, True, 100.0, lag)
    storm = Storm(setup, IntegerSubject(setup))
    for _ in range(46):
        storm.act(Operation("submit", 0, 0, 0))
    for operation in (("fail", 0, 0, 0), ("step", 0, 0, 0), ("submit", 172, 91, 174)):
        storm.act(Operation(*operation))
    storm.finish()
    # Each got as far as the pool goes; none was refused.
    assert storm.seen["lengthpool"] == 4


@pytest.mark.parametrize("lag", [0, 1])
def test_random_storms(lag, record_property):
    operations, seed = 0, 0
    seen: Counter[str] = Counter()
    while operations < 25_000:
        storm = run_seed(seed, lag, 250, IntegerSubject)
        operations += storm.num_operations
        seen += storm.seen
        seed += 1
    print(f"lag {lag}: {seed} storms, {operations} operations, {dict(seen)}")
    record_property("operations", operations)
    # What a storm is for does happen in them.
    ends = ("stop", "lengthmax_tokens", "lengthcontext", "lengthpool", "cancelled", "error")
    events = ("Preempted", "Waiting", "Paused", "Resumed", "Truncated")
    for what in (*ends, *(f"Request{name}" for name in events)):
        assert seen[what] >= 10, f"{what}: {seen[what]}"
