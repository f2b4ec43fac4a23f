"""The case of the kernels that draw tokens, beside what torch needs for the same."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.reference.sample import RowParameters, pack
from kernels.sample import sample
from tests.benchmarks.graph_timing import rotations
from tests.benchmarks.report import Row

TEMPERATURE, TOP_P = 0.6, 0.95


def draw_case(
    rows: int, vocab_size: int, filtered: bool, device: torch.device, dtype: torch.dtype
) -> tuple[Row, int, dict[str, Callable[[int], object]]]:
    """One token a row, from all tokens or from the top-p of them."""
    count = rotations(rows * vocab_size * dtype.itemsize) if device.type == "cuda" else 2
    logits = torch.randn((count, rows, vocab_size), dtype=dtype, device=device).mul_(4.0)
    top_p = TOP_P if filtered else 1.0
    drawn = [RowParameters(seed, 0, TEMPERATURE, top_p=top_p) for seed in range(rows)]
    parameters = torch.from_numpy(pack(drawn)).to(device)

    def torch_draw(i: int) -> None:
        scores = logits[i].float() / TEMPERATURE
        if filtered:
            scores = _top_p(scores)
        probabilities = scores.softmax(-1)
        probabilities.div_(torch.empty_like(probabilities).exponential_(1.0)).argmax(-1)

    calls: dict[str, Callable[[int], object]] = {
        "sample": lambda i: sample(logits[i], parameters, filtered=filtered),
        "torch operations": torch_draw,
    }
    facts = {"op": "draw, top-p" if filtered else "draw", "batch": rows, "vocab": vocab_size}
    return facts | {"bytes": rows * vocab_size * dtype.itemsize}, count, calls


def _top_p(scores: Tensor) -> Tensor:
    """The usual way: sort, and drop what comes after the wanted mass."""
    ordered, places = scores.sort(-1, descending=True)
    mass = ordered.softmax(-1)
    beyond = mass.cumsum(-1) - mass >= TOP_P
    return torch.empty_like(scores).scatter_(-1, places, ordered.masked_fill(beyond, -torch.inf))
