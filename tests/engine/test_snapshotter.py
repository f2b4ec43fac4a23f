"""What a snapshot says of requests."""

from __future__ import annotations

from engine.snapshotter import Snapshotter
from tests.helpers.engine_cases import CheckedEngine


def test_a_request_that_was_paused_while_it_ran_is_told_as_paused() -> None:
    engine = CheckedEngine(16)
    snapshots = Snapshotter(engine.core, block_bytes=1024)
    engine.add("a", [1] * 20)
    engine.step()
    phases = []
    for change in (lambda name: None, engine.core.pause, engine.core.resume):
        change("a")
        phases += [row.phase for row in snapshots.snapshot(0.0).requests]
    assert phases == ["decode", "paused", "decode"]
