"""When Python may look for reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from app.garbage import GarbagePolicy, hold_back
from app.session_state import ModelStatus


@pytest.fixture
def policy() -> Iterator[GarbagePolicy]:
    policy = GarbagePolicy()
    yield policy
    policy.close()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_nothing_is_collected_until_the_model_is_ready(policy: GarbagePolicy) -> None:
    hold_back()
    policy.model_changed(ModelStatus.STARTING)
    policy.model_changed(ModelStatus.LOADING)
    assert not gc.isenabled()
    policy.model_changed(ModelStatus.READY)
    assert gc.isenabled()
    assert gc.get_freeze_count() > 1000


@pytest.mark.parametrize("status", [ModelStatus.FAILED, ModelStatus.NO_MODEL])
def test_without_a_model_collections_begin_too(policy: GarbagePolicy, status: ModelStatus) -> None:
    hold_back()
    policy.model_changed(status)
    assert gc.isenabled()


def test_the_cycles_of_an_old_model_are_found(policy: GarbagePolicy) -> None:
    policy.model_changed(ModelStatus.READY)
    policy.model_changed(ModelStatus.LOADING)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    policy.model_changed(ModelStatus.READY)
    assert gc.get_freeze_count() > 1000
