"""When the next step may run, on a clock of the test's own."""

import pytest

from engine.pacer import Pacer


def test_another_rate_holds_at_once():
    pacer = Pacer()
    pacer.steps_per_s = 0.5
    assert pacer.wait_s(99.0) == 0.0
    pacer.stepped(100.0)
    assert pacer.wait_s(100.0) == pytest.approx(2.0)
    pacer.steps_per_s = 50.0
    assert pacer.wait_s(100.01) == pytest.approx(0.01)
    pacer.steps_per_s = 0.25
    assert pacer.wait_s(101.0) == pytest.approx(3.0)
    pacer.steps_per_s = None
    assert pacer.wait_s(100.01) == 0.0


def test_paused_only_granted_steps_run():
    pacer = Pacer()
    pacer.pause()
    assert pacer.wait_s(1.0) is None
    pacer.grant(1)
    assert pacer.wait_s(1.0) == 0.0
    pacer.stepped(1.0)
    assert pacer.wait_s(1.0) is None
    pacer.resume()
    assert pacer.wait_s(1.0) == 0.0
