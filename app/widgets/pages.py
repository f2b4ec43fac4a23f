"""The pages of open conversations, and what the session tells each of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from PySide6.QtCore import QObject, Signal

from app.session import Session
from app.theme import ThemeManager
from app.widgets.conversation_page import ConversationPage
from app.widgets.spare_page import SparePage
from app.widgets.split_view import SplitView


class Pages(QObject):
    """A page is made when its tab is first shown; hidden pages do no layout.

    ``sampling_requested(conversation_id)``: by the button of a composer. ``page_made(page)``.
    """

    sampling_requested = Signal(str)
    page_made = Signal(object)

    def __init__(
        self, session: Session, themes: ThemeManager, view: SplitView, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._view = view
        self.spare = SparePage(session, themes, view, self)
        self._pages: dict[str, ConversationPage] = {}
        session.conversation_changed.connect(self._on_conversation_changed)
        session.path_changed.connect(self._on_path_changed)
        session.message_added.connect(self._on_message_added)
        session.message_removed.connect(self._on_message_removed)
        session.text_appended.connect(self._on_text_appended)
        session.message_changed.connect(self._on_message_changed)
        session.request_state_changed.connect(self._on_request_state_changed)
        session.draft_restored.connect(self._on_draft_restored)
        session.default_system_prompt_changed.connect(self._on_default_prompt_changed)

    def __iter__(self) -> Iterator[ConversationPage]:
        return iter(list(self._pages.values()))

    def get(self, conversation_id: str) -> ConversationPage | None:
        """The page, if it was ever shown."""
        return self._pages.get(conversation_id)

    def page(self, conversation_id: str) -> ConversationPage:
        """The page of an open conversation, made if it was never shown. Raises KeyError."""
        page = self._pages.get(conversation_id)
        if page is None:
            self._session.conversation(conversation_id)
            page = self.spare.take(conversation_id)
            requested = partial(self.sampling_requested.emit, conversation_id)
            page.composer.sampling_requested.connect(requested)
            self._pages[conversation_id] = page
            self.page_made.emit(page)
        return page

    def remove(self, conversation_id: str) -> None:
        """The conversation is closed."""
        page = self._pages.pop(conversation_id, None)
        if page is not None:
            self._view.remove(page)
            page.setParent(None)
            page.deleteLater()

    def _on_conversation_changed(self, conversation_id: str) -> None:
        if page := self._pages.get(conversation_id):
            page.update_conversation()

    def _on_path_changed(self, conversation_id: str) -> None:
        if page := self._pages.get(conversation_id):
            page.reload()

    def _on_message_added(self, conversation_id: str, message_id: str) -> None:
        if page := self._pages.get(conversation_id):
            page.add_message(message_id)

    def _on_message_removed(self, conversation_id: str, message_id: str) -> None:
        if page := self._pages.get(conversation_id):
            page.remove_message(message_id)

    def _on_text_appended(self, conversation_id: str, message_id: str, text: str) -> None:
        if page := self._pages.get(conversation_id):
            page.append_text(message_id, text)

    def _on_message_changed(self, conversation_id: str, message_id: str) -> None:
        if page := self._pages.get(conversation_id):
            page.update_message(message_id)

    def _on_request_state_changed(self, conversation_id: str) -> None:
        if page := self._pages.get(conversation_id):
            page.update_state()

    def _on_draft_restored(self, conversation_id: str, text: str) -> None:
        # Its page must exist: the text would otherwise wait in nothing.
        self.page(conversation_id).restore_draft(text)

    def _on_default_prompt_changed(self) -> None:
        for page in self:
            page.empty_state.refresh_default()
