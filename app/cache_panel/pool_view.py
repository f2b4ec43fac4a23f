"""The panel's picture of one pool: grid, figures, block tables, events. Knows no engine."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QLayout, QSplitter, QVBoxLayout, QWidget

from app.cache_panel import words
from app.cache_panel.against_view import AgainstView
from app.cache_panel.badge import Badge
from app.cache_panel.block_tables import BlockTables
from app.cache_panel.event_tape import EventTape
from app.cache_panel.figures import Sharing, sharing_of_kept, sharing_of_live
from app.cache_panel.grid_area import GridArea
from app.cache_panel.grid_canvas import NO_LIMIT
from app.cache_panel.lane import LaneRow, StepWork
from app.cache_panel.lane_view import LaneView
from app.cache_panel.looks import Looks
from app.cache_panel.meter import Meter
from app.cache_panel.names import Names
from app.cache_panel.panel import MINIMUM_HEIGHT, MINIMUM_WIDTH
from app.cache_panel.parts import (
    FittingScrollArea,
    Pages,
    WrappedLabel,
    column,
    framed,
    plain_label,
    scrolled,
    set_text,
)
from app.cache_panel.pool_grid import PoolGrid
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.savings_view import SavingsView
from app.cache_panel.strips import strips_of
from app.cache_panel.usage import UsageView
from app.i18n import tr
from app.theme import Theme, ThemeManager

WIDE_FROM = 900
ROOMY_FROM, LOW_UNDER = 720, 640
WIDE_ROOMY_FROM, WIDE_LOW_UNDER = 310, 270
LONGEST_TEXT = 400
STRETCHES = (1, 1)


class PoolView(QWidget):
    """Shows ``model``; ``controls`` stand above it. ``empty_text`` is said while there is none.

    ``time_bar``: stands under the controls where there is room. ``meter`` counts what painting
    takes. ``block_pointed(block_id)``: the block that mouse or keyboard point at, -1 for none.
    """

    block_pointed = Signal(int)

    def __init__(
        self,
        theme: ThemeManager,
        names: Names,
        controls: QWidget,
        empty_text: str,
        parent: QWidget | None = None,
        *,
        time_bar: QWidget | None = None,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(parent)
        self.model: PoolModel | None = None
        self._meter = meter or Meter()
        self._names = names
        self._looks = Looks(names.number_of)
        self._controls = controls
        self._time_bar = time_bar or QWidget()
        self._empty_text = empty_text
        self._pointed = -1
        self._is_divided = self._is_moved = False
        self._is_low = False
        self._is_roomy = True
        self._lane_now: tuple[tuple[LaneRow, ...], StepWork, float] = ((), StepWork(), 0.0)
        self._note = ""
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
        self.grid = PoolGrid(self._looks, theme, self._describe, self._meter)
        self.area = GridArea(self.grid, self._names)
        # Cells must not move under the mouse that points at them.
        self._block = WrappedLabel(3, "muted", keeps=True)
        self._text = WrappedLabel(1, keeps=True)
        self._text.setProperty("role", "code")
        self._forecast = WrappedLabel(1, "warning")
        self._savings = WrappedLabel(1)
        self.tables = BlockTables(theme, self._describe, self._meter)
        self.tape = EventTape(self._names)
        self.lane = LaneView(self._names, theme)
        self.shares = SavingsView(self._names)
        self.against = AgainstView(self._names, theme)
        self.area.block_hovered.connect(self._on_area_block_hovered)
        self.area.view_changed.connect(self._limit_area)
        self.tables.block_hovered.connect(self._on_tables_block_hovered)
        for label in (self._trouble, self._text, self._forecast):
            label.hide()
        self._body = QBoxLayout(QBoxLayout.Direction.TopToBottom, self)
        self._body.setContentsMargins(12, 12, 12, 12)
        self._body.setSpacing(12)
        self._parts = QSplitter(Qt.Orientation.Vertical)
        # In its place before it is filled: what is moved is styled anew.
        self._body.addLayout(self._top())
        self._body.addWidget(self._parts, 1)
        upper = self._middle()
        self._parts.addWidget(framed(upper))
        # A splitter looks at the limits of its widgets, not of what is in them.
        upper.setSizeConstraint(QLayout.SizeConstraint.SetMinAndMaxSize)
        self._parts.addWidget(framed(self._bottom()))
        self._parts.splitterMoved.connect(self._on_parts_splitter_moved)
        self._parts.setHandleWidth(11)
        self._parts.setProperty("kind", "panel")
        for index, stretch in enumerate(STRETCHES):
            self._parts.setStretchFactor(index, stretch)
        # Less than the layout would ask for: a low panel drops what it can do without.
        self.setMinimumSize(MINIMUM_WIDTH, MINIMUM_HEIGHT)
        self.grid.setAccessibleName(tr("Block pool"))
        self.tables.setAccessibleName(tr("Block tables"))
        self._usage.setAccessibleName(tr("Pool use"))
        self._show_block(-1)

    def _top(self) -> QVBoxLayout:
        self._head = head = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        head.addWidget(self._title)
        head.addWidget(self.badge)
        head.addWidget(self._size, 1, Qt.AlignmentFlag.AlignRight)
        self._spread = QWidget()
        self._spread.hide()
        parts = (self._controls, self._time_bar, self._trouble, self._usage, (self._spread, 1))
        return column(head, *parts)

    def _middle(self) -> QVBoxLayout:
        return column((self.area, 1), self._block, self._text, self._forecast)

    def _bottom(self) -> QVBoxLayout:
        scroll = FittingScrollArea(self.tables)
        self.tables.height_changed.connect(scroll.updateGeometry)
        self.tables.cursor_moved.connect(scroll.show_rect)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setAccessibleName(tr("Block tables"))
        self._card = card = QFrame()
        card.setProperty("role", "card")
        inside = column(self._savings)
        inside.setContentsMargins(10, 8, 10, 8)
        card.setLayout(inside)
        pages: list[tuple[str, QWidget]] = [
            (tr("Block tables"), scroll),
            (tr("Scheduler"), self.lane),
            (tr("Events"), self.tape),
            (tr("Savings"), self.shares),
            (tr("Contiguous"), scrolled(self.against)),
        ]
        self.pages = Pages(pages)
        self.pages.page_changed.connect(self._on_pages_page_changed)
        return column(card, (self.pages, 1))

    def add_to_heading(self, label: QWidget) -> None:
        """Puts a word behind title and badge."""
        self._head.insertWidget(self._head.indexOf(self.badge) + 1, label)

    # --- showing ---

    def set_model(self, model: PoolModel | None) -> None:
        """Shows another pool, or none."""
        self.model = model
        self.area.set_model(model)
        self._show_block(-1)
        self.show_forecast("", ())
        self.tables.say_when_empty("" if model is None else tr("No conversation holds blocks."))
        if model is None:
            self._usage.show_nothing()
            set_text(self._size, "")
            self.tables.set_strips([])
            self.shares.show_pool(None)
            self.against.show_pool(None)
            self.show_lane((), StepWork(), 0.0)
            self.show_trouble("")
            self._show_card()
        else:
            model.take_dirty()
            self.show_words()

    def show_changes(self, dirty: Collection[int], written: Collection[int]) -> None:
        """Repaints what changed of the pool; tables and words wait for ``show_words``."""
        if self.model is not None:
            self.grid.refresh(dirty, written)

    def show_words(self) -> None:
        """Block tables, figures and labels."""
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
        self._show_card()
        if self._pointed >= 0:
            self._block.show_text(" · ".join(self._facts(self._pointed)))
        self.area.show_words()
        self.shares.show_pool(model)
        self.against.show_pool(model)
        if self.tables.isVisible():
            self.tables.set_strips(strips_of(model, self._looks, self._names))

    def _show_card(self) -> None:
        """Without a pool there is nothing to say in it."""
        self._card.setVisible(self._is_roomy and self.model is not None)

    def show_lane(self, rows: tuple[LaneRow, ...], work: StepWork, steps_per_s: float) -> None:
        """What the scheduler does with each request."""
        self._lane_now = (rows, work, steps_per_s)
        if self.lane.isVisible():
            self.lane.show_lane(*self._lane_now, self.model)

    def show_forecast(self, text: str, evicted: Collection[int]) -> None:
        """What sending the draft would do, empty for no draft; marks the blocks that would go."""
        self._forecast.show_text(text)
        self._forecast.setVisible(bool(text) and not self._is_low)
        self.grid.set_leaving(evicted)

    def show_block_text(self, block_id: int, text: str) -> None:
        """The text that a block holds, if it is the one pointed at; empty if it is not known."""
        if block_id == self._pointed:
            short = text[:LONGEST_TEXT].replace("\n", "⏎")
            self._text.show_text(tr("“{quoted}”", quoted=short) if text else "")
            self._show_text_place()
            facts = " · ".join(self._facts(block_id))
            self.grid.setAccessibleDescription(f"{facts} · {self._text.text()}")

    def point_at(self, block_id: int) -> None:
        """Shows a block in grid and tables, as if one of these were pointed at; -1 for none."""
        self._on_tables_block_hovered(block_id)

    def light(self, blocks: frozenset[int]) -> None:
        """Outlines blocks that something outside the panel points at."""
        self.grid.set_highlight(blocks)
        self.tables.light(blocks)

    def show_note(self, text: str) -> None:
        """Says something while no block is pointed at; empty for the usual words."""
        self._note = text
        if self._pointed < 0:
            self._show_block(-1)

    def show_trouble(self, text: str) -> None:
        """A line about something that is wrong; empty for nothing."""
        self._trouble.show_text(text)
        self._trouble.setVisible(bool(text))

    def forget_names(self) -> None:
        """Conversations were opened, closed, renamed or numbered anew."""
        self._looks.forget_numbers()
        self.tape.forget_names()
        if self.model is not None and self.isVisible():
            self.grid.redraw()
            self.tables.set_strips(strips_of(self.model, self._looks, self._names))

    def _describe(self, block_id: int) -> str:
        return "" if self.model is None else "\n".join(self._facts(block_id))

    def _facts(self, block_id: int) -> list[str]:
        model = self.model
        return [] if model is None else words.block(model, self._names, block_id)

    def _show_block(self, block_id: int) -> None:
        self._pointed = block_id
        self._text.show_text("")
        self._show_text_place()
        if self.model is None:
            text = self._empty_text
        elif block_id < 0:
            text = self._note or tr("Point at a cell, or use the arrow keys, to read a block.")
        else:
            text = " · ".join(self._facts(block_id))
            self.grid.setAccessibleDescription(text)
        self._block.show_text(text)
        self.block_pointed.emit(block_id)

    def _show_text_place(self) -> None:
        """Where there is room for it, the text has its place even while there is none."""
        has_place = self._is_roomy and self.model is not None
        self._text.setVisible(has_place or (bool(self._text.text()) and not self._is_low))

    @Slot()
    def _limit_area(self) -> None:
        """What a small pool does not need is of use to the pages under it."""
        is_above = self._parts.orientation() is Qt.Orientation.Vertical
        most = self.area.most_height if is_above else NO_LIMIT
        before = self.area.maximumHeight()
        if before != most:
            self.area.setMaximumHeight(most)
        if before < NO_LIMIT == most and not self._is_moved and self._is_divided:
            # The table, or larger cells: a splitter gives back nothing by itself.
            self._divide()

    def _divide(self) -> None:
        """Not what each part would like best, which is the grid nearly everything."""
        is_above = self._parts.orientation() is Qt.Orientation.Vertical
        self._parts.setSizes([1040, 960] if is_above else [900, 1100])

    @Slot()
    def _on_parts_splitter_moved(self) -> None:
        self._is_moved = True

    @Slot()
    def _on_pages_page_changed(self) -> None:
        """What is seen now was left alone while it could not be seen."""
        self.show_words()
        self.show_lane(*self._lane_now)

    @Slot(int)
    def _on_area_block_hovered(self, block_id: int) -> None:
        self.tables.set_highlight(block_id)
        self._show_block(block_id)

    @Slot(int)
    def _on_tables_block_hovered(self, block_id: int) -> None:
        self.tables.set_highlight(block_id)
        self.grid.set_highlight([block_id] if block_id >= 0 else [])
        self._show_block(block_id)

    @Slot(object)
    def _on_theme_changed(self, theme: Theme) -> None:
        self._usage.set_theme(theme)
        self.grid.set_theme(theme)
        self.tables.set_theme(theme)
        self.lane.set_theme(theme)
        self.against.set_theme(theme)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        width, height = self.width(), self.height()
        wide = width > height and (width >= WIDE_FROM or height < MINIMUM_HEIGHT)
        is_roomy = height >= (WIDE_ROOMY_FROM if wide else ROOMY_FROM)
        self._is_low = height < (WIDE_LOW_UNDER if wide else LOW_UNDER)
        self._usage.show_legend(is_roomy)
        self._time_bar.setVisible(not self._is_low)
        self._is_roomy = is_roomy
        self._show_card()
        self._show_text_place()
        self.area.row.setVisible(is_roomy)
        self.pages.set_compact(self._is_low)
        self._spread.setVisible(wide)
        direction = QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom
        if self._body.direction() != direction:
            self._body.setDirection(direction)
            across = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
            self._parts.setOrientation(across)
            self._body.setStretch(0, 1 if wide else 0)
            self._body.setStretch(1, 2 if wide else 1)
        if not any(self._parts.sizes()) or not self._is_divided:
            self._is_divided = self.isVisible()
            self._divide()
        self._limit_area()
