"""The grid's picture: pixels in a numpy array that a QImage shows without copying."""

from __future__ import annotations

import numpy as np
from PySide6.QtGui import QImage

from app.cache_panel.grid_layout import FLAT_SIDE, GridLayout
from app.cache_panel.pool_model import Array
from app.cache_panel.tiles import RGB, TileAtlas


class GridImage:
    """Cells of ``layout`` drawn with ``atlas``; only what is asked for is drawn again."""

    def __init__(self, layout: GridLayout, atlas: TileAtlas) -> None:
        self.layout = layout
        self._atlas = atlas
        self._pixels = np.full((layout.height, layout.width), atlas.ground.rgb(), np.uint32)
        # [row, column, y, x] of the same pixels.
        shape = (layout.rows, layout.row_height, layout.columns, layout.side)
        self._cells = self._pixels.reshape(shape).swapaxes(1, 2)
        self.image = QImage(
            self._pixels.data, layout.width, layout.height, 4 * layout.width, RGB
        )  # fmt: skip
        self.image.setDevicePixelRatio(atlas.ratio)

    def draw_all(self, codes: Array) -> None:
        """Draws all that is shown; ``codes``: int32[layout.num_blocks]."""
        layout = self.layout
        pictures = self._pictures(codes)
        whole, rest = divmod(layout.num_cells, layout.columns)
        split = whole * layout.columns
        shape = (whole, layout.columns, *pictures.shape[1:])
        self._cells[:whole] = pictures[:split].reshape(shape)
        if rest:
            self._cells[whole, :rest] = pictures[split:]

    def members(self, blocks: Array) -> tuple[Array, Array]:
        """The cells of ``blocks``, and all blocks of these cells (``blocks_per_cell`` each)."""
        per_cell = self.layout.blocks_per_cell
        if per_cell == 1:
            return blocks - self.layout.first, blocks
        cells = np.unique(blocks // per_cell)
        members = cells[:, None] * per_cell + np.arange(per_cell)
        return cells, np.minimum(members, self.layout.num_blocks - 1).ravel()

    def draw(self, cells: Array, codes: Array) -> None:
        """Draws some cells again; ``codes`` of their members, as ``members`` gives them."""
        rows, columns = np.divmod(cells, self.layout.columns)
        self._cells[rows, columns] = self._pictures(codes)

    def put(self, cell: int, picture: Array) -> None:
        """Puts a picture of its own, uint32[side, side], into one cell."""
        row, column = divmod(cell, self.layout.columns)
        self._cells[row, column] = picture

    def _pictures(self, codes: Array) -> Array:
        """uint32[cells, side, side], or [cells, 1, 1] to be spread over the cell."""
        if self.layout.blocks_per_cell > 1:
            return self._averages(codes)[:, None, None]
        if self.layout.side <= FLAT_SIDE:
            return self._atlas.colors(codes)[:, None, None]
        return self._atlas.tiles(codes)

    def _averages(self, codes: Array) -> Array:
        """The mean colour of each cell's blocks: a denser cell looks denser."""
        per_cell = self.layout.blocks_per_cell
        colors = self._atlas.colors(codes)
        missing = -len(colors) % per_cell
        if missing:
            colors = np.concatenate([colors, np.repeat(colors[-1:], missing)])
        channels = np.ascontiguousarray(colors).view(np.uint8).reshape(-1, per_cell, 4)
        total = channels[:, 0].astype(np.uint16)
        for index in range(1, per_cell):
            total += channels[:, index]
        mean: Array = (total // per_cell).astype(np.uint8).view(np.uint32).ravel()
        return mean
