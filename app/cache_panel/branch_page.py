"""The panel's page with the branches of the conversation in front and of its forks."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget
from shiboken6 import isValid

from app.bridge import Bridge
from app.cache_panel import words
from app.cache_panel.branch_feed import BranchFeed
from app.cache_panel.branch_view import BranchView
from app.cache_panel.branches import rows_of
from app.cache_panel.looks import Looks
from app.cache_panel.names import Names
from app.cache_panel.pool_model import PoolModel
from app.i18n import tr
from app.session import Session
from app.theme import Theme, ThemeManager


class BranchPage(QWidget):
    """Asks the engine only while it is seen. ``block_hovered(block_id)``: -1 for none."""

    block_hovered = Signal(int)

    def __init__(
        self,
        bridge: Bridge,
        session: Session,
        themes: ThemeManager,
        names: Names,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._names = names
        self._looks = Looks(names.number_of)
        self._model: PoolModel | None = None
        self.feed = BranchFeed(bridge, session, self)
        self.view = BranchView(themes.theme, self._describe)
        area = QScrollArea()
        area.setWidget(self.view)
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setAccessibleName(tr("Branches"))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(area)
        self.view.block_hovered.connect(self.block_hovered)
        self.feed.changed.connect(self._show)
        themes.changed.connect(self._on_theme_changed)

    def show_pool(self, model: PoolModel | None) -> None:
        """Shows a pool as it is now; reckons nothing while it cannot be seen."""
        self._model = model
        self.feed.follow(model)
        if self.isVisible():
            self._show()

    def forget_names(self) -> None:
        """Conversations were opened, closed or numbered anew."""
        self._looks.forget_numbers()

    @Slot()
    def _show(self) -> None:
        model, feed = self._model, self.feed
        if model is None:
            self.view.show_rows([])
            return
        ids = {branch.conversation_id for branch in feed.branches}
        numbers = {i: self._names.number_of(i) for i in ids}
        rows = rows_of(feed.branches, feed.found, feed.num_blocks, model, self._looks, numbers)
        self.view.show_rows(rows)

    def _describe(self, block_id: int) -> str:
        model = self._model
        return "" if model is None else "\n".join(words.block(model, self._names, block_id))

    def _on_theme_changed(self, theme: Theme) -> None:
        self.view.set_theme(theme)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.feed.start()
        self._show()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        if isValid(self.feed):
            self.feed.stop()
