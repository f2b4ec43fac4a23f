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
