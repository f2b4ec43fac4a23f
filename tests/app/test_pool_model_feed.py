"""Snapshots and events in any order end in one consistent model."""

from __future__ import annotations

from dataclasses import replace

from app.cache_panel.pool_feed import PoolFeed
from engine.api.events import BlockChanged
from tests.helpers.scripted_pool import ScriptedPool, four_conversations


def assert_current(feed: PoolFeed, scripted: ScriptedPool) -> None:
    assert feed.model is not None
    assert not feed.model.inconsistency
    pool = scripted.pool
    assert [feed.model.view(b) for b in range(pool.num_blocks)] == [
        pool.view(b) for b in range(pool.num_blocks)
    ]


def test_stale_snapshot_of_an_earlier_subscription_is_not_used() -> None:
    scripted = four_conversations()
    stale = scripted.snapshot()
    feed = PoolFeed()
    feed.begin(stale)
    assert not feed.take(stale)
    assert feed.model is None
    fresh = scripted.snapshot()
    assert feed.take(fresh)
    assert_current(feed, scripted)


def test_events_that_come_before_the_snapshot_are_kept() -> None:
    scripted = four_conversations()
    scripted.drain()
    snapshot = scripted.snapshot()
    scripted.append("r1", 7)
    feed = PoolFeed()
    feed.begin(None)
    assert not feed.take(None, scripted.drain())
    scripted.append("r2", 7)
    feed.take(snapshot, scripted.drain())
    assert_current(feed, scripted)


def test_lost_event_is_cured_by_the_next_snapshot() -> None:
    scripted = four_conversations()
    scripted.drain()
    first = scripted.snapshot()
    feed = PoolFeed()
    feed.begin(None)
    feed.take(first)
    scripted.append("r1", 7)
    scripted.append("r1", 8)
    feed.take(first, scripted.drain()[1:])
    assert feed.model is not None
    assert feed.model.inconsistency
    scripted.append("r2", 7)
    second = scripted.snapshot()
    feed.take(second, scripted.drain())
    scripted.append("r3", 7)
    feed.take(second, scripted.drain())
    assert_current(feed, scripted)
    assert feed.restarts == 1
    assert "missing" in feed.trouble


def test_snapshot_that_came_with_the_broken_events_cures_at_once() -> None:
    scripted = four_conversations()
    scripted.drain()
    feed = PoolFeed()
    feed.begin(None)
    feed.take(scripted.snapshot())
    scripted.finish("r1")
    events = scripted.drain()
    broken = [
        replace(e, before=replace(e.before, fill=1)) if isinstance(e, BlockChanged) else e
        for e in events
    ]
    feed.take(scripted.snapshot(), broken)
    assert feed.restarts == 1
    assert_current(feed, scripted)


def test_new_pool_replaces_the_model_though_its_seq_starts_again() -> None:
    old, new = four_conversations(), ScriptedPool(512)
    feed = PoolFeed()
    feed.begin(None)
    feed.take(old.snapshot())
    assert feed.take(new.snapshot())
    new.admit("r9", "c9", range(40))
    feed.take(None, new.drain())
    assert_current(feed, new)


def test_newer_snapshot_of_a_consistent_model_only_brings_rates() -> None:
    scripted = four_conversations()
    feed = PoolFeed()
    feed.begin(None)
    feed.take(scripted.snapshot())
    model = feed.model
    assert not feed.take(replace(scripted.snapshot(), prefill_tokens_per_s=9.0))
    assert feed.model is model
    assert model is not None
    assert model.prefill_tokens_per_s == 9.0
