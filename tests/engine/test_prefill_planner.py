"""Prompt tokens are divided fairly by tokens, whatever the sizes of prompts, blocks and budgets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.params import SamplingParams
from engine.prefill_planner import PrefillPlanner
from engine.request import Request


def request(name: str, num_tokens: int) -> Request:
    return Request(name, name, [0] * num_tokens, num_tokens, SamplingParams(), 0, 0.0)


class Steps:
    """Plans steps and counts what each request got."""

    def __init__(self, block_size: int, focused: frozenset[str] = frozenset()) -> None:
        self.planner = PrefillPlanner(block_size)
        self.focused = focused
        self.got: dict[str, int] = {}

    def step(self, pending: list[Request], budget: int) -> list[tuple[str, int]]:
        chunks = self.planner.plan(
            [r for r in pending if r.num_uncomputed_tokens],
            budget,
            lambda r: r.request_id in self.focused,
        )
        for chunk in chunks:
            assert chunk.start == chunk.request.num_computed_tokens
            chunk.request.num_computed_tokens += chunk.num_tokens
            name = chunk.request.request_id
            self.got[name] = self.got.get(name, 0) + chunk.num_tokens
        return [(chunk.request.request_id, chunk.num_tokens) for chunk in chunks]


def test_budget_below_a_block_each_goes_round():
    steps = Steps(16)
    pending = [request(name, 64) for name in "abc"]
    assert [steps.step(pending, 20) for _ in range(4)] == [
        [("a", 16)],
        [("b", 16)],
        [("c", 16)],
        [("a", 16)],
    ]


def test_short_prompt_does_not_wait_for_a_long_one():
    steps = Steps(16)
    long, short = request("long", 8000), request("short", 40)
    steps.step([long], 512)
    assert ("short", 40) in steps.step([long, short], 512)


def test_what_a_short_prompt_leaves_is_used():
    steps = Steps(16)
    assert steps.step([request("a", 20), request("b", 4000)], 512) == [("a", 20), ("b", 480)]


def test_focused_gets_half_while_others_wait_and_what_they_leave():
    steps = Steps(16, focused=frozenset("f"))
    pending = [request("a", 1000), request("f", 4000), request("b", 1000)]
    assert steps.step(pending, 512) == [("f", 256), ("a", 128), ("b", 128)]
    steps.step(pending[1:2], 512)
    assert steps.got["f"] == 256 + 512
    assert steps.step([pending[1], request("c", 10)], 512) == [("f", 496), ("c", 10)]


def test_chunks_end_with_blocks_even_if_they_began_inside_one():
    steps = Steps(16)
    one = request("a", 400)
    one.num_computed_tokens = 5
    assert steps.step([one], 100) == [("a", 91)]


def test_request_that_comes_back_has_no_credit():
    steps = Steps(16)
    a, b = request("a", 4000), request("b", 4000)
    for _ in range(3):
        steps.step([a], 64)
    first = steps.step([a, b], 64)
    assert dict(first) == {"a": 32, "b": 32}


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([8, 16, 64]),
    st.lists(st.integers(1, 3000), min_size=1, max_size=6),
    st.integers(1, 700),
)
def test_every_step_moves_and_shares_differ_by_little(block_size, lengths, budget):
    steps = Steps(block_size)
    pending = [request(f"r{i}", length) for i, length in enumerate(lengths)]
    quantum = max(block_size, budget)
    while any(r.num_uncomputed_tokens for r in pending):
        unfinished = [r.request_id for r in pending if r.num_uncomputed_tokens]
        chunks = steps.step(pending, budget)
        total = sum(count for _, count in chunks)
        assert 0 < total <= budget
        left = [r for r in pending if r.num_uncomputed_tokens]
        for chunk_name, _ in chunks:
            req = next(r for r in pending if r.request_id == chunk_name)
            ends_whole = req.num_computed_tokens % block_size == 0
            assert ends_whole or req not in left or len(chunks) == 1
        if left:
            # A request that still computes is never behind by more than a round and a block.
            shares = [steps.got.get(name, 0) for name in unfinished]
            behind = min(steps.got.get(r.request_id, 0) for r in left)
            assert max(shares) - behind <= 2 * quantum + block_size


@pytest.mark.parametrize("budget", [1, 2, 15, 16, 20, 31, 32])
def test_shares_of_less_than_a_block_starve_nobody(budget):
    """Neither the focused conversation nor the others wait until the other side is done."""
    steps = Steps(16, focused=frozenset("f"))
    pending = [request("f", 4000), request("a", 40)]
    computed = {"f": 0, "a": 0}
    for _ in range(200):
        for name, count in steps.step(pending, budget):
            computed[name] += count
        if not pending[1].num_uncomputed_tokens:
            break
        # At most half for the focused while another waits, but for the ends of blocks.
        assert abs(computed["f"] - computed["a"]) <= 32
    assert computed["a"] == 40
    assert computed["f"] >= 40 - 32


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([8, 16, 64]), st.integers(2, 300), st.integers(1, 3), st.integers(1, 3))
def test_focused_and_others_both_move_in_every_step(block_size, budget, num_focused, num_others):
    names = [*(f"f{i}" for i in range(num_focused)), *(f"o{i}" for i in range(num_others))]
    steps = Steps(block_size, frozenset(name for name in names if name[0] == "f"))
    pending = [request(name, 3000) for name in names]
    for _ in range(40):
        chunks = steps.step(pending, budget)
        assert sum(count for _, count in chunks) <= budget
        if {r.request_id[0] for r in pending if r.num_uncomputed_tokens} != {"f", "o"}:
            return
        assert {name[0] for name, _ in chunks} == {"f", "o"}
