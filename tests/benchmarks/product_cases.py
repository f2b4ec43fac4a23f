"""The cases of the products of few rows, with what is fused into them, beside cuBLAS."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.benchmarks.glue_cases import Product, make_operands, run_library, run_ours
from tests.benchmarks.report import Row


def product_case(
    name: str, product: Product, rows: int, device: torch.device, dtype: torch.dtype
) -> tuple[Row, int, dict[str, Callable[[int], object]]]:
    """One product of a layer; ``bytes`` are those of its weights."""
    count = None if device.type == "cuda" else 2
    operands = make_operands(product, rows, count, dtype, str(device))
    calls: dict[str, Callable[[int], object]] = {
        "skinny_linear": lambda i: run_ours(product, operands, i)[0],
        "cuBLAS and our glue": lambda i: run_library(product, operands, i)[0],
    }
    facts = {"op": "product", "heads": name, "batch": rows, "bytes": product.weight_bytes}
    return facts, operands.count, calls
