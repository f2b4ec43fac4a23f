"""Tabs and their pages, in step with the session."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.actions import Actions
from app.session import Session
from app.session_state import ModelStatus, Notice, RequestPhase
from app.theme import ThemeManager
from app.widgets.buttons import button_for
from app.widgets.conversation_page import ConversationPage
from app.widgets.notices import NoticeArea
from app.widgets.overflow_menu import add_overflow_menu
from app.widgets.swatch import Activity
from app.widgets.tab_bar import ConversationTabs
from app.widgets.words import shown_title


class TabArea(QWidget):
    """A page is made when its tab is first shown; hidden pages do no layout.

    Signals:
        activity_changed(conversation_id, Activity)
        current_changed(conversation_id)
    """

    activity_changed = Signal(str, object)
    current_changed = Signal(str)

    def __init__(
        self,
        session: Session,
        themes: ThemeManager,
        actions: Actions,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._themes = themes
        self._pages: dict[str, ConversationPage] = {}
        self._unseen: set[str] = set()
        self._load_notice: Notice | None = None
        self.closed_ids: list[str] = []
        self.tabs = ConversationTabs(themes)
        self.tabs.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.notices = NoticeArea(themes)
        self.stack = QStackedWidget()
        self._lay_out(actions)
        for conversation_id in session.conversation_ids():
            self._add_tab(conversation_id)
        self._connect()
        self.show_conversation(session.active_conversation_id or self.tabs.current_id())

    def _lay_out(self, actions: Actions) -> None:
        row_widget = QWidget()
        row_widget.setObjectName("tab_row")
        row_widget.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        row = QHBoxLayout(row_widget)
        row.setContentsMargins(6, 0, 6, 0)
        row.setSpacing(2)
        row.addWidget(button_for(actions["toggle_sidebar"]))
        row.addWidget(self.tabs)
        row.addWidget(button_for(actions["new_tab"]))
        row.addStretch(1)
        row.addWidget(button_for(actions["toggle_theme"]))
        row.addWidget(button_for(actions["toggle_cache_panel"]))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(row_widget)
        self.notices.setContentsMargins(12, 8, 12, 4)
        column.addWidget(self.notices)
        column.addWidget(self.stack, 1)

    def _connect(self) -> None:
        session, tabs = self._session, self.tabs
        session.conversation_added.connect(self._on_conversation_added)
        session.conversation_closed.connect(self._on_conversation_closed)
        session.conversation_changed.connect(self._on_conversation_changed)
        session.path_changed.connect(self._on_path_changed)
        session.message_added.connect(self._on_message_added)
        session.message_removed.connect(self._on_message_removed)
        session.text_appended.connect(self._on_text_appended)
        session.message_changed.connect(self._on_message_changed)
        session.request_state_changed.connect(self._on_request_state_changed)
        session.draft_restored.connect(self._on_draft_restored)
        session.notice_raised.connect(self._on_notice_raised)
        session.model_state_changed.connect(self._on_model_state_changed)
        session.default_system_prompt_changed.connect(self._on_default_prompt_changed)
        tabs.currentChanged.connect(self._on_tabs_current_changed)
        tabs.close_requested.connect(self.close_conversation)
        tabs.rename_finished.connect(session.rename)
        tabs.fork_requested.connect(session.fork)
        tabs.menu_opened.connect(lambda menu, chosen: add_overflow_menu(menu, session, chosen))
        tabs.order_changed.connect(session.set_order)
        tabs.customContextMenuRequested.connect(tabs.show_menu)

    # --- what the window asks ---

    @property
    def current_page(self) -> ConversationPage | None:
        return self._pages.get(self.tabs.current_id())

    def page(self, conversation_id: str) -> ConversationPage:
        """The page of an open conversation, made if it was never shown. Raises KeyError."""
        page = self._pages.get(conversation_id)
        if page is None:
            self._session.conversation(conversation_id)
            page = ConversationPage(self._session, self._themes, conversation_id)
            self._pages[conversation_id] = page
            self.stack.addWidget(page)
        return page

    def show_conversation(self, conversation_id: str) -> None:
        """Brings a tab to the front, opening a stored conversation again."""
        if not conversation_id or not self._session.reopen_conversation(conversation_id):
            return
        index = self.tabs.index_of(conversation_id)
        if index == self.tabs.currentIndex():
            self._on_current_changed()
        else:
            self.tabs.setCurrentIndex(index)

    def show_message(self, conversation_id: str, message_id: str) -> None:
        """Brings a tab to the front with this message at the top, on whatever branch it is."""
        self.show_conversation(conversation_id)
        page = self._pages.get(conversation_id)
        if page is None or message_id not in page.conversation.messages:
            return
        if message_id not in {message.message_id for message in page.conversation.path()}:
            self._session.select_version(conversation_id, message_id)
        page.transcript.show_message(message_id)
        page.transcript.setFocus(Qt.FocusReason.OtherFocusReason)

    def close_conversation(self, conversation_id: str) -> None:
        """Closes a tab; a new empty one takes the place of the last."""
        page = self._pages.get(conversation_id)
        if page is not None:
            page.flush()
        self.closed_ids.append(conversation_id)
        self._session.close_conversation(conversation_id)
        if not self.tabs.count():
            self.show_conversation(self._session.new_conversation())

    def reopen_last(self) -> None:
        """Opens the tab that was closed last; nothing if there is none."""
        while self.closed_ids:
            conversation_id = self.closed_ids.pop()
            stored = self._session.closed_conversations()
            if any(summary.conversation_id == conversation_id for summary in stored):
                self.show_conversation(conversation_id)
                return

    def step(self, by: int) -> None:
        """Goes ``by`` tabs to the right, around the ends."""
        if self.tabs.count():
            self.tabs.setCurrentIndex((self.tabs.currentIndex() + by) % self.tabs.count())

    def flush(self) -> None:
        """Hands everything that was typed to the session."""
        for page in self._pages.values():
            page.flush()

    # --- what the session says ---

    def _on_conversation_added(self, conversation_id: str) -> None:
        self._add_tab(conversation_id)
        self.show_conversation(conversation_id)

    def _on_conversation_closed(self, conversation_id: str) -> None:
        self._unseen.discard(conversation_id)
        self.tabs.remove(conversation_id)
        page = self._pages.pop(conversation_id, None)
        if page is not None:
            self.stack.removeWidget(page)
            page.setParent(None)
            page.deleteLater()

    def _on_conversation_changed(self, conversation_id: str) -> None:
        self._update_mark(conversation_id)
        if conversation_id in self._pages:
            self._pages[conversation_id].update_conversation()

    def _on_path_changed(self, conversation_id: str) -> None:
        if conversation_id in self._pages:
            self._pages[conversation_id].reload()

    def _on_message_added(self, conversation_id: str, message_id: str) -> None:
        if conversation_id in self._pages:
            self._pages[conversation_id].add_message(message_id)

    def _on_message_removed(self, conversation_id: str, message_id: str) -> None:
        if conversation_id in self._pages:
            self._pages[conversation_id].remove_message(message_id)

    def _on_text_appended(self, conversation_id: str, message_id: str, text: str) -> None:
        if conversation_id in self._pages:
            self._pages[conversation_id].append_text(message_id, text)

    def _on_message_changed(self, conversation_id: str, message_id: str) -> None:
        if conversation_id in self._pages:
            self._pages[conversation_id].update_message(message_id)

    def _on_request_state_changed(self, conversation_id: str) -> None:
        if not self._session.is_busy(conversation_id) and conversation_id != self.tabs.current_id():
            self._unseen.add(conversation_id)
        self._update_mark(conversation_id)
        if conversation_id in self._pages:
            self._pages[conversation_id].update_state()

    def _on_draft_restored(self, conversation_id: str, text: str) -> None:
        # Its page must exist: the text would otherwise wait in nothing.
        self.page(conversation_id).restore_draft(text)

    def _on_notice_raised(self, notice: Notice) -> None:
        state = self._session.model_state
        if state.status is ModelStatus.FAILED and state.error == notice.error:
            # The card above the composer says it, unless the model from before comes back.
            self._load_notice = notice
            return
        if notice.conversation_id and self.tabs.index_of(notice.conversation_id) >= 0:
            self.page(notice.conversation_id).add_notice(notice)
        else:
            self.notices.add(notice)

    def _on_model_state_changed(self) -> None:
        state = self._session.model_state
        status = state.status
        if status is ModelStatus.FAILED and state.error is not None:
            for area in (self.notices, *(page.notices for page in self._pages.values())):
                area.retract(state.error.message)
        if status is ModelStatus.READY and self._load_notice is not None:
            self.notices.add(self._load_notice)
        if status is not ModelStatus.FAILED:
            self._load_notice = None

    def _on_default_prompt_changed(self) -> None:
        for page in self._pages.values():
            page.empty_state.refresh_default()

    # --- tabs ---

    def _add_tab(self, conversation_id: str) -> None:
        self.tabs.add(conversation_id)
        self._update_mark(conversation_id)

    def _on_tabs_current_changed(self, _index: int) -> None:
        self._on_current_changed()

    def _on_current_changed(self) -> None:
        conversation_id = self.tabs.current_id()
        if not conversation_id:
            return
        self._unseen.discard(conversation_id)
        self._update_mark(conversation_id)
        page = self.page(conversation_id)
        self.stack.setCurrentWidget(page)
        page.composer.edit.setFocus()
        self._session.set_active_conversation(conversation_id)
        self.current_changed.emit(conversation_id)

    def _activity(self, conversation_id: str) -> Activity:
        phase = self._session.request_state(conversation_id).phase
        if phase is RequestPhase.DECODE:
            return Activity.STREAMING
        if phase in (RequestPhase.WAITING, RequestPhase.PREFILL):
            return Activity.WAITING
        return Activity.DONE_UNSEEN if conversation_id in self._unseen else Activity.IDLE

    def _update_mark(self, conversation_id: str) -> None:
        if self.tabs.index_of(conversation_id) < 0:
            return
        conversation = self._session.conversation(conversation_id)
        activity = self._activity(conversation_id)
        title = shown_title(conversation.title)
        self.tabs.set_mark(conversation_id, conversation.number, title, activity)
        self.activity_changed.emit(conversation_id, activity)
