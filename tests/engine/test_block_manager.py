"""Block tables: matches, admission, publishing, release. Exact block ids and queue order."""

from engine.api.events import TableChanged
from engine.api.params import GREEDY
from engine.block_hash import root_hash
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool
from engine.request import Request


def manager(num_blocks: int = 8, block_size: int = 2, **kw: bool) -> BlockManager:
    return BlockManager(BlockPool(num_blocks, block_size), root_hash("test"), **kw)


def request(name: str, tokens: list[int]) -> Request:
    return Request(name, f"c-{name}", tokens, len(tokens), GREEDY, 0, 0.0)


def admit(blocks: BlockManager, req: Request) -> Request:
    admission = blocks.examine(req, 0)
    assert admission.num_short == 0
    blocks.admit(req, admission)
    return req


def compute(blocks: BlockManager, req: Request) -> None:
    start = req.num_computed_tokens
    req.num_computed_tokens = req.num_tokens
    blocks.commit(req, start, req.num_tokens - start, 1)


def test_prompt_gets_blocks_in_address_order():
    blocks = manager()
    assert admit(blocks, request("a", [1, 2, 3, 4, 5])).block_table == [0, 1, 2]
    assert list(blocks.pool.free) == [3, 4, 5, 6, 7]


def test_nothing_is_found_before_it_is_computed():
    blocks = manager()
    admit(blocks, request("a", [1, 2, 3, 4, 5]))
    assert blocks.examine(request("b", [1, 2, 3, 4, 5]), 0).hits == ()


def test_computed_prefix_is_shared():
    blocks = manager()
    first = admit(blocks, request("a", [1, 2, 3, 4, 5]))
    compute(blocks, first)
    second = admit(blocks, request("b", [1, 2, 3, 4, 9]))
    assert second.block_table == [0, 1, 3]
    assert second.num_computed_tokens == 4
    assert [blocks.pool.ref_count(b) for b in (0, 1, 2, 3)] == [2, 2, 1, 1]


def test_whole_prompt_cached_still_computes_one_token():
    blocks = manager()
    first = admit(blocks, request("a", [1, 2, 3, 4]))
    compute(blocks, first)
    second = admit(blocks, request("b", [1, 2, 3, 4]))
    assert second.block_table == [0, 2]
    assert second.num_computed_tokens == 2


def test_same_block_content_after_another_prefix_is_no_hit():
    blocks = manager()
    compute(blocks, admit(blocks, request("a", [1, 2, 3, 4, 5])))
    assert blocks.examine(request("b", [8, 8, 3, 4, 5]), 0).hits == ()


def test_release_puts_the_tail_before_the_head():
    blocks = manager(4)
    first = admit(blocks, request("a", [1, 2, 3, 4, 5]))
    compute(blocks, first)
    blocks.free(first, "finish")
    # Block 2 never got a hash and goes to the front; the chain's tail (1) goes before its head (0).
    assert list(blocks.pool.free) == [2, 3, 1, 0]


def test_eviction_takes_a_chain_from_its_tail():
    blocks = manager(4)
    first = admit(blocks, request("a", [1, 2, 3, 4, 5]))
    compute(blocks, first)
    blocks.free(first, "finish")
    admit(blocks, request("b", [9, 9, 9, 9, 9, 9]))
    assert blocks.examine(request("c", [1, 2, 3, 4, 5]), 0).hits == (0,)


def test_examining_changes_nothing():
    blocks = manager(3)
    first = admit(blocks, request("a", [1, 2, 3, 4]))
    compute(blocks, first)
    blocks.free(first, "finish")
    before = (list(blocks.pool.free), blocks.pool.columns())
    admission = blocks.examine(request("b", [1, 2, 3, 4, 5, 6, 7, 8]), 0)
    assert (admission.hits, admission.num_new_blocks, admission.num_short) == ((0, 1), 2, 1)
    assert (list(blocks.pool.free), blocks.pool.columns()) == before


def test_reserve_counts_as_missing():
    blocks = manager(4)
    assert blocks.examine(request("a", [1, 2, 3, 4]), 2).num_short == 0
    assert blocks.examine(request("a", [1, 2, 3, 4]), 3).num_short == 1


def test_prompt_that_can_never_fit():
    blocks = manager(3, 2)
    assert blocks.can_ever_fit([7] * 5)
    assert not blocks.can_ever_fit([7] * 6)


def test_pinned_blocks_are_not_room():
    blocks = manager(3, 2)
    first = admit(blocks, request("a", [1, 2, 3]))
    compute(blocks, first)
    blocks.pool.pin(0, "c")
    assert blocks.can_ever_fit([7] * 3)
    assert not blocks.can_ever_fit([7] * 4)


def test_pinned_beginning_of_the_prompt_serves_it():
    blocks = manager(3, 2)
    first = admit(blocks, request("a", [1, 2, 3]))
    compute(blocks, first)
    blocks.pool.pin(0, "c")
    assert blocks.can_ever_fit([1, 2, 3, 4, 5])
    assert not blocks.can_ever_fit([1, 2, 3, 4, 5, 6])


def test_growing_takes_a_block_only_when_the_last_is_full():
    blocks = manager(3)
    req = admit(blocks, request("a", [1, 2, 3]))
    req.token_ids.append(4)
    assert blocks.append_slot(req)
    assert req.block_table == [0, 1]
    req.token_ids.append(5)
    assert blocks.append_slot(req)
    assert req.block_table == [0, 1, 2]


def test_growing_fails_in_a_full_pool_and_changes_nothing():
    blocks = manager(2)
    req = admit(blocks, request("a", [1, 2, 3, 4]))
    req.token_ids.append(5)
    assert not blocks.append_slot(req)
    assert req.block_table == [0, 1]


def test_partial_block_is_never_published():
    blocks = manager()
    compute(blocks, admit(blocks, request("a", [1, 2, 3])))
    assert blocks.pool.hash_of(0) is not None
    assert blocks.pool.hash_of(1) is None
    assert blocks.pool.fill(1) == 1


def test_twin_is_named_until_its_block_is_there():
    blocks = manager()
    first = admit(blocks, request("a", [1, 2, 3, 4, 5]))
    second = request("b", [1, 2, 3, 4, 6])
    assert blocks.examine(second, 0).twin is first
    assert blocks.twin_still_computing(second)
    blocks.commit(first, 0, 2, 1)
    assert not blocks.twin_still_computing(second)
    assert blocks.examine(second, 0).twin is first
    blocks.commit(first, 2, 3, 2)
    admission = blocks.examine(second, 0)
    assert (admission.hits, admission.twin) == ((0, 1), None)


def test_no_twin_behind_the_last_shared_block():
    blocks = manager()
    admit(blocks, request("a", [1, 2, 3, 4, 5]))
    assert blocks.examine(request("b", [7, 2, 3, 4, 5]), 0).twin is None


def test_twin_that_leaves_is_waited_for_no_longer():
    blocks = manager()
    first = admit(blocks, request("a", [1, 2, 3, 4, 5]))
    second = request("b", [1, 2, 3, 4, 6])
    assert blocks.examine(second, 0).twin is first
    blocks.free(first, "cancel")
    assert not blocks.twin_still_computing(second)
    assert blocks.examine(second, 0).twin is None


def test_without_prefix_caching_nothing_is_shared():
    blocks = manager(prefix_caching=False)
    first = admit(blocks, request("a", [1, 2, 3, 4, 5]))
    compute(blocks, first)
    admission = blocks.examine(request("b", [1, 2, 3, 4, 5]), 0)
    assert (admission.hits, admission.twin) == ((), None)
    blocks.free(first, "finish")
    assert blocks.pool.num_cached == 0


def test_table_events_fold_to_the_table():
    blocks = manager()
    blocks.pool.log.enabled = True
    req = admit(blocks, request("a", [1, 2, 3]))
    req.token_ids.extend([4, 5])
    blocks.append_slot(req)
    blocks.free(req, "finish")
    tables = [event for event in blocks.pool.log.drain() if isinstance(event, TableChanged)]
    assert [(e.start, e.removed, e.added, e.cause) for e in tables] == [
        (0, (), (0, 1), "admit"),
        (2, (), (2,), "grow"),
        (0, (0, 1, 2), (), "finish"),
    ]


def test_what_may_be_wrong_is_not_found_again_unless_others_use_it():
    blocks = manager()
    first = admit(blocks, request("a", [1, 2, 3, 4, 5]))
    compute(blocks, first)
    second = admit(blocks, request("b", [1, 2, 7, 8, 9]))
    compute(blocks, second)
    blocks.doubt(first, "error")
    blocks.free(first, "error")
    assert blocks.known_prefix([1, 2, 3, 4]) == [0]
    assert blocks.known_prefix([1, 2, 7, 8]) == second.block_table[:2]
    # Never-hashed blocks are given away first, and these count among them again.
    assert list(blocks.pool.free)[:2] == [1, 2]
