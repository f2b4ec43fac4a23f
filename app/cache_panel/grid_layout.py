"""Where each block stands in a grid of square cells. Free of Qt; all lengths in device pixels."""

from __future__ import annotations

from dataclasses import dataclass

FLAT_SIDE = 3
"""Cells up to this width are flat colour: no gap, no pattern."""


@dataclass(frozen=True, slots=True)
class GridLayout:
    """Blocks in address order, row by row.

    ``num_blocks``: blocks of the pool that are shown, from ``first`` on. ``side``: width of a cell,
    its gap included; ``row_height``: the same, or more for cells too small to have a pattern, so
    that they fill the area. ``blocks_per_cell`` is more than 1 only when the area has fewer pixels
    than the pool has blocks.
    """

    num_blocks: int
    side: int
    columns: int
    row_height: int
    blocks_per_cell: int = 1
    first: int = 0

    @classmethod
    def fit(
        cls, num_blocks: int, num_touched: int, width: int, height: int, sides: tuple[int, int]
    ) -> GridLayout:
        """The largest cells with which the pool's touched part fits into ``width`` × ``height``.

        Blocks from ``num_touched`` on are all free: they are shown as far as there is room. The
        whole pool is shown anyway where its cells get at least the smaller of ``sides``; the larger
        is the limit of the cells of a part, half as much again of those of a whole pool.
        """
        width, height = max(1, width), max(1, height)
        whole_side, max_side = sides
        for needed, smallest, largest in (
            (num_blocks, whole_side, max_side * 3 // 2),
            (max(1, num_touched), 1, max_side),
        ):
            for side in range(min(largest, width), smallest - 1, -1):
                columns = width // side
                room = columns * (height // side)
                if room >= needed:
                    shown = min(num_blocks, room)
                    rows = -(-shown // columns)
                    stretched = min(height // rows, 2 * side) if side <= FLAT_SIDE else side
                    return cls(shown, side, columns, stretched)
        return cls(num_blocks, 1, width, 1, -(-num_blocks // (width * height)))

    @classmethod
    def magnified(
        cls, num_blocks: int, side: int, first_row: int, width: int, height: int
    ) -> GridLayout:
        """Cells of ``side``, as many rows as there is room for, ``first_row`` at the top."""
        columns = max(1, width // side)
        rows = max(1, height // side)
        first_row = max(0, min(first_row, -(-num_blocks // columns) - rows))
        first = first_row * columns
        return cls(min(rows * columns, num_blocks - first), side, columns, side, 1, first)

    @property
    def end(self) -> int:
        """The block after the last that is shown."""
        return self.first + self.num_blocks

    @property
    def num_cells(self) -> int:
        return -(-self.num_blocks // self.blocks_per_cell)

    @property
    def rows(self) -> int:
        return -(-self.num_cells // self.columns)

    @property
    def width(self) -> int:
        return self.columns * self.side

    @property
    def height(self) -> int:
        return self.rows * self.row_height

    def origin(self, block_id: int) -> tuple[int, int]:
        """Left and top of the block's cell."""
        row, column = divmod((block_id - self.first) // self.blocks_per_cell, self.columns)
        return column * self.side, row * self.row_height

    def block_at(self, x: float, y: float) -> int:
        """The (first) block of the cell at a point, or -1."""
        column, row = int(x // self.side), int(y // self.row_height)
        if not (0 <= column < self.columns and 0 <= row < self.rows):
            return -1
        block_id = self.first + (row * self.columns + column) * self.blocks_per_cell
        return block_id if block_id < self.end else -1
