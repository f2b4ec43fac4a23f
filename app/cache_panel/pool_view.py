"""The panel's picture of one pool: grid, figures, block tables, events. Knows no engine."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import Qt, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QVBoxLayout, QWidget

from app.cache_panel import words
from app.cache_panel.badge import Badge
from app.cache_panel.block_tables import BlockTables
from app.cache_panel.event_tape import EventTape
from app.cache_panel.figures import Sharing, sharing_of_kept, sharing_of_live
from app.cache_panel.looks import Looks
from app.cache_panel.names import Names
from app.cache_panel.panel import MINIMUM_HEIGHT, MINIMUM_WIDTH
from app.cache_panel.parts import (
    FittingScrollArea,
    Pages,
    WrappedLabel,
    column,
    plain_label,
    set_text,
)
from app.cache_panel.pool_grid import PoolGrid
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.strips import strips_of
from app.cache_panel.usage import UsageView
from app.i18n import tr
from app.theme import Theme, ThemeManager

WIDE_FROM = 760
ROOMY_FROM = 560


class PoolView(QWidget):
    """Shows ``model``; ``controls`` stand above it. ``empty_text`` is said while there is none."""

    def __init__(
        self,
        theme: ThemeManager,
        names: Names,
        controls: QWidget,
        empty_text: str,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.model: PoolModel | None = None
        self._names = names
        self._looks = Looks(names.number_of)
        self._controls = controls
        self._empty_text = empty_text
        self._is_roomy = True
        self._tables_seen: tuple[int, int] = (0, -1)
        self._sharing = (Sharing(), Sharing())
        self._build(theme.theme)
        theme.changed.connect(self._on_theme_changed)

    # --- making ---

    def _build(self, theme: Theme) -> None:
        self._title = plain_label(tr("Cache"))
        self._title.setProperty("role", "heading")
        self._size = plain_label(tone="muted")
        self.badge = Badge()
        self._trouble = WrappedLabel(1, "error")
        self._usage = UsageView(theme)
        self._grid = PoolGrid(self._looks, theme, self._describe)
        self._more = plain_label(tone="muted")
        self._more.hide()
        self._more.setAlignment(Qt.AlignmentFlag.AlignRight)
        self._grid.num_hidden_changed.connect(self._on_grid_num_hidden_changed)
        self._block = WrappedLabel(3, "muted")
        self._savings = WrappedLabel(1)
        self._waste = WrappedLabel(1, "muted")
        self._tables = BlockTables(theme, self._describe)
        self.tape = EventTape(self._names)
        self._grid.block_hovered.connect(self._on_grid_block_hovered)
        self._tables.block_hovered.connect(self._on_tables_block_hovered)
        self._trouble.hide()
        self._body = QBoxLayout(QBoxLayout.Direction.TopToBottom, self)
        self._body.setContentsMargins(12, 12, 12, 12)
        self._body.setSpacing(12)
        self._body.addLayout(self._left_part(), 1)
        self._body.addLayout(self._right_part(), 0)
        # Less than the layout would ask for: a low panel drops what it can do without.
        self.setMinimumSize(MINIMUM_WIDTH, MINIMUM_HEIGHT)
        self._grid.setAccessibleName(tr("Block pool"))
        self._tables.setAccessibleName(tr("Block tables"))
        self._usage.setAccessibleName(tr("Pool use"))
        self._show_block(-1)

    def _left_part(self) -> QVBoxLayout:
        head = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        head.addWidget(self._title)
        head.addWidget(self._size, 1, Qt.AlignmentFlag.AlignRight)
        return column(
            head,
            self._controls,
            self._trouble,
            self._usage,
            (self._grid, 1),
            self._more,
            self._block,
        )

    def _right_part(self) -> QVBoxLayout:
        scroll = FittingScrollArea(self._tables)
        self._tables.height_changed.connect(scroll.updateGeometry)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setAccessibleName(tr("Block tables"))
        self._card = card = QFrame()
        card.setProperty("role", "card")
        inside = column(self._savings, self._waste)
        inside.setContentsMargins(10, 8, 10, 8)
        inside.setSpacing(4)
        card.setLayout(inside)
        pages = [(tr("Block tables"), scroll), (tr("Events"), self.tape)]
        self.pages = Pages(pages, self.badge)
        return column(card, (self.pages, 1))

    # --- showing ---

    def set_model(self, model: PoolModel | None) -> None:
        """Shows another pool, or none."""
        self.model = model
        self._grid.set_model(model)
        self._show_block(-1)
        if model is None:
            self._tables.set_strips([])
            self.show_trouble("")
        else:
            model.take_dirty()
            self.show_words()

    def show_changes(self, dirty: Collection[int], written: Collection[int]) -> None:
        """Repaints what changed; words wait for ``show_words``."""
        model = self.model
        if model is not None:
            self._grid.refresh(dirty, written)
            strips = strips_of(model, self._looks, self._names)
            self._tables.set_strips(strips, with_labels=False)

    def show_words(self) -> None:
        """Figures and labels."""
        model = self.model
        if model is None:
            return
        seen = (id(model), model.table_version)
        if seen != self._tables_seen or not model.tables:
            self._tables_seen = seen
            self._sharing = (sharing_of_live(model), sharing_of_kept(model))
        self._usage.show_pool(model)
        set_text(self._size, words.pool_size(model))
        self._savings.show_text(words.savings(model, *self._sharing))
        self._waste.show_text(words.waste(model))
        self._tables.set_strips(strips_of(model, self._looks, self._names))

    def show_trouble(self, text: str) -> None:
        """A line about something that is wrong; empty for nothing."""
        self._trouble.show_text(text)
        self._trouble.setVisible(bool(text))

    def forget_names(self) -> None:
        """Conversations were opened, closed, renamed or numbered anew."""
        self._looks.forget_numbers()
        self.tape.forget_names()
        if self.model is not None and self.isVisible():
            self._grid.redraw()
            self._tables.set_strips(strips_of(self.model, self._looks, self._names))

    def _describe(self, block_id: int) -> str:
        return "" if self.model is None else "\n".join(self._facts(block_id))

    def _facts(self, block_id: int) -> list[str]:
        model = self.model
        return [] if model is None else words.block(model, self._names, block_id)

    def _show_block(self, block_id: int) -> None:
        if self.model is None:
            text = self._empty_text
        elif block_id < 0:
            text = tr("Point at a cell, or use the arrow keys, to read a block.")
        else:
            text = " · ".join(self._facts(block_id))
            self._grid.setAccessibleDescription(text)
        self._block.show_text(text)

    @Slot(int)
    def _on_grid_block_hovered(self, block_id: int) -> None:
        self._tables.set_highlight(block_id)
        self._show_block(block_id)

    @Slot(int)
    def _on_grid_num_hidden_changed(self, num_blocks: int) -> None:
        set_text(self._more, words.more_free(num_blocks))
        self._more.setVisible(self._is_roomy and num_blocks > 0)

    @Slot(int)
    def _on_tables_block_hovered(self, block_id: int) -> None:
        self._tables.set_highlight(block_id)
        self._grid.set_highlight([block_id] if block_id >= 0 else [])
        self._show_block(block_id)

    @Slot(object)
    def _on_theme_changed(self, theme: Theme) -> None:
        self._usage.set_theme(theme)
        self._grid.set_theme(theme)
        self._tables.set_theme(theme)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        wide = self.width() >= WIDE_FROM and self.width() > self.height()
        self._is_roomy = wide or self.height() >= ROOMY_FROM
        self._usage.show_legend(self._is_roomy)
        self._card.setVisible(self._is_roomy)
        self._waste.setVisible(self._is_roomy)
        self._more.setVisible(self._is_roomy and self._grid.num_hidden > 0)
        direction = QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom
        if self._body.direction() != direction:
            self._body.setDirection(direction)
            # Under each other, the grid takes what the strips leave.
            self._body.setStretch(1, 1 if wide else 0)
