"""The figures that the design stands on: sharing, waste, batching, and what bookkeeping costs."""

from __future__ import annotations

from tests.benchmarks import chats, prefix_share, scheduling_cost, tabs
from tests.benchmarks.options import CannotRunHere, Options
from tests.benchmarks.report import Row, emit, print_table, tidy


def measure(options: Options) -> Row:
    """Everything, a row each; returns the figures by name.

    Raises:
        CannotRunHere: another device was asked for.
    """
    if options.on_gpu:
        raise CannotRunHere("seeds measures on the CPU; for a GPU there are W1, W2, W3 and decode")
    saved = prefix_share.prefix_saved(options.small)["prefix_saved"]
    paged, contiguous = prefix_share.waste()
    emit({"workload": "seeds", "part": "waste", "paged": paged, "contiguous": contiguous})
    sizes = prefix_share.block_size_sweep(options.small)
    step_us = scheduling_cost.measure(options.small)
    scheduling_cost.others(options.small)
    hashing = prefix_share.hash_us_per_1000()
    emit({"workload": "seeds", "part": "hash", "hash_us_per_1000": hashing})
    speedup = chats.speedup(options)
    w2 = tabs.measure(options)
    print_table(sizes)
    print_table([{"pool_blocks": pool, **by_batch} for pool, by_batch in tidy(step_us).items()])
    return tidy(
        {
            "prefix_saved": saved,
            "waste_paged": paged,
            "waste_contiguous": contiguous,
            "speedup_vs_transformers": speedup,
            "step_us": step_us,
            "hash_us_per_1000": hashing,
            "w2": w2,
        }
    )
