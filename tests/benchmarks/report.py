"""Rows, tables and the statistics in them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]


def emit(row: Mapping[str, Any]) -> Row:
    """Prints a row as a line of JSON and returns it, figures rounded to what they are worth."""
    rounded = {name: tidy(value) for name, value in row.items()}
    print(json.dumps(rounded), flush=True)
    return rounded


def tidy(value: Any) -> Any:
    """Floats with four digits, also inside lists and mappings."""
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): tidy(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(part) for part in value]
    return value


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """The rows' plain figures in columns, those that every row has first."""
    names = list(columns) or list(dict.fromkeys(name for row in rows for name in row))
    plain = [n for n in names if not any(isinstance(r.get(n), dict | list) for r in rows)]
    cells = [plain] + [["" if r.get(n) is None else str(r[n]) for n in plain] for r in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(plain))]
    for line in cells:
        padded = (text.rjust(width) for text, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip(), flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` (0 to 1) of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def median_of(rows: Sequence[Mapping[str, Any]]) -> Row:
    """The median of every figure over rows of one shape, inside mappings too; texts as they are.

    A figure that some row lacks is the median of the others.
    """
    result: Row = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if row.get(name) is not None]
        if not values:
            result[name] = None
        elif all(isinstance(value, Mapping) for value in values):
            result[name] = median_of(values)
        elif all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            result[name] = statistics.median(values)
        else:
            result[name] = values[0]
    return result
