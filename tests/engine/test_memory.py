"""How many blocks fit: exact numbers for memories that are made up."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import psutil
import pytest
import torch

from engine.api.errors import OutOfMemoryError
from engine.api.params import EngineConfig
from engine.memory import (
    DESKTOP_MARGIN_BYTES,
    HOST_POOL_CAP_BYTES,
    check_weights_fit,
    device_num_blocks,
    host_num_blocks,
)
from engine.models.decoder import Decoder
from engine.pool_sizing import allocate_shrinking, measured_num_blocks, workspace_bytes
from tests.helpers.tiny_model import tiny_llama

MIB, GIB = 1 << 20, 1 << 30
CUDA = torch.device("cuda", 0)
CONFIG = EngineConfig()
BLOCK = 1 * MIB


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch):
    """Sets how much of the host's memory is free."""

    def set_free(free: int) -> None:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))

    return set_free


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch):
    """Sets how much of a GPU's memory is free, of how much."""

    def set_free(free: int, total: int) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (free, total))

    return set_free


# --- on the host ---


def test_a_quarter_of_the_host_but_no_more_than_the_cap(host) -> None:
    host(2 * GIB)
    assert host_num_blocks(CONFIG, BLOCK) == 512
    host(100 * GIB)
    assert host_num_blocks(CONFIG, BLOCK) == HOST_POOL_CAP_BYTES // BLOCK


def test_a_size_that_was_asked_for_is_what_one_gets(host) -> None:
    host(2 * GIB)
    assert host_num_blocks(EngineConfig(num_blocks=3), BLOCK) == 3
    assert host_num_blocks(EngineConfig(kv_cache_bytes=100 * MIB + 5), BLOCK) == 100


@pytest.mark.parametrize(
    "asked", [EngineConfig(num_blocks=300), EngineConfig(kv_cache_bytes=300 * MIB)]
)
def test_more_than_the_host_has_is_refused_with_both_numbers(host, asked: EngineConfig) -> None:
    host(256 * MIB)
    with pytest.raises(OutOfMemoryError, match=r"have 300 MiB, but only 256 MiB") as caught:
        host_num_blocks(asked, BLOCK)
    assert caught.value.numbers == {"wanted_bytes": 300 * MIB, "available_bytes": 256 * MIB}
    assert "smaller cache" in caught.value.action


def test_a_host_too_full_for_a_few_blocks_is_told(host) -> None:
    host(12 * MIB)
    with pytest.raises(OutOfMemoryError, match=f"3 MiB .* hold 3 blocks of {BLOCK} bytes; 4 are"):
        host_num_blocks(CONFIG, BLOCK)


# --- on a GPU ---


def test_a_model_too_large_for_the_card_is_refused_before_it_is_read(gpu) -> None:
    gpu(10 * GIB, 16 * GIB)
    config = EngineConfig(gpu_memory_utilization=1.0)
    check_weights_fit(config, 10 * GIB - DESKTOP_MARGIN_BYTES, BLOCK, CUDA)
    told = r"need 9729 MiB, but of the GPU's 16384 MiB only 9728 .* 1,000 tokens take 62 MiB more"
    with pytest.raises(OutOfMemoryError, match=told):
        check_weights_fit(config, 10 * GIB - DESKTOP_MARGIN_BYTES + MIB, BLOCK, CUDA)
    # What others hold counts towards the share that may be used.
    with pytest.raises(OutOfMemoryError, match="only 1536 MiB can be used"):
        check_weights_fit(EngineConfig(gpu_memory_utilization=0.5), 2 * GIB, BLOCK, CUDA)


def test_a_full_card_has_no_negative_room(gpu) -> None:
    gpu(MIB, 16 * GIB)
    with pytest.raises(OutOfMemoryError, match="only 0 MiB can be used"):
        check_weights_fit(CONFIG, GIB, BLOCK, CUDA)


def test_the_pool_takes_what_is_left(gpu) -> None:
    gpu(10 * GIB, 16 * GIB)
    config = EngineConfig(gpu_memory_utilization=1.0)
    kept = GIB + DESKTOP_MARGIN_BYTES
    assert device_num_blocks(config, BLOCK, 4 * GIB, GIB, CUDA) == (10 * GIB - kept) // BLOCK
    half = EngineConfig(gpu_memory_utilization=0.75)
    assert device_num_blocks(half, BLOCK, 4 * GIB, GIB, CUDA) == (6 * GIB - kept) // BLOCK


def test_a_pool_that_was_asked_for(gpu) -> None:
    gpu(10 * GIB, 16 * GIB)
    by_count = EngineConfig(num_blocks=7, gpu_memory_utilization=1.0)
    assert device_num_blocks(by_count, BLOCK, GIB, GIB, CUDA) == 7
    by_size = EngineConfig(kv_cache_bytes=70 * MIB, gpu_memory_utilization=1.0)
    assert device_num_blocks(by_size, BLOCK, GIB, GIB, CUDA) == 70


@pytest.mark.parametrize(
    ("free", "config", "wanted"),
    [
        (10 * GIB, EngineConfig(num_blocks=9000, gpu_memory_utilization=1.0), 9000),
        (2 * GIB, EngineConfig(gpu_memory_utilization=1.0), 512),
        (10 * GIB, EngineConfig(num_blocks=3, gpu_memory_utilization=1.0), 3),
    ],
    ids=["asked for too much", "left too little", "asked for too little"],
)
def test_a_pool_that_does_not_fit_is_told_with_all_numbers(
    gpu, free: int, config: EngineConfig, wanted: int
) -> None:
    gpu(free, 16 * GIB)
    block = BLOCK if free > 2 * GIB else 256 * MIB
    with pytest.raises(OutOfMemoryError, match=rf"beside the weights \(3072 MiB\).* {wanted} MiB"):
        device_num_blocks(config, block, 3 * GIB, GIB, CUDA)


# --- measuring a step ---


def make_decoder() -> Decoder:
    model = tiny_llama()
    return Decoder(model.config, model.weights(), torch.float32, torch.device("cpu"), 400)


class Meter:
    """torch's account of a device's memory, for a model that lies on the CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before, self.peak = 100 * MIB, 130 * MIB
        for name, value in {
            "synchronize": lambda _device: None,
            "memory_allocated": lambda _device: self.before,
            "reset_peak_memory_stats": lambda _device: None,
            "max_memory_allocated": lambda _device: self.peak,
            "empty_cache": lambda: None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    return Meter(monkeypatch)


def test_workspace_is_the_peak_of_a_full_step(meter: Meter, monkeypatch) -> None:
    decoder = make_decoder()
    steps: list[tuple[int, int]] = []
    forward = decoder.forward

    def seen(input_ids, positions, step, rows):
        steps.append((len(input_ids), len(rows)))
        return forward(input_ids, positions, step, rows)

    monkeypatch.setattr(decoder, "forward", seen)
    config = EngineConfig(token_budget=96, block_size=16)
    assert workspace_bytes(decoder, "paged_reference", config) == 30 * MIB
    huge = EngineConfig(token_budget=1 << 20, block_size=16)
    assert workspace_bytes(decoder, "paged_reference", huge) == 30 * MIB
    # No step is longer than the longest sequence, and not every row of it draws a token.
    assert steps == [(96, 96), (400, 256)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels on the CPU need the interpreter")
def test_what_is_measured_is_cut_as_steps_are(meter: Meter, monkeypatch) -> None:
    """And no kernel is compiled for the measurement alone."""
    pytest.importorskip("triton")
    from engine.attention import paged_triton

    cuts: list[list[int]] = []
    attend = paged_triton.paged_prefill_batch

    def seen(query, k_cache, v_cache, block_ids, tiles, scale, launch, **kw):
        cuts.append([len(query), int(tiles[:, 1].max()), launch.rows])
        return attend(query, k_cache, v_cache, block_ids, tiles, scale, launch, **kw)

    monkeypatch.setattr(paged_triton, "paged_prefill_batch", seen)
    decoder = make_decoder()
    config = EngineConfig(token_budget=40, block_size=16)
    assert workspace_bytes(decoder, "paged_triton", config) == 30 * MIB
    assert cuts == [[40, 40, 64]] * decoder.config.num_layers


def test_a_step_that_does_not_fit_is_told_with_its_size(meter: Meter, monkeypatch) -> None:
    decoder = make_decoder()

    def forward(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("tried to allocate 2 GiB")

    monkeypatch.setattr(decoder, "forward", forward)
    with pytest.raises(
        OutOfMemoryError, match=r"step of 96 tokens .* tried to allocate 2 GiB"
    ) as e:
        workspace_bytes(decoder, "paged_reference", EngineConfig(token_budget=96))
    assert e.value.numbers == {"token_budget": 96}


def test_a_measured_pool_leaves_room_for_the_step(meter: Meter, gpu) -> None:
    gpu(2 * GIB, 2 * GIB)
    decoder = make_decoder()
    config = EngineConfig(token_budget=96, gpu_memory_utilization=1.0)
    # Twice: steps captured as graphs keep a workspace of their own.
    room = 2 * GIB - 2 * 30 * MIB - DESKTOP_MARGIN_BYTES
    assert measured_num_blocks(decoder, "paged_reference", config, BLOCK) == room // BLOCK


def test_a_pool_that_cannot_be_had_any_more_becomes_smaller() -> None:
    tried: list[int] = []

    def make(num_blocks: int) -> str:
        tried.append(num_blocks)
        if num_blocks > 850:
            raise MemoryError
        return "backend"

    assert allocate_shrinking(1000, make) == ("backend", 810)
    assert tried == [1000, 900, 810]


def test_what_a_failed_attempt_had_got_is_given_back_before_the_next(monkeypatch) -> None:
    """torch would lend a piece of the larger pool for each piece of the smaller one."""
    kept: list[weakref.ref[torch.Tensor]] = []
    seen: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "empty_cache", lambda: seen.append(any(ref() is not None for ref in kept))
    )

    def make(num_blocks: int) -> str:
        part = torch.zeros(4)
        kept.append(weakref.ref(part))
        if num_blocks > 850:
            raise torch.OutOfMemoryError
        return "backend"

    assert allocate_shrinking(1000, make) == ("backend", 810)
    assert seen == [False, False]


def test_in_the_end_it_is_given_up_with_both_numbers() -> None:
    def make(num_blocks: int) -> str:
        raise torch.OutOfMemoryError(f"{num_blocks}")

    with pytest.raises(OutOfMemoryError, match="have 1000 blocks, but the memory for 656 ") as e:
        allocate_shrinking(1000, make)
    assert e.value.numbers == {"num_blocks": 1000}
