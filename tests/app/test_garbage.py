"""When Python may look for reference cycles."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from app import garbage
from app.garbage import GarbagePolicy, hold_back
from app.session_state import ModelStatus


@pytest.fixture
def policy() -> Iterator[GarbagePolicy]:
    hold_back()
    policy = GarbagePolicy()
    yield policy
    policy.close()
    # Threads may still make objects: not one of them may collect.
    assert not gc.isenabled()
    assert gc.get_freeze_count() == 0
    gc.enable()


def enough() -> list[object]:
    """So many new objects that Python would collect by itself; freed ones would not count."""
    return [set() for _ in range(2 * gc.get_threshold()[0])]


class Ring:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_nothing_is_set_aside_or_collected_until_the_model_is_ready(policy: GarbagePolicy) -> None:
    for status in (ModelStatus.STARTING, ModelStatus.LOADING):
        policy.model_changed(status)
        keep = enough()
        assert policy.collect_if_due() is None
        assert keep
    policy.model_changed(ModelStatus.READY)
    assert gc.get_freeze_count() > 1000


@pytest.mark.parametrize("status", [ModelStatus.FAILED, ModelStatus.NO_MODEL, ModelStatus.READY])
def test_collections_begin_once_it_is_known_what_stays(
    policy: GarbagePolicy, status: ModelStatus
) -> None:
    policy.model_changed(status)
    assert not gc.isenabled()
    ring = weakref.ref(Ring())
    keep = enough()
    assert ring() is not None
    assert policy.collect_if_due() == 0
    assert ring() is None
    assert policy.collect_if_due() is None
    assert keep


def test_older_cycles_are_found_in_time(
    policy: GarbagePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "FULL_INTERVAL_S", 0.0)
    policy.model_changed(ModelStatus.READY)
    old = Ring()
    gc.collect(0)
    gc.collect(1)
    ring = weakref.ref(old)
    del old
    found = set()
    keep: list[object] = []
    while ring() is not None:
        keep += enough()
        found.add(policy.collect_if_due())
        assert len(keep) < 1_000_000
    assert found == {0, 1, 2}


def test_full_collections_are_far_apart(policy: GarbagePolicy) -> None:
    policy.model_changed(ModelStatus.READY)
    found = set()
    keep: list[object] = []
    for _ in range(500):
        keep += enough()
        found.add(policy.collect_if_due())
    assert keep
    assert found == {0, 1}


def test_the_cycles_of_an_old_model_are_found_before_the_next_is_set_aside(
    policy: GarbagePolicy,
) -> None:
    old = Ring()
    policy.model_changed(ModelStatus.READY)
    policy.model_changed(ModelStatus.LOADING)
    assert gc.get_freeze_count() == 0
    ring = weakref.ref(old)
    del old
    policy.model_changed(ModelStatus.READY)
    assert ring() is None
    assert gc.get_freeze_count() > 1000


def test_an_old_model_goes_as_soon_as_the_next_one_makes_progress(policy: GarbagePolicy) -> None:
    old = Ring()
    for status in (ModelStatus.READY, ModelStatus.LOADING):
        policy.model_changed(status)
    ring = weakref.ref(old)
    del old
    assert ring() is not None
    policy.model_changed(ModelStatus.LOADING)
    assert ring() is None


def test_a_model_that_is_unloaded_goes_at_once(policy: GarbagePolicy) -> None:
    old = Ring()
    policy.model_changed(ModelStatus.READY)
    ring = weakref.ref(old)
    del old
    policy.model_changed(ModelStatus.NO_MODEL)
    assert ring() is None
    assert gc.get_freeze_count() > 1000
