"""Rows gathered into kept memory are those of a fresh gather."""

import threading

import torch

from kernels.reference.gather_rows import gather_rows


def test_rows_are_those_of_index_select() -> None:
    draw = torch.Generator().manual_seed(1)
    for dtype in (torch.float32, torch.bfloat16):
        rows = torch.randn(50, 6, generator=draw).to(dtype)
        for count in (3, 40, 7, 120):
            slots = torch.randint(0, 50, (count,), generator=draw)
            keys = gather_rows(rows, slots, "keys")
            values = gather_rows(rows * 2, slots, "values")
            assert torch.equal(keys, rows[slots])
            assert torch.equal(values, rows[slots] * 2)


def test_memory_of_inference_mode_serves_outside_of_it_and_back() -> None:
    rows, slots = torch.randn(20, 33), torch.arange(9)
    with torch.inference_mode():
        assert torch.equal(gather_rows(rows, slots, "mode"), rows[slots])
    assert torch.equal(gather_rows(rows, slots, "mode"), rows[slots])
    with torch.inference_mode():
        assert torch.equal(gather_rows(rows, slots, "mode"), rows[slots])


def test_memory_is_kept_and_each_threads_own() -> None:
    rows, slots = torch.randn(20, 34), torch.arange(9)
    mine = gather_rows(rows, slots, "thread")
    assert gather_rows(rows, slots, "thread").data_ptr() == mine.data_ptr()
    others: list[int] = []
    thread = threading.Thread(
        target=lambda: others.append(gather_rows(rows, slots, "thread").data_ptr())
    )
    thread.start()
    thread.join()
    assert others != [mine.data_ptr()]
