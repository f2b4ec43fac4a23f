"""Block tables as rows of one array, kept from step to step and written only where they changed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.request import Request

Ints = NDArray[np.int64]


class TableRows:
    """A row for each request in the batch.

    ``tables``: ``[rows, blocks]``, entries past a table's end are junk. The array is replaced when
    it grows; ``changes`` holds what was written since it was last cleared: row, first entry and end
    of each write. ``num_rewrites`` counts writes over entries that were known, and tables that
    left: another one, or a shorter one of the same request, may be there in the next step.

    Args:
        max_blocks: blocks of the longest sequence.
        max_requests: rows to begin with; more are added when they are needed.
    """

    def __init__(self, max_blocks: int, max_requests: int) -> None:
        self.tables: Ints = np.zeros((max(1, max_requests), max(1, max_blocks)), np.int64)
        self.changes: list[tuple[int, int, int]] = []
        self.num_rewrites = 0
        self._known: list[list[int]] = [[] for _ in range(len(self.tables))]
        self._free_rows = list(range(len(self.tables) - 1, -1, -1))
        self._row_of: dict[str, int] = {}

    @property
    def num_used(self) -> int:
        """Requests that hold a row."""
        return len(self._row_of)

    def row(self, request: Request) -> int:
        """The request's row, with its block table as it is now."""
        row = self._row_of.get(request.request_id)
        if row is None:
            row = self._take(request.request_id)
        known, table = self._known[row], request.block_table
        if known != table:
            self._write(row, known, table)
        return row

    def forget(self, request_id: str) -> int | None:
        """Frees the request's row and returns it; None for unknown ids."""
        row = self._row_of.pop(request_id, None)
        if row is not None:
            self._known[row] = []
            self.num_rewrites += 1
            self._free_rows.append(row)
        return row

    def _write(self, row: int, known: list[int], table: list[int]) -> None:
        # Usually a block was appended; copy-on-write and preemption replace earlier ones.
        same = len(known)
        if table[:same] != known:
            pairs = zip(known, table, strict=False)
            same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(table))
        if len(table) > self.tables.shape[1]:
            missing = max(len(table) - self.tables.shape[1], self.tables.shape[1])
            self.tables = np.pad(self.tables, ((0, 0), (0, missing)))
        self.num_rewrites += same < len(known)
        self.tables[row, same : len(table)] = table[same:]
        self.changes.append((row, same, len(table)))
        known[same:] = table[same:]

    def _take(self, request_id: str) -> int:
        if not self._free_rows:
            count = len(self.tables)
            self.tables = np.concatenate((self.tables, np.zeros_like(self.tables)))
            self._known.extend([] for _ in range(count))
            self._free_rows = list(range(2 * count - 1, count - 1, -1))
        row = self._free_rows.pop()
        self._row_of[request_id] = row
        return row
