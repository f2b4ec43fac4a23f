"""GGUF's blocks as they are kept, against the gguf package's own expansion."""

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType

from engine.quantized.gguf_blocks import BLOCK_BYTES, read_blocks
from engine.quantized.grouped import stacked
from tests.helpers.tiny_gguf import quantised_rows


def rows_of(kind: str, shape=(5, 512), seed=0):
    return quantised_rows(np.random.default_rng(seed), shape, GGMLQuantizationType[kind])


@pytest.mark.parametrize("kind", BLOCK_BYTES)
def test_kept_blocks_have_exactly_the_files_values(kind):
    rows = rows_of(kind)
    weight = read_blocks(kind, torch.from_numpy(rows))
    assert weight.shape == (5, 512)
    wanted = gguf.dequantize(rows, GGMLQuantizationType[kind])
    assert torch.equal(weight.expand(torch.float32), torch.from_numpy(wanted))


@pytest.mark.parametrize("kind", BLOCK_BYTES)
def test_kept_blocks_survive_the_file_they_were_read_from(kind):
    rows = torch.from_numpy(rows_of(kind).copy())
    weight = read_blocks(kind, rows)
    before = weight.expand(torch.float32)
    rows.zero_()
    assert torch.equal(weight.expand(torch.float32), before)


@pytest.mark.parametrize("kind", BLOCK_BYTES)
def test_block_sizes_are_the_formats_own(kind):
    sizes = gguf.constants.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    block = torch.zeros((1, BLOCK_BYTES[kind]), dtype=torch.uint8)
    assert (read_blocks(kind, block).shape[1], BLOCK_BYTES[kind]) == sizes


@pytest.mark.parametrize(("kind", "most"), [("Q4_0", 0.75), ("Q4_K", 0.75), ("Q8_0", 1.25)])
def test_four_bits_stay_four_bits(kind, most):
    weight = read_blocks(kind, torch.from_numpy(rows_of(kind)))
    assert weight.nbytes / (5 * 512) <= most


@pytest.mark.parametrize("kind", BLOCK_BYTES)
def test_weights_woven_for_a_gpu_keep_their_values(kind, monkeypatch):
    weight = read_blocks(kind, torch.from_numpy(rows_of(kind)))
    values = weight.expand(torch.float32)
    # Two rows at a time.
    monkeypatch.setattr("engine.quantized.grouped._PIECE_ELEMENTS", 1024)
    woven = weight.weave()
    assert not torch.equal(woven.codes, weight.codes)
    assert woven.nbytes == weight.nbytes
    assert torch.equal(woven.expand(torch.float32), values)
    rows = torch.tensor([4, 0, 4])
    assert torch.equal(woven.rows(rows).expand(torch.float32), values[rows])
    assert woven.weave() is woven
    both = stacked([woven, woven])
    assert both is not None
    assert torch.equal(both.expand(torch.float32), torch.cat([values, values]))
    assert stacked([woven, weight]) is None


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_half_precision_scales_lose_nothing_that_the_file_has(kind):
    weight = read_blocks(kind, torch.from_numpy(rows_of(kind)))
    assert torch.equal(weight.narrowed().expand(torch.float32), weight.expand(torch.float32))


def test_scales_too_large_for_half_precision_stay_as_they_are():
    weight = read_blocks("Q8_0", torch.from_numpy(rows_of("Q8_0")))
    weight.scale.mul_(1e8)
    assert weight.narrowed() is weight


def test_weights_of_one_kind_are_stacked_row_after_row():
    first, second = (
        read_blocks("Q4_1", torch.from_numpy(rows_of("Q4_1", seed=seed))) for seed in (1, 2)
    )
    both = stacked([first, second])
    assert both is not None
    wanted = torch.cat((first.expand(torch.float32), second.expand(torch.float32)))
    assert torch.equal(both.expand(torch.float32), wanted)


def test_weights_of_two_kinds_are_not_stacked():
    four, eight = (read_blocks(kind, torch.from_numpy(rows_of(kind))) for kind in ("Q4_1", "Q8_0"))
    assert stacked([four, eight]) is None


def test_rows_can_be_taken_by_index():
    weight = read_blocks("Q6_K", torch.from_numpy(rows_of("Q6_K")))
    index = torch.tensor([4, 0, 4])
    taken = weight.rows(index).expand(torch.float32)
    assert torch.equal(taken, weight.expand(torch.float32)[index])
