"""The measure of how long the event loop stood still."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.gap_meter import GapMeter


@pytest.fixture
def meter(qtbot: QtBot) -> Iterator[GapMeter]:
    meter = GapMeter()
    meter.start()
    yield meter
    meter.stop()


def test_a_blocked_loop_is_measured(meter: GapMeter, qtbot: QtBot) -> None:
    qtbot.wait(20)
    time.sleep(0.15)
    qtbot.wait(20)
    assert meter.take_ms() >= 150.0


def test_a_gap_that_is_going_on_counts(meter: GapMeter) -> None:
    time.sleep(0.1)
    assert meter.take_ms() >= 100.0


def test_taking_begins_anew(meter: GapMeter, qtbot: QtBot) -> None:
    time.sleep(0.3)
    assert meter.take_ms() >= 300.0
    qtbot.wait(20)
    assert meter.take_ms() < 300.0


def test_what_does_not_count_is_left_out_and_what_was_before_is_kept(
    meter: GapMeter, qtbot: QtBot
) -> None:
    time.sleep(0.1)
    before = meter.take_ms()
    time.sleep(0.4)
    meter.resume(before)
    qtbot.wait(10)
    assert 100.0 <= meter.take_ms() < 400.0
