"""The crossing between the engine's thread and the window's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from app.bridge import DRAIN_INTERVAL_MS, POOL_RATE_HZ, Bridge, coalesced
from engine.api.client import QueueClient
from engine.api.commands import Cancel, SetFocus, SubscribePool, UnsubscribePool
from engine.api.events import (
    BlockEvents,
    EngineStats,
    Event,
    FinishReason,
    ModelUnloaded,
    PrefillProgress,
    RequestFinished,
    RequestUsage,
    TokensGenerated,
)
from tests.helpers.fake_engine import FakeEngine

STATS = EngineStats(1, 0, 0, 0, 0, 9, 0, 0.0, 0.0, 0)


def tokens(request_id: str, text: str, *ids: int) -> TokensGenerated:
    return TokensGenerated(request_id, f"c-{request_id}", ids, text)


def finished(request_id: str) -> RequestFinished:
    return RequestFinished(
        request_id, f"c-{request_id}", FinishReason.STOP, "", RequestUsage(), None, 1
    )


@pytest.fixture
def client() -> QueueClient:
    return QueueClient()


@pytest.fixture
def bridge(client: QueueClient, qtbot: QtBot) -> Iterator[Bridge]:
    bridge = Bridge(lambda: client)
    yield bridge
    bridge.close()


def received(bridge: Bridge) -> list[Event]:
    events: list[Event] = []
    bridge.engine_event.connect(events.append)
    return events


def from_another_thread(action: Callable[[], None]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def test_deltas_of_each_request_are_joined() -> None:
    events = [tokens("a", "1", 1), tokens("b", "x", 7), tokens("a", "2", 2), tokens("a", "3", 3)]
    assert coalesced(events) == [tokens("a", "123", 1, 2, 3), tokens("b", "x", 7)]


def test_deltas_are_not_joined_over_another_event_of_their_request() -> None:
    progress = PrefillProgress("a", "c-a", 1, 2, 0)
    events = [tokens("a", "1", 1), progress, tokens("a", "2", 2), finished("a")]
    assert coalesced(events) == events


def test_events_of_others_part_nothing() -> None:
    events = [tokens("a", "1", 1), finished("b"), STATS, tokens("a", "2", 2)]
    assert coalesced(events) == [tokens("a", "12", 1, 2), finished("b"), STATS]


def test_log_probabilities_are_joined_too() -> None:
    first = TokensGenerated("a", "c", (1,), "x", (-0.5,))
    second = TokensGenerated("a", "c", (2,), "y", (-0.25,))
    assert coalesced([first, second]) == [TokensGenerated("a", "c", (1, 2), "xy", (-0.5, -0.25))]


def test_events_of_the_engine_thread_arrive_on_the_gui_thread(
    bridge: Bridge, client: QueueClient, qtbot: QtBot
) -> None:
    threads: list[threading.Thread] = []
    bridge.engine_event.connect(lambda _event: threads.append(threading.current_thread()))
    bridge.start()
    from_another_thread(lambda: client.post(finished("a")))
    qtbot.waitUntil(lambda: len(threads) == 1)
    assert threads == [threading.main_thread()]


def test_each_kind_takes_its_own_signal(bridge: Bridge, client: QueueClient, qtbot: QtBot) -> None:
    events, blocks, stats = received(bridge), [], []
    bridge.block_events_received.connect(blocks.append)
    bridge.stats_changed.connect(stats.append)
    bridge.start()
    for event in (BlockEvents(()), STATS, finished("a")):
        client.post(event)
    qtbot.waitUntil(lambda: len(events) == 1)
    assert (events, blocks, stats) == ([finished("a")], [BlockEvents(())], [STATS])


def test_the_latest_counters_are_kept_until_the_pool_is_another(
    bridge: Bridge, client: QueueClient, qtbot: QtBot
) -> None:
    bridge.start()
    assert bridge.latest_stats is None
    client.post(STATS)
    qtbot.waitUntil(lambda: bridge.latest_stats is STATS)
    client.post(ModelUnloaded("c"))
    qtbot.waitUntil(lambda: bridge.latest_stats is None)


def test_no_event_is_lost_and_drains_are_apart(
    bridge: Bridge, client: QueueClient, qtbot: QtBot
) -> None:
    times: list[float] = []
    texts: list[str] = []

    def on_event(event: Event) -> None:
        assert isinstance(event, TokensGenerated)
        times.append(time.monotonic())
        texts.append(event.text)

    bridge.engine_event.connect(on_event)
    bridge.start()

    def stream() -> None:
        for n in range(400):
            client.post(tokens("a", f"{n},", n))
            time.sleep(0.001)

    thread = threading.Thread(target=stream)
    thread.start()
    expected = "".join(f"{n}," for n in range(400))
    qtbot.waitUntil(lambda: "".join(texts) == expected, timeout=10_000)
    thread.join()
    gaps_ms = [(b - a) * 1000 for a, b in pairwise(times)]
    assert len(times) > 3
    assert min(gaps_ms) > DRAIN_INTERVAL_MS - 3


def test_commands_before_the_start_are_sent_at_the_start(
    bridge: Bridge, client: QueueClient
) -> None:
    bridge.send(SetFocus("a"))
    bridge.subscribe_pool()
    bridge.start()
    bridge.send(Cancel("r"))
    assert client.take_commands() == [SetFocus("a"), SubscribePool(POOL_RATE_HZ), Cancel("r")]


def test_subscriptions_are_counted(bridge: Bridge, client: QueueClient) -> None:
    bridge.start()
    for _ in range(3):
        bridge.subscribe_pool()
    for _ in range(3):
        bridge.unsubscribe_pool()
    bridge.subscribe_pool()
    assert client.take_commands() == [
        SubscribePool(POOL_RATE_HZ),
        UnsubscribePool(),
        SubscribePool(POOL_RATE_HZ),
    ]
    bridge.unsubscribe_pool()
    with pytest.raises(RuntimeError, match="without"):
        bridge.unsubscribe_pool()


def test_a_second_start_starts_no_second_engine(qtbot: QtBot) -> None:
    engines: list[QueueClient] = []

    def start() -> QueueClient:
        engines.append(QueueClient())
        return engines[-1]

    bridge = Bridge(start)
    bridge.start()
    bridge.start()
    bridge.close()
    bridge.start()
    assert len(engines) == 1


def test_after_closing_nothing_arrives_and_nothing_is_sent(
    bridge: Bridge, client: QueueClient, qtbot: QtBot
) -> None:
    events = received(bridge)
    bridge.start()
    client.post(finished("a"))
    assert bridge.close()
    bridge.send(SetFocus("a"))
    client.post(finished("b"))
    qtbot.wait(3 * DRAIN_INTERVAL_MS)
    assert events == []
    assert client.take_commands() == []


def test_an_idle_bridge_runs_no_timer(bridge: Bridge, client: QueueClient, qtbot: QtBot) -> None:
    events = received(bridge)
    bridge.start()
    client.post(finished("a"))
    qtbot.waitUntil(lambda: len(events) == 1)
    qtbot.wait(2 * DRAIN_INTERVAL_MS)
    assert not any(timer.isActive() for timer in bridge.findChildren(QTimer))


def test_closing_ends_a_running_engine_thread(qtbot: QtBot) -> None:
    engine = FakeEngine()
    bridge = Bridge(lambda: engine)
    bridge.start()
    assert bridge.close()


def test_no_snapshot_before_the_engine_has_one(bridge: Bridge) -> None:
    assert bridge.latest_snapshot() is None
    bridge.start()
    assert bridge.latest_snapshot() is None
