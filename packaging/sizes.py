"""What a bundle weighs, by component, against its budget. MB are 10⁶ bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from spec_common import CPU, CUDA, TRITON

SYSTEM = "Python and system libraries"
PROGRAM = "program and Python modules"
METADATA = "package metadata"
BUDGET_MB = {CPU: 900, CUDA: 7_000}
"""Of a whole unpacked bundle, the starter model included."""
ARCHIVE_BUDGET_MB = {CPU: 350, CUDA: 4_000}

COMPONENT_BUDGET_MB = {
    "torch": 430,
    "starter": 99,
    "PySide6": 105,
    SYSTEM: 55,
    PROGRAM: 48,
    "cryptography": 16,
    "numpy": 50,
    "tokenizers": 15,
    "licences": 10,
    "resources": 5,
    METADATA: 5,
}
"""Of the CPU variant. Over one of these is said; over the whole is an error."""
CUDA_COMPONENT_BUDGET_MB = {"torch": 2_500, "nvidia": 3_500, TRITON: 800}
OTHERS_MB = 20
"""For everything that is not named."""


def component(path: Path) -> str:
    """Which part of the bundle a file belongs to; ``path`` is relative to the bundle."""
    if len(path.parts) == 1:
        return PROGRAM
    parts = path.parts[1:] if path.parts[0] == "_internal" else path.parts
    if len(parts) == 1:
        return SYSTEM
    name = parts[0].removesuffix(".libs")
    if name.endswith((".dist-info", ".egg-info")):
        return METADATA
    if name == "lib-dynload" or name.startswith("python3."):
        return SYSTEM
    return {"shiboken6": "PySide6"}.get(name, name)


def sizes(bundle: Path) -> Counter[str]:
    """Bytes of each component; links count nothing."""
    total: Counter[str] = Counter()
    for path in bundle.rglob("*"):
        if path.is_file() and not path.is_symlink():
            total[component(path.relative_to(bundle))] += path.stat().st_size
    return total


def table(by_component: Counter[str], variant: str) -> list[str]:
    """Lines for people: each component, largest first, with its budget, and the sum."""
    budgets = dict(COMPONENT_BUDGET_MB)
    if variant == CUDA:
        budgets |= CUDA_COMPONENT_BUDGET_MB
    lines = []
    others = 0
    for name, size in by_component.most_common():
        if name not in budgets:
            others += size
            continue
        lines.append(_line(name, size, budgets[name]))
    lines.append(_line("everything else", others, OTHERS_MB))
    lines.append(_line("in all", sum(by_component.values()), BUDGET_MB[variant]))
    return lines


def is_within_budget(size: int, budget_mb: int) -> bool:
    """Whether bytes fit into a budget."""
    return size <= budget_mb * 10**6


def _line(name: str, size: int, budget_mb: int) -> str:
    verdict = "" if is_within_budget(size, budget_mb) else "  OVER"
    return f"  {size / 1e6:8.1f} of {budget_mb:5,} MB  {name}{verdict}"
