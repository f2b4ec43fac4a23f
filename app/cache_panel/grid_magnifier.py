"""The grid in cells of a size that was chosen, of which a part is seen."""

from __future__ import annotations

from app.cache_panel.grid_canvas import MARGIN, GridCanvas

ZOOM_SIDES = (4, 6, 8, 10, 14, 18, 24, 32, 44)
"""Widths of a cell to choose from."""


class GridMagnifier(GridCanvas):
    """``zoom_in`` and ``zoom_out`` choose the size of the cells, ``scroll_to_row`` the part."""

    @property
    def is_magnified(self) -> bool:
        """True while cells have a size that was chosen, and the pool scrolls."""
        return self._side is not None

    @property
    def rows_in_view(self) -> tuple[int, int, int]:
        """First row, rows that are seen, rows in all."""
        if self._picture is None or self._model is None:
            return 0, 1, 1
        layout = self._picture.layout
        if self._side is None:
            return 0, layout.rows, layout.rows
        total = -(-self._model.num_blocks // layout.columns)
        return self._first_row, layout.rows, total

    def zoom_in(self, around: int | None = None) -> None:
        """Larger cells; ``around``: a block that stays where it is. None: the first in view."""
        side = self._side_now()
        larger = [s for s in ZOOM_SIDES if s > side]
        if larger:
            self._zoom(larger[0], around)

    def zoom_out(self, around: int | None = None) -> None:
        """Smaller cells, until all of the pool can be seen."""
        if self._side is None:
            return
        smaller = [s for s in ZOOM_SIDES if s < self._side]
        self._zoom(smaller[-1] if smaller else None, around)

    def zoom_to_fit(self) -> None:
        """As much of the pool as there is room for."""
        self._zoom(None, None)

    def scroll_to_row(self, row: int) -> None:
        """Puts a row at the top, while magnified."""
        if self._side is not None and row != self._first_row:
            self._first_row = max(0, row)
            self.redraw()

    def show_block(self, block_id: int) -> None:
        """Scrolls so far that the block can be seen."""
        layout = self.layout_in_use
        if layout is None or self._side is None:
            return
        row = block_id // layout.columns
        if row < self._first_row:
            self.scroll_to_row(row)
        elif row >= self._first_row + layout.rows:
            self.scroll_to_row(row - layout.rows + 1)

    def _side_now(self) -> float:
        return 0 if self._picture is None else self._picture.layout.side / self.devicePixelRatioF()

    def _zoom(self, side: int | None, around: int | None) -> None:
        before = self.layout_in_use
        if before is None or self._model is None:
            return
        block = before.first if around is None or around < 0 else around
        place = (block - before.first) // (before.blocks_per_cell * before.columns)
        share = place * before.row_height / max(1, self.height() * self.devicePixelRatioF())
        self._side = side
        if side is not None:
            columns = max(1, (self.width() - 2 * MARGIN) // side)
            rows = max(1, (self.height() - 2 * MARGIN) // side)
            if columns * rows >= self._model.num_blocks:
                # All of it fits: nothing is left to scroll.
                self._side = None if side <= self._fitting_side() else side
            self._first_row = max(0, block // columns - round(share * rows))
        self.redraw()

    def _fitting_side(self) -> float:
        assert self._model is not None
        ratio = self.devicePixelRatioF()
        side, self._side = self._side, None
        fitting = self._lay_out(self._model, ratio).side / ratio
        self._side = side
        return fitting
