"""A page that waits for its conversation, so that a new tab opens at once."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer

from app.session import Session
from app.theme import ThemeManager
from app.widgets.conversation_page import ConversationPage
from app.widgets.split_view import SplitView

DELAY_MS = 600
"""After a page was taken: what was asked for with it comes first."""
STEP_MS = 40
"""Between two parts. All of them at once would keep the window from painting for 30 ms, or for
three times as long on a slow computer that is busy with an answer."""


class SparePage(QObject):
    """Makes one page ahead, a part now and then; it stands in ``view``, out of sight."""

    def __init__(
        self, session: Session, themes: ThemeManager, view: SplitView, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._themes = themes
        self._view = view
        self._page: ConversationPage | None = None
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._on_timer_timeout)

    @property
    def is_ready(self) -> bool:
        """Whether all of a page is made."""
        return self._page is not None and not self._timer.isActive()

    def take(self, conversation_id: str) -> ConversationPage:
        """A page that shows this conversation; what was not made ahead is made now."""
        page, self._page = self._page or self._new_page(), None
        page.open(conversation_id)
        self._timer.start(DELAY_MS)
        return page

    def _new_page(self) -> ConversationPage:
        # In its place from the start: moved there later, all of it would be styled again.
        page = ConversationPage(self._session, self._themes)
        self._view.add(page)
        return page

    def _on_timer_timeout(self) -> None:
        self._timer.setInterval(STEP_MS)
        if self._page is None:
            self._page = self._new_page()
        elif not self._page.build_next():
            self._timer.stop()
