"""What a subscriber is told of a pool that rests."""

from __future__ import annotations

from engine.api.client import QueueClient
from engine.api.events import BlockEvents
from engine.api.snapshot import Snapshot
from engine.publisher import Publisher
from engine.snapshotter import Snapshotter
from tests.helpers.engine_cases import CheckedEngine


def told(client: QueueClient) -> tuple[Snapshot | None, int]:
    """The newest snapshot, and how often the client was told of one since the last look."""
    events = client.poll_events()
    return client.latest_snapshot(), sum(isinstance(event, BlockEvents) for event in events)


def test_what_no_event_of_the_pool_tells_is_told_at_rest() -> None:
    core, client, publisher = CheckedEngine(16).core, QueueClient(), Publisher()
    snapshotter = Snapshotter(core, block_bytes=1024)
    publisher.attach(core.log, snapshotter, 0.0)
    publisher.subscribe(client, 10.0, 0.0)
    first, count = told(client)
    assert first is not None
    assert count == 1
    publisher.settle([client], 1.0)
    assert told(client) == (first, 0)
    # The recount of an idle engine has found something, and a setting was changed.
    for change in ("fault", "watermark"):
        if change == "fault":
            snapshotter.invariant_violations, snapshotter.invariant_message = 1, "block 3 is wrong"
        else:
            core.scheduler.watermark_blocks = 5
        publisher.settle([client], 2.0)
        snapshot, count = told(client)
        assert count == 1, change
        publisher.settle([client], 3.0)
        assert told(client) == (snapshot, 0), change
    assert snapshot is not None
    assert (snapshot.invariant_violations, snapshot.invariant_message) == (1, "block 3 is wrong")
    assert snapshot.watermark_blocks == 5
