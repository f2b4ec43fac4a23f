"""What breaks paged engines, rows 1–13: blocks and prefix cache. Each check is run once on the code
as it is, and once for each fault with that fault planted in it: then it must fail.
"""

import random

import pytest

from engine.api.errors import PromptExceedsPoolError
from engine.api.events import FinishReason
from engine.batch import InputBatch
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool
from engine.prefix_cache import PrefixCache
from engine.scheduler import Scheduler
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.faults import Case, Cases, Fault
from tests.helpers.hash_runner import reference_output
from tests.helpers.tiny_model import tiny_llama
from tests.helpers.torch_engine import torch_engine

CASES = Cases()
case = CASES.case
LAGS = (0, 1)


def prompt(length: int, first: int = 0) -> list[int]:
    return [(first + 7 * i) % 900 for i in range(length)]


def ask(engine: CheckedEngine, name: str, ids: list[int], count: int = 8, **kw: object) -> None:
    """Asks alone and expects the model's own answer."""
    engine.add(name, ids, max_tokens=count, **kw)
    engine.run(2000)
    assert engine.output(name) == reference_output(ids, count)


@case(1, Fault(PrefixCache, "match", "request.num_tokens - 1", "request.num_tokens"))
def whole_prompt_is_cached() -> None:
    for lag in LAGS:
        engine = CheckedEngine(16, lag=lag)
        for name in ("a", "b"):
            ask(engine, name, prompt(16))
        usage = engine.finished("b").usage
        assert (usage.cached_tokens, usage.computed_tokens) == (8, 8)


@case(
    2,
    Fault(BlockPool, "allocate", "if self._hash[block_id] is not None:", "if False:"),
    Fault(BlockPool, "_drop_hash", "del self._by_hash[block_hash]", "pass"),
    Fault(BlockPool, "_drop_hash", "self._hash[block_id] = None", "pass"),
)
def reused_block_serves_no_old_prompt() -> None:
    engine = CheckedEngine(4)
    for name, first in (("a", 0), ("b", 400), ("c", 0)):
        ask(engine, name, prompt(20, first), 6)


@case(
    3,
    Fault(
        BlockManager,
        "admit",
        "for _ in range(admission.num_new_blocks)",
        "for _ in range(self.num_blocks_for(request.num_prompt_tokens) - len(admission.hits))",
    ),
)
def resumed_request_has_room_for_all_it_knows() -> None:
    for lag in LAGS:
        engine = CheckedEngine(9, lag=lag)
        for name, first in (("a", 0), ("b", 300), ("c", 600)):
            engine.add(name, prompt(20, first), max_tokens=28)
        engine.run(2000)
        assert engine.core.metrics.num_preemptions > 0
        for name, first in (("a", 0), ("b", 300), ("c", 600)):
            assert engine.output(name) == reference_output(prompt(20, first), 28)


@case(4, Fault(Scheduler, "_make_slot", "self.queues.notes.outgrown.append(request)", "pass"))
def lone_sequence_outgrows_the_pool() -> None:
    engine = CheckedEngine(3)
    engine.add("a", prompt(10), max_tokens=100)
    engine.run(500)
    finished = engine.finished("a")
    assert (finished.reason, finished.limit) == (FinishReason.LENGTH, "pool")
    assert engine.output("a") == reference_output(prompt(10), len(engine.output("a")))
    ask(engine, "b", prompt(10, 300))


@case(5, Fault(BlockManager, "can_ever_fit", "return missing <= usable", "return True"))
def prompt_that_can_never_run_is_refused_at_once() -> None:
    engine = CheckedEngine(4)
    refused = False
    try:
        engine.add("a", prompt(32))
    except PromptExceedsPoolError as error:
        refused = "32 tokens" in str(error)
        refused = refused and "4 blocks of 8" in str(error)
    assert refused
    ask(engine, "b", prompt(10))


@case(
    6,
    Fault(
        PrefixCache,
        "publish",
        "        self._pool.publish(",
        "        other = self._pool.block_of(hashes[index])\n"
        "        if other is not None and other != request.block_table[index]:\n"
        "            self._pool.release(request.block_table[index], request, 'twin')\n"
        "            request.block_table[index] = other\n"
        "            continue\n"
        "        self._pool.publish(",
    ),
)
def identical_blocks_are_not_merged_under_a_live_request() -> None:
    for lag in LAGS:
        engine = CheckedEngine(40, lag=lag)
        engine.add("a", prompt(20), max_tokens=30)
        # Greedy siblings write the same blocks at the same time.
        engine.add("b", prompt(20), max_tokens=30, sibling="a")
        engine.step()
        engine.add("c", [*prompt(16), 5], max_tokens=30)
        engine.run(500)
        for name, ids in (("a", prompt(20)), ("b", prompt(20)), ("c", [*prompt(16), 5])):
            assert engine.output(name) == reference_output(ids, 30)


@case(
    7,
    Fault(
        BlockManager,
        "admit",
        "    self._prefixes.promise(request)",
        "    for index in range(request.num_tokens // self.block_size):\n"
        "        self.pool.set_fill(request.block_table[index], self.block_size, request, 0)\n"
        "    self._prefixes.publish(request, request.num_tokens // self.block_size)",
    ),
)
def failure_before_the_forward_poisons_no_cache() -> None:
    for where in ("fail_next_submit", "fail_next_result"):
        engine = CheckedEngine(16)
        engine.add("a", prompt(20), max_tokens=4)
        setattr(engine.runner, where, OSError("planted"))
        engine.step()
        engine.cancel("a")
        assert engine.core.pool.num_cached == 0
        ask(engine, "b", prompt(20))


@case(
    8,
    Fault(
        BlockManager,
        "free",
        "self.pool.release(block_id, request, cause)",
        "self.pool.release(block_id, request, cause)\n"
        "        if self.pool.is_unused(block_id) and self.pool.hash_of(block_id) is None:\n"
        "            self.pool.free.push_front(block_id)",
    ),
    Fault(BlockPool, "_drop_reference", "if count:", "if False:"),
)
def no_block_is_freed_twice() -> None:
    engine = CheckedEngine(24)
    engine.add("a", prompt(30), max_tokens=12)
    engine.add("b", prompt(30), max_tokens=12, sibling="a")
    for _ in range(4):
        engine.step()
    engine.cancel("a")
    engine.run(500)
    assert engine.output("b") == reference_output(prompt(30), 12)
    assert engine.core.pool.num_used == 0


@case(
    9,
    Fault(
        BlockPool,
        "_add_reference",
        "self.num_cached -= self._columns.state[block_id] == CACHED",
        "pass",
    ),
    Fault(BlockPool, "evict", "self.num_cached -= 1", "pass"),
)
def evictable_blocks_are_counted_right() -> None:
    draw = random.Random(9)
    engine = CheckedEngine(12)
    for number in range(20):
        ask(
            engine,
            f"r{number}",
            prompt(draw.choice([9, 17, 25]), draw.choice([0, 0, 40 * number])),
            4,
        )


@case(
    10,
    Fault(
        BlockManager,
        "examine",
        "    hits = self._prefixes.match(request)",
        "    hits = self._prefixes.match(request)\n"
        "    for block_id in hits:\n"
        "        self.pool.hit(block_id, request, 'early')",
    ),
)
def refusal_after_a_match_leaves_no_reference() -> None:
    engine = CheckedEngine(6)
    ask(engine, "a", prompt(17), 2)
    engine.add("big", prompt(28, 500), max_tokens=8)
    engine.step()
    before = engine.core.pool.columns().ref_count
    engine.add("b", [*prompt(16), *prompt(8, 50)], max_tokens=4)
    engine.core.scheduler.schedule()
    after = engine.core.pool.columns().ref_count
    grown = engine.core.requests["big"].block_table[4:]
    assert all(
        a == b for i, (a, b) in enumerate(zip(before, after, strict=True)) if i // 2 not in grown
    )


@case(
    11,
    Fault(BlockManager, "admit", "[*admission.hits, *new]", "[*new, *admission.hits]"),
    Fault(
        BlockManager,
        "admit",
        "request.num_computed_tokens = len(admission.hits) * self.block_size",
        "request.num_computed_tokens = max(0, len(admission.hits) - 1) * self.block_size",
    ),
)
def hit_is_read_and_not_written() -> None:
    engine = CheckedEngine(20)
    ask(engine, "a", prompt(24))
    computed = engine.core.metrics.total_computed_tokens
    ask(engine, "b", [*prompt(16), *prompt(9, 500)])
    assert engine.core.metrics.total_computed_tokens - computed == 9 + 7
    ask(engine, "c", prompt(24))


@case(
    12,
    Fault(BlockManager, "own_block", "if not self._must_copy(request):", "if True:"),
    Fault(Scheduler, "_schedule_decodes", "self._copies.append(copy)", "pass"),
)
def shared_partial_block_is_copied_before_it_is_written() -> None:
    for lag in LAGS:
        engine = CheckedEngine(30, lag=lag)
        engine.add("a", prompt(20), max_tokens=12)
        for _ in range(3):
            engine.step()
        engine.core.fork("a", "b", "b", seed=1)
        # The two must not say the same: the child reads another token from here on.
        child = engine.core.requests["b"]
        child.token_ids[-1] = (child.token_ids[-1] + 1) % 900
        ids = list(child.token_ids)
        left = 12 - child.num_output_tokens
        engine.run(500)
        assert engine.output("a") == reference_output(prompt(20), 12)
        assert engine.output("b") == reference_output(ids, left)


@case(
    13,
    Fault(
        InputBatch,
        "_lay_prefill",
        "self._positions[first_row:end] = positions",
        "self._positions[first_row:end] = np.arange(count)",
    ),
)
def real_model_says_the_same_hit_or_cold() -> None:
    model = tiny_llama()
    ids = [(5 + 11 * i) % 300 + 3 for i in range(40)]
    cold = torch_engine(model, "paged_reference", prefix_caching=False)
    cold.add("a", ids, 12)
    cold.run()
    warm = torch_engine(model, "paged_reference")
    warm.add("first", [*ids[:32], 7, 8, 9], 4)
    warm.run()
    warm.add("a", ids, 12)
    warm.run()
    assert warm.finished("a").usage.cached_tokens == 32
    assert warm.output("a") == cold.output("a")


@pytest.mark.parametrize("each", CASES.all, ids=lambda each: f"{each.number}")
def test_case_holds(each: Case) -> None:
    each.holds()


@pytest.mark.parametrize(
    ("each", "fault"),
    CASES.with_faults,
    ids=[f"{each.number}-{fault.name}" for each, fault in CASES.with_faults],
)
def test_case_sees_its_fault(each: Case, fault: Fault) -> None:
    each.sees(fault)
