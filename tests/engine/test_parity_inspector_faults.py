"""Faults of real engines, planted: the inspector names layer, block, slot and position of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import engine.attention.contiguous as contiguous
import engine.attention.paged_reference as paged
from engine.api.events import ParityReport
from engine.kv_cache import KVCache
from engine.models.decoder import Decoder
from engine.parity import ParityInspector
from kernels.reference.paged_decode import DecodeGather
from kernels.reference.paged_prefill import PrefillGather
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = 8
LAYERS = 3
DTYPES = ["float32", "bfloat16"]
PROMPT = [(7 * i * i + 3 * i) % 317 + 3 for i in range(61)]

Store = Callable[[KVCache, int, Tensor, Tensor, Tensor], None]
STORE: Store = KVCache.store


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama(num_layers=LAYERS)


def started(tiny: TinyModel, dtype: str = "float32", steps: int = 6, **config: object):
    """A request that has decoded a few tokens, beside another."""
    engine = torch_engine(tiny, "paged_reference", dtype=dtype, **config)
    engine.add("b", PROMPT[3:20], 40, conversation_id="B")
    engine.step(2)
    engine.add("a", PROMPT, 20, conversation_id="A")
    engine.step(steps)
    return engine


def inspector_of(engine: TorchEngine) -> ParityInspector:
    return ParityInspector(engine.core, engine.runner)


def assert_named(
    report: ParityReport, layer: int, position: int, table: Sequence[int], part: str
) -> None:
    block = table[position // SIZE]
    slot = block * SIZE + position % SIZE
    assert not report.within_bound
    assert report.first_bad_layer == layer
    assert report.bad_position == position
    assert (report.bad_block_id, report.bad_slot) == (block, slot)
    assert report.layer_errors[layer] > report.bound
    assert all(error <= report.bound for error in report.layer_errors[:layer])
    assert f"layer {layer}, by " in report.verdict
    assert f"position {position}, block {block}, slot {slot}" in report.verdict
    assert part in report.verdict


def lent_table(engine: TorchEngine, num_tokens: int) -> list[int]:
    """The blocks that the inspector is going to use."""
    return list(engine.core.pool.free)[: -(-num_tokens // SIZE)]


# --- the reshape copied, the pool was never written ---


def store_into_a_copy(layer: int) -> Store:
    """A tensor sliced twice has no flat view: ``reshape`` copies it, and the write is lost."""

    def store(self: KVCache, at: int, key: Tensor, value: Tensor, slots: Tensor) -> None:
        if at != layer:
            return STORE(self, at, key, value, slots)
        for cache, new in ((self.k[at], key), (self.v[at], value)):
            rows = cache[:, :-1][:-1].reshape(-1, new.shape[1])
            assert rows.data_ptr() != cache.data_ptr()
            rows.index_copy_(0, slots.clamp(max=len(rows) - 1), new)
        return None

    return store


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layer", range(LAYERS))
def test_live_pool_never_written(
    tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, layer: int, dtype: str
) -> None:
    monkeypatch.setattr(KVCache, "store", store_into_a_copy(layer))
    engine = started(tiny, dtype)
    report = inspector_of(engine).inspect_conversation("A")
    assert_named(report, layer, 0, engine.core.requests["a"].block_table, "The keys are wrong")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layer", range(LAYERS))
def test_backend_that_never_writes(
    tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, layer: int, dtype: str
) -> None:
    monkeypatch.setattr(KVCache, "store", store_into_a_copy(layer))
    engine = torch_engine(tiny, "paged_reference", dtype=dtype)
    table = lent_table(engine, len(PROMPT))
    report = inspector_of(engine).compare(PROMPT, "paged_reference")
    assert_named(report, layer, 0, table, "The keys that it stored are wrong")
    # The other layers are judged by themselves and are sound.
    others = [error for at, error in enumerate(report.layer_errors) if at != layer]
    assert max(others) <= report.bound
    assert "Layers over the bound: 1 of 3" in report.verdict
    # Nor is the reference led astray by what it judges.
    assert report.logits_error > 0.3


# --- the last block was skipped ---


def store_without_the_last_block(layer: int) -> Store:
    """A loop over the blocks of a prompt that ends one too early."""

    def store(self: KVCache, at: int, key: Tensor, value: Tensor, slots: Tensor) -> None:
        keep = slots // SIZE != slots[-1] // SIZE
        if at == layer and len(slots) > SIZE:
            key, value, slots = key[keep], value[keep], slots[keep]
        STORE(self, at, key, value, slots)

    return store


def store_by_whole_blocks(layer: int) -> Store:
    """A loop that starts inside a block and advances a whole block at a time.

    Each round writes up to the end of its block.
    """

    def store(self: KVCache, at: int, key: Tensor, value: Tensor, slots: Tensor) -> None:
        inside = SIZE - int(slots[0]) % SIZE
        keep = torch.arange(len(slots)) % SIZE < inside
        if at == layer:
            key, value, slots = key[keep], value[keep], slots[keep]
        STORE(self, at, key, value, slots)

    return store


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layer", range(LAYERS))
def test_live_pool_without_the_last_block_of_the_prompt(
    tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, layer: int, dtype: str
) -> None:
    monkeypatch.setattr(KVCache, "store", store_without_the_last_block(layer))
    engine = torch_engine(tiny, "paged_reference", dtype=dtype)
    engine.add("a", PROMPT, 20, conversation_id="A")
    engine.step(9)
    report = inspector_of(engine).inspect_conversation("A")
    assert_named(report, layer, 56, engine.core.requests["a"].block_table, "The keys are wrong")


@pytest.mark.parametrize("layer", range(LAYERS))
def test_backend_that_skips_the_end_of_a_block(
    tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, layer: int
) -> None:
    """The second chunk begins at position 12, inside a block: 16 to 19 are lost."""
    monkeypatch.setattr(KVCache, "store", store_by_whole_blocks(layer))
    engine = torch_engine(tiny, "paged_reference")
    table = lent_table(engine, len(PROMPT))
    report = inspector_of(engine).compare(PROMPT, "paged_reference")
    assert_named(report, layer, 16, table, "The keys that it stored are wrong")


@pytest.mark.parametrize("dtype", DTYPES)
def test_backend_that_does_not_read_the_last_block_of_a_chunk(
    tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """What is stored is right; attention is wrong from the first token of that block on."""
    gather = paged.prefill_gather

    def skipping(table: Tensor, start: int, count: int, size: int, *rest: object):
        laid = gather(table, start, count, size, *rest)
        slots = laid.slots.clone()
        slots[(len(slots) - 1) // size * size :] = slots[0]
        return PrefillGather(slots, laid.mask)

    monkeypatch.setattr(paged, "prefill_gather", skipping)
    engine = torch_engine(tiny, "paged_reference", dtype=dtype)
    table = lent_table(engine, len(PROMPT))
    report = inspector_of(engine).compare(PROMPT, "paged_reference")
    # The first chunk has 12 tokens.
    assert_named(report, 0, 8, table, "was read wrongly, first by")
    assert "Layers over the bound: 3 of 3" in report.verdict


def test_backend_without_blocks_that_is_wrong(
    tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its buffer loses a row: there is a position to name and no block."""
    append = contiguous._Buffer.append

    def losing(self, layer: int, start: int, key: Tensor, value: Tensor):
        keys, values = append(self, layer, start, key, value)
        if layer == 1 and start <= 30 < start + len(key):
            values[30] = 0.0
        return keys, values

    monkeypatch.setattr(contiguous._Buffer, "append", losing)
    report = inspector_of(torch_engine(tiny, "paged_reference")).compare(PROMPT, "contiguous")
    assert not report.within_bound
    assert (report.first_bad_layer, report.bad_position) == (1, 30)
    assert (report.bad_block_id, report.bad_slot) == (-1, -1)
    assert "Its attention is wrong, first at position 30." in report.verdict


def test_backend_that_does_not_read_the_last_block_when_decoding(
    tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = paged.decode_gather

    def skipping(tables: Tensor, lengths: Tensor, size: int, *rest: object) -> DecodeGather:
        return original(tables, (lengths - 1) // size * size, size, *rest)

    monkeypatch.setattr(paged, "decode_gather", skipping)
    engine = torch_engine(tiny, "paged_reference")
    table = lent_table(engine, len(PROMPT))
    report = inspector_of(engine).compare(PROMPT, "paged_reference")
    # The last four tokens are decoded.
    assert_named(report, 0, 57, table, "was read wrongly, first by")


def test_wrong_attention_shows_in_the_keys_of_the_next_layer(
    tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In live mode only what is stored can be seen."""
    original = paged.decode_gather

    def skipping(tables: Tensor, lengths: Tensor, size: int, *rest: object) -> DecodeGather:
        return original(tables, (lengths - 1).clamp(min=size) // size * size, size, *rest)

    monkeypatch.setattr(paged, "decode_gather", skipping)
    engine = torch_engine(tiny, "paged_reference")
    engine.add("a", PROMPT[:60], 20, conversation_id="A")
    engine.step(3)
    report = inspector_of(engine).inspect_conversation("A")
    assert_named(report, 1, 60, engine.core.requests["a"].block_table, "are wrong from")


# --- one slot is stale ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", ["keys", "values"])
@pytest.mark.parametrize(("layer", "position"), [(0, 0), (1, 37), (2, 16), (2, 60), (0, 63)])
def test_stale_slot_of_a_running_request(
    tiny: TinyModel, layer: int, position: int, part: str, dtype: str
) -> None:
    """It holds what an earlier owner of the block had there: here another token's KV."""
    engine = started(tiny, dtype)
    table = engine.core.requests["a"].block_table
    stale(engine, layer, table, position, part)
    report = inspector_of(engine).inspect_conversation("A")
    assert_named(report, layer, position, table, f"The {part} are wrong from")
    assert "Layers over the bound: 1 of 3" in report.verdict
    # Its neighbour is not accused.
    assert inspector_of(engine).inspect_conversation("B").within_bound


@pytest.mark.parametrize("dtype", DTYPES)
def test_stale_slot_in_the_cache(tiny: TinyModel, dtype: str) -> None:
    engine = started(tiny, dtype)
    table = list(engine.core.requests["a"].block_table)
    engine.run()
    stale(engine, 1, table, 29, "values")
    report = inspector_of(engine).inspect_conversation("A")
    assert_named(report, 1, 29, table, "blocks of the prefix cache differ")


def test_slot_that_is_not_a_number(tiny: TinyModel) -> None:
    engine = started(tiny)
    table = engine.core.requests["a"].block_table
    cache = engine.runner.attention.cache
    assert cache is not None
    cache.v[2][table[1], 3, 0, 0] = float("nan")
    assert_named(inspector_of(engine).inspect_conversation("A"), 2, SIZE + 3, table, "values")


def test_table_that_leads_to_anothers_block(tiny: TinyModel) -> None:
    engine = started(tiny)
    present = engine.core.requests["a"], engine.core.requests["b"]
    table, other = (list(request.block_table) for request in present)
    present[0].block_table[4] = other[1]
    report = inspector_of(engine).inspect_conversation("A")
    present[0].block_table[4] = table[4]
    assert (report.first_bad_layer, report.bad_position) == (0, 4 * SIZE)
    assert report.bad_block_id == other[1]


def stale(engine: TorchEngine, layer: int, table: Sequence[int], position: int, part: str) -> None:
    cache = engine.runner.attention.cache
    assert cache is not None
    tensor = (cache.k if part == "keys" else cache.v)[layer]
    other = (position + 11) % 60
    block, offset = divmod(other, SIZE)
    tensor[table[position // SIZE], position % SIZE] = tensor[table[block], offset]


# --- as a whole ---


def test_chunks_that_forget_where_they_start_show_in_the_logits(
    tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention over given keys is right in each layer; the whole is not."""
    forward = Decoder.forward

    def forgetful(self: Decoder, ids: Tensor, positions: Tensor, *rest) -> Tensor:
        return forward(self, ids, positions - positions[0], *rest)

    monkeypatch.setattr(Decoder, "forward", forgetful)
    report = inspector_of(torch_engine(tiny, "paged_reference")).compare(PROMPT, "paged_reference")
    assert not report.within_bound
    assert (report.first_bad_layer, report.bad_slot) == (-1, -1)
    assert report.logits_error > 0.01
    assert "run as a whole its logits differ by" in report.verdict
