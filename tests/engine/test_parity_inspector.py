"""The parity inspector on healthy engines: no false alarm, and nothing is changed by looking."""

from __future__ import annotations

import random

import pytest
import torch

from engine.api.errors import (
    DeviceError,
    InvalidValueError,
    NotSupportedYetError,
    PromptTooLongError,
    UnknownIdError,
)
from engine.parity import ParityInspector
from engine.parity_measure import Bounds, bounds_of, difference
from engine.parity_source import present_kv
from engine.parity_steps import chunk_sizes
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine

pytestmark = pytest.mark.usefixtures("one_thread")

DTYPES = ["float32", "bfloat16", "float16", "float64"]
SIZE = 8


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama()


def tokens(count: int, seed: int = 1) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(3, 320) for _ in range(count)]


def inspector_of(engine: TorchEngine) -> ParityInspector:
    return ParityInspector(engine.core, engine.runner)


# --- no false alarm ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", ["paged_reference", "contiguous", "dense"])
def test_backends_agree(tiny: TinyModel, backend: str, dtype: str) -> None:
    inspector = inspector_of(torch_engine(tiny, "paged_reference", dtype=dtype))
    report = inspector.compare(tokens(101), backend)
    assert report.within_bound, report.verdict
    assert (report.backend, report.reference, report.num_tokens) == (backend, "dense", 101)
    assert report.bound == bounds_of(getattr(torch, dtype)).attention
    assert len(report.layer_errors) == tiny.config.num_layers
    assert max(report.layer_errors) <= report.bound
    assert (report.first_bad_layer, report.bad_block_id, report.bad_slot) == (-1, -1, -1)
    assert report.bad_position == -1
    assert f"{backend} equals dense to " in report.verdict
    assert report.verdict.endswith("first layer over the bound: none.")
    if backend == "paged_reference":
        assert min(report.layer_errors) > 0.0, "two ways to compute it, not one with itself"


def test_float32_is_exact_to_rounding(tiny: TinyModel) -> None:
    report = inspector_of(torch_engine(tiny, "paged_reference")).compare(
        tokens(101), "paged_reference"
    )
    assert max(report.layer_errors) < 1e-5
    assert report.logits_error < 1e-4


@pytest.mark.parametrize("count", [1, 2, 5, 7, 8, 9, 17])
@pytest.mark.parametrize("backend", ["paged_reference", "contiguous"])
def test_every_length_around_a_block(tiny: TinyModel, backend: str, count: int) -> None:
    report = inspector_of(torch_engine(tiny, "paged_reference")).compare(tokens(count), backend)
    assert report.within_bound, report.verdict


def test_any_two_backends(tiny: TinyModel) -> None:
    inspector = inspector_of(torch_engine(tiny, "contiguous"))
    report = inspector.compare(tokens(40), "contiguous", "paged_reference")
    assert (report.backend, report.reference) == ("contiguous", "paged_reference")
    assert report.within_bound
    same = inspector_of(torch_engine(tiny, "paged_reference"))
    assert max(same.compare(tokens(40), "paged_reference", "paged_reference").layer_errors) == 0.0


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_live_pool_is_what_a_recomputation_gives(tiny: TinyModel, dtype: str, lag: int) -> None:
    """Chunks, decodes beside others, a prefix hit and a fork; running and then cached."""
    engine = torch_engine(tiny, "paged_reference", dtype=dtype, token_budget=30, lag=lag)
    prompt = tokens(60)
    engine.add("a", prompt, 24, conversation_id="A")
    engine.step(4)
    engine.add("b", prompt[:40] + tokens(9, 2), 24, conversation_id="B")
    engine.step(6)
    engine.core.fork("a", "f", "F", seed=0)
    engine.step(3)
    inspector = inspector_of(engine)
    for name, request_id in (("A", "a"), ("B", "b"), ("F", "f")):
        report = inspector.inspect_conversation(name)
        assert report.within_bound, report.verdict
        assert report.num_tokens == engine.core.requests[request_id].num_committed_tokens
        assert "of a running request equal a dense recomputation" in report.verdict
        assert report.bound == bounds_of(getattr(torch, dtype)).state
    engine.run()
    for name in ("A", "B", "F"):
        report = inspector.inspect_conversation(name)
        assert report.within_bound, report.verdict
        assert report.num_tokens >= 64
        assert "blocks of the prefix cache" in report.verdict


def test_errors_of_a_healthy_pool_are_not_zero_throughout(tiny: TinyModel) -> None:
    """The recomputation is one, and not a second look at the same memory."""
    engine = torch_engine(tiny, "paged_reference")
    engine.add("a", tokens(60), 24)
    engine.step(12)
    errors = inspector_of(engine).inspect_conversation("a").layer_errors
    assert all(0.0 < error < 1e-4 for error in errors)


# --- what is looked at ---


def test_conversation_that_is_not_there(tiny: TinyModel) -> None:
    engine = torch_engine(tiny, "paged_reference")
    inspector = inspector_of(engine)
    with pytest.raises(UnknownIdError, match="nothing of the conversation nobody"):
        inspector.inspect_conversation("nobody")
    # One that waits and was never computed has nothing either.
    engine.add("a", tokens(20))
    with pytest.raises(UnknownIdError):
        inspector.inspect_conversation("a")
    engine.run()
    assert inspector.inspect_conversation("a").within_bound
    engine.core.pool.drop_cached("test")
    with pytest.raises(UnknownIdError):
        inspector.inspect_conversation("a")


def test_longest_cached_chain_of_the_conversation(tiny: TinyModel) -> None:
    """Also where its first blocks were used by another conversation after it."""
    engine = torch_engine(tiny, "paged_reference")
    prompt = tokens(50)
    engine.add("a", prompt, 8, conversation_id="A")
    engine.run()
    engine.add("a2", [*prompt[:20], *tokens(12, 5)], 1, conversation_id="A")
    engine.run()
    engine.add("b", prompt[:25], 8, conversation_id="B")
    engine.run()
    present = present_kv(engine.core, "A")
    fed = [*prompt, *engine.output("a")][: 57 // SIZE * SIZE]
    assert list(present.token_ids) == fed
    assert len(present.block_table) == len(fed) // SIZE
    assert not present.running
    assert engine.core.pool.view(present.block_table[0]).owner == "B"


def test_chain_whose_beginning_was_evicted_is_not_looked_at(tiny: TinyModel) -> None:
    engine = torch_engine(tiny, "paged_reference")
    engine.add("a", tokens(50), 8, conversation_id="A")
    engine.run()
    head = present_kv(engine.core, "A").block_table[0]
    engine.core.pool.evict(head, "test")
    with pytest.raises(UnknownIdError):
        present_kv(engine.core, "A")


def test_blocks_that_another_used_last_are_found_by_their_tokens(tiny: TinyModel) -> None:
    engine = torch_engine(tiny, "paged_reference")
    prompt = tokens(50)
    engine.add("A", prompt, 8)
    engine.run()
    engine.add("B", [*prompt, *engine.output("A")], 1)
    engine.run()
    inspector = inspector_of(engine)
    with pytest.raises(UnknownIdError):
        inspector.inspect_conversation("A")
    report = inspector.inspect_conversation("A", [*prompt, *engine.output("A")])
    assert report.within_bound
    assert report.num_tokens == 56
    # Tokens of which nothing is cached do not hide what else there is.
    assert inspector.inspect_conversation("B", tokens(50, 77)).num_tokens == 56
    with pytest.raises(UnknownIdError):
        inspector.inspect_conversation("A", tokens(50, 77))


def test_request_that_has_computed_most(tiny: TinyModel) -> None:
    engine = torch_engine(tiny, "paged_reference")
    engine.add("first", tokens(20), 30, conversation_id="A")
    engine.add("second", tokens(40, 3), 30, conversation_id="A")
    engine.step(3)
    present = present_kv(engine.core, "A")
    request = engine.core.requests["second"]
    assert present.running
    assert list(present.block_table) == request.block_table[: len(present.block_table)]
    assert len(present.token_ids) == request.num_committed_tokens > 40


# --- refusals ---


def test_impossible_questions(tiny: TinyModel) -> None:
    inspector = inspector_of(torch_engine(tiny, "paged_reference"))
    with pytest.raises(InvalidValueError):
        inspector.compare([], "paged_reference")
    with pytest.raises(PromptTooLongError, match="513 tokens"):
        inspector.compare(tokens(513), "paged_reference")
    with pytest.raises(NotSupportedYetError):
        inspector.compare(tokens(9), "warp")
    with pytest.raises(DeviceError):
        inspector.compare(tokens(9), "paged_triton")


def test_live_mode_without_a_pool(tiny: TinyModel) -> None:
    engine = torch_engine(tiny, "contiguous")
    engine.add("a", tokens(20), 9)
    engine.step(3)
    with pytest.raises(NotSupportedYetError, match="contiguous"):
        inspector_of(engine).inspect_conversation("a")


# --- nothing changes ---


def kv_bytes(engine: TorchEngine, keep: set[int]) -> list[torch.Tensor]:
    cache = engine.runner.attention.cache
    assert cache is not None
    blocks = torch.tensor(sorted(keep))
    return [tensor[blocks].clone() for tensor in (*cache.k, *cache.v)]


def look(engine: TorchEngine) -> None:
    inspector = inspector_of(engine)
    for backend in ("paged_reference", "contiguous"):
        assert inspector.compare(tokens(70, 9), backend).within_bound
    assert inspector.compare(tokens(30, 8), "dense", "paged_reference").within_bound
    for conversation_id in {request.conversation_id for request in engine.core.requests.values()}:
        assert inspector.inspect_conversation(conversation_id).within_bound


def test_pool_is_unchanged(tiny: TinyModel) -> None:
    engine = torch_engine(tiny, "paged_reference", num_blocks=40)
    engine.add("done", tokens(60, 4), 8)
    engine.run()
    engine.add("a", tokens(50), 30)
    engine.step(5)
    pool = engine.core.pool
    assert pool.num_used > 0
    assert pool.num_cached > 0
    assert pool.num_free >= 9
    held = set(range(40)) - {b for b in pool.free if pool.hash_of(b) is None}
    engine.core.log.enabled = True
    before = (pool.columns(), list(pool.free), engine.core.log.seq, pool.num_cached)
    content = kv_bytes(engine, held)
    look(engine)
    assert (pool.columns(), list(pool.free), engine.core.log.seq, pool.num_cached) == before
    for was, now in zip(content, kv_bytes(engine, held), strict=True):
        assert torch.equal(was, now)
    assert engine.core.violations() == []


def test_full_pool_is_left_alone(tiny: TinyModel) -> None:
    """No free block to lend: storage of its own is used, and the cached blocks stay."""
    engine = torch_engine(tiny, "paged_reference", num_blocks=16)
    engine.add("done", tokens(63, 4), 1)
    engine.run()
    engine.add("a", tokens(50), 8)
    engine.step(4)
    pool = engine.core.pool
    assert pool.num_free < 9
    assert pool.num_cached > 0
    before = (pool.columns(), list(pool.free))
    content = kv_bytes(engine, set(range(16)))
    look(engine)
    assert (pool.columns(), list(pool.free)) == before
    for was, now in zip(content, kv_bytes(engine, set(range(16))), strict=True):
        assert torch.equal(was, now)


def test_lent_blocks_are_those_of_the_pool(tiny: TinyModel) -> None:
    """The live backend's own memory is tried, where there is room."""
    engine = torch_engine(tiny, "paged_reference")
    free = list(engine.core.pool.free)
    inspector_of(engine).compare(tokens(3 * SIZE), "paged_reference")
    cache = engine.runner.attention.cache
    assert cache is not None
    written = [bool(cache.k[0][block].any()) for block in free]
    assert written == [True] * 3 + [False] * (len(free) - 3)


def test_free_block_behind_cached_ones(tiny: TinyModel) -> None:
    """Free blocks need not be the first of the queue; cached ones are never lent."""
    engine = torch_engine(tiny, "paged_reference", num_blocks=12)
    engine.add("done", tokens(70, 4), 1)
    engine.run()
    pool = engine.core.pool
    evicted = list(pool.free)[-1]
    pool.evict(evicted, "test")
    queue = list(pool.free)
    cached = [block for block in queue if pool.hash_of(block) is not None]
    assert queue.index(evicted) > queue.index(cached[0])
    content = kv_bytes(engine, set(cached))
    report = inspector_of(engine).compare(tokens(pool.num_free * SIZE), "paged_reference")
    assert report.within_bound
    for was, now in zip(content, kv_bytes(engine, set(cached)), strict=True):
        assert torch.equal(was, now)
    assert list(pool.free) == queue


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("backend", ["paged_reference", "contiguous"])
def test_requests_do_not_notice(tiny: TinyModel, backend: str, lag: int) -> None:
    outputs, num_looks = [], 0
    for looking in (False, True):
        engine = torch_engine(tiny, backend, num_blocks=24, lag=lag, token_budget=24)
        for index in range(3):
            engine.add(str(index), tokens(30 + 9 * index, index), 24)
        while engine.core.has_work:
            engine.step()
            if looking and engine.core.num_steps % 5 == 1:
                inspector_of(engine).compare(tokens(60, 9), "paged_reference")
                running = [r for r in engine.core.requests.values() if r.num_committed_tokens]
                for request in running if backend == "paged_reference" else ():
                    report = inspector_of(engine).inspect_conversation(request.conversation_id)
                    assert report.within_bound
                    num_looks += 1
        outputs.append([engine.output(str(index)) for index in range(3)])
        assert engine.core.pool.num_used == 0
    assert outputs[0] == outputs[1]
    assert all(len(output) == 24 for output in outputs[0])
    assert (num_looks > 5) == (backend == "paged_reference")


# --- its parts ---


def test_chunks_end_inside_blocks_and_the_last_tokens_are_decoded() -> None:
    assert chunk_sizes(1, 8) == [1]
    assert chunk_sizes(2, 8) == [1, 1]
    assert chunk_sizes(40, 8) == [12, 12, 12, 1, 1, 1, 1]
    assert chunk_sizes(300, 16) == [50] * 5 + [46] + [1] * 4
    assert chunk_sizes(1000, 16) == [64] * 15 + [36] + [1] * 4
    for count in range(1, 200):
        assert sum(chunk_sizes(count, 8)) == count


def test_difference_is_relative_to_the_column() -> None:
    wanted = torch.tensor([[100.0, 1.0], [-50.0, 1.0], [10.0, -2.0]])
    found = wanted.clone()
    found[1, 0] += 0.5
    assert difference(found, wanted, 0.004).error == pytest.approx(0.005)
    assert difference(found, wanted, 0.004).first_row == 1
    assert difference(found, wanted, 0.006).first_row == -1
    # A column that happens to be small: by the root mean square of all, here 45.84.
    found = wanted.clone()
    found[2, 1] += 1.0
    assert difference(found, wanted, 1.0).error == pytest.approx(1.0 / 45.84, rel=1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_a_number_is_over_any_bound(bad: float) -> None:
    wanted = torch.ones(3, 2)
    found = wanted.clone()
    found[2, 1] = bad
    assert difference(found, wanted, 1e9).first_row == 2
    assert difference(wanted, found, 1e9).first_row >= 0
    assert difference(found, found, 1e9).first_row >= 0


def test_nothing_and_zeros() -> None:
    assert difference(torch.zeros(0, 4), torch.zeros(0, 4), 0.1).first_row == -1
    assert difference(torch.zeros(2, 4), torch.zeros(2, 4), 0.1).error == 0.0
    assert difference(torch.ones(2, 4), torch.zeros(2, 4), 0.1).first_row == 0


def test_bounds_are_stated_for_every_dtype() -> None:
    assert bounds_of(torch.float32) == Bounds(1e-4, 1e-4)
    for name in DTYPES:
        bounds = bounds_of(getattr(torch, name))
        assert 0.0 < bounds.attention <= bounds.state < 0.5
