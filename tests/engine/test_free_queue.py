"""The free queue: order of giving away, O(1) removal."""

import pytest

from engine.block_pool import BlockPool
from engine.free_queue import FreeBlockQueue


def test_new_queue_is_in_address_order():
    assert list(FreeBlockQueue(4)) == [0, 1, 2, 3]


def test_empty_pool_has_an_empty_queue():
    assert list(FreeBlockQueue(0)) == []


def test_remove_from_the_middle_keeps_the_order():
    queue = FreeBlockQueue(5)
    queue.remove(2)
    assert list(queue) == [0, 1, 3, 4]
    assert len(queue) == 4
    assert 2 not in queue


def test_front_and_back():
    queue = FreeBlockQueue(3)
    queue.remove(0)
    queue.remove(1)
    queue.push_back(0)
    queue.push_front(1)
    assert list(queue) == [1, 2, 0]
    assert queue.front() == 1


def test_drained_and_refilled():
    queue = FreeBlockQueue(2)
    queue.remove(1)
    queue.remove(0)
    assert list(queue) == []
    queue.push_back(1)
    assert list(queue) == [1]


def test_removing_twice_is_caught():
    queue = FreeBlockQueue(2)
    queue.remove(0)
    with pytest.raises(AssertionError, match="not in the free queue"):
        queue.remove(0)


def test_inserting_twice_is_caught():
    with pytest.raises(AssertionError, match="in the free queue already"):
        FreeBlockQueue(2).push_back(0)


def test_front_of_an_empty_queue_is_caught():
    with pytest.raises(AssertionError, match="empty"):
        FreeBlockQueue(0).front()


def test_broken_ring_is_told_and_holds_nobody_up():
    pool = BlockPool(4, 8)
    pool.free._next[3] = 1
    assert len(list(pool.free)) == 5
    assert any("duplicates" in found for found in pool.violations([]))
