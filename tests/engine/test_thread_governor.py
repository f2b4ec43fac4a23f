"""The governor on a simulated machine that gets crowded and quiet again."""

import pytest

from engine.thread_governor import ThreadGovernor


class Machine:
    """Steps take 20 ms with two threads and 30 with one; crowded, 300 and 45."""

    def __init__(self, num_threads: int = 2) -> None:
        self.crowded = False
        self.now = 0.0
        self.calls: list[int] = []
        self.governor = ThreadGovernor(num_threads, self.calls.append)

    def run(self, steps: int, size: int = 1) -> float:
        """Seconds that the steps took."""
        started = self.now
        for _ in range(steps):
            few = self.governor.current == 1
            duration = (0.045 if few else 0.3) if self.crowded else (0.03 if few else 0.02)
            self.now += duration
            self.governor.stepped(size, duration, self.now)
        return self.now - started


def test_quiet_machine_keeps_all_threads():
    machine = Machine()
    machine.run(500)
    # One comparison at the start.
    assert machine.calls == [1, 2]


def test_machine_that_is_crowded_from_the_start_gets_few_threads():
    machine = Machine()
    machine.crowded = True
    machine.run(20)
    assert machine.governor.current == 1


def test_crowded_machine_gets_few_threads_within_some_steps():
    machine = Machine()
    machine.run(20)
    machine.crowded = True
    machine.run(8)
    assert machine.governor.current == 1
    assert machine.run(200) < 200 * 0.3 / 3


def test_quiet_again_all_threads_come_back():
    machine = Machine()
    machine.run(20)
    machine.crowded = True
    machine.run(50)
    machine.crowded = False
    machine.run(200)
    assert machine.governor.current == 2
    assert machine.run(100) == pytest.approx(2.0)


def test_slower_steps_of_a_longer_context_are_tried_both_ways_and_settle():
    machine = Machine()
    for i in range(2000):
        few = machine.governor.current == 1
        duration = (0.03 if few else 0.02) * (1 + i / 500)
        machine.now += duration
        machine.governor.stepped(1, duration, machine.now)
    # Few threads are never faster here: at most short trials.
    assert machine.calls.count(1) <= 4
    assert machine.governor.current == 2


def test_size_that_first_comes_up_in_a_crowd_is_noticed():
    machine = Machine()
    machine.run(20, size=1)
    machine.crowded = True
    machine.run(8, size=3)
    assert machine.governor.current == 1


def test_larger_batches_of_a_quiet_machine_are_no_crowd():
    machine = Machine()
    machine.run(20, size=1)
    calls = len(machine.calls)
    for size in (2, 4, 8):
        for _ in range(20):
            machine.now += 0.02 * (1 + 0.2 * (size - 1))
            machine.governor.stepped(size, 0.02 * (1 + 0.2 * (size - 1)), machine.now)
    assert len(machine.calls) == calls


def test_steps_of_another_size_are_not_compared():
    machine = Machine()
    machine.run(20, size=1)
    for size in (8, 1, 8, 1) * 20:
        duration = 0.08 if size == 8 else 0.02
        machine.now += duration
        machine.governor.stepped(size, duration, machine.now)
    assert machine.governor.current == 2


def test_one_thread_has_nothing_to_govern():
    machine = Machine(num_threads=1)
    machine.crowded = True
    machine.run(100)
    assert machine.calls == []


def test_number_that_somebody_else_changed_is_set_again():
    machine = Machine()
    machine.governor.apply(2)
    machine.governor.apply(7)
    assert machine.calls == [2]
