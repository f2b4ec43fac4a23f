"""Where the transcript stands: at the end, or at a place that nothing but the user moves."""

from __future__ import annotations

from PySide6.QtWidgets import QAbstractScrollArea

from app.widgets.transcript.page import Anchor, Page

_KEEP_PAGES = 1.5
_AT_END = 2


class Scroll:
    """Lays the page out around the viewport and keeps the scroll bar in line with it.

    ``follows``: new text scrolls the view; the user's scrolling up ends it.
    """

    def __init__(self, area: QAbstractScrollArea, page: Page) -> None:
        self.follows = True
        self.is_settling = False
        self._area = area
        self._page = page
        self._kept: Anchor | None = None
        self._wanted: Anchor | None = None

    @property
    def y(self) -> float:
        """Top of the viewport on the page, in pixels."""
        return float(self._area.verticalScrollBar().value())

    @property
    def is_at_end(self) -> bool:
        bar = self._area.verticalScrollBar()
        return bar.value() >= bar.maximum()

    def place(self) -> Anchor | None:
        """What is at the top of the viewport. The same until the user scrolls, so that a window
        that is made narrow and wide again shows what it showed before.
        """
        if self._wanted is not None:
            return self._wanted
        if self._kept is None:
            self._kept = self._page.anchor_at(self.y)
        return self._kept

    def want(self, anchor: Anchor) -> None:
        """Goes to a place when the page is laid out next."""
        self.follows = False
        self._kept, self._wanted = None, anchor

    def follow(self) -> None:
        """Stays at the end from now on."""
        self.follows = True
        self.forget()

    def forget(self) -> None:
        """The page shows something else, or the user scrolled: no place is kept."""
        self._kept = self._wanted = None

    def settle(self, anchor: Anchor | None = None) -> None:
        """Lays out around the viewport, with ``anchor`` at its top if there is one."""
        if self.is_settling:
            return
        if self._wanted is not None:
            anchor, self._wanted = self._wanted, None
            self._kept = anchor
        page, bar = self._page, self._area.verticalScrollBar()
        view = self._area.viewport()
        height = float(view.height())
        self.is_settling = True
        try:
            y = page.settle(self.y, height, height * 0.5, self.follows, anchor)
            bar.setRange(0, max(0, round(page.height - height)))
            bar.setPageStep(max(1, view.height() - 40))
            bar.setValue(round(y))
            keep = height * _KEEP_PAGES
            page.release(y - keep, y + height + keep)
        finally:
            # What fails once must not hold the page still for good.
            self.is_settling = False
        view.update()

    def user_moved(self) -> None:
        """The user has taken the scroll bar somewhere."""
        bar = self._area.verticalScrollBar()
        self.follows = bar.sliderPosition() >= bar.maximum() - _AT_END
        self.forget()

    def move_by(self, pixels: float) -> None:
        """Scrolls as the user does: up ends following, reaching the end resumes it."""
        bar = self._area.verticalScrollBar()
        target = min(bar.maximum(), max(0, bar.value() + round(pixels)))
        self.follows = target >= bar.maximum() - _AT_END
        self.forget()
        bar.setValue(target)
