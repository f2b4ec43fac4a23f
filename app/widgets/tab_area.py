"""Tabs and their pages, in step with the session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QApplication, QHBoxLayout, QVBoxLayout, QWidget

from app.actions import Actions
from app.conversation import MessageStatus
from app.session import Session
from app.session_state import ModelStatus, Notice, RequestPhase
from app.theme import ThemeManager
from app.widgets.buttons import button_for
from app.widgets.closed_tabs import ClosedTabs
from app.widgets.conversation_page import ConversationPage
from app.widgets.notices import NoticeArea
from app.widgets.pages import Pages
from app.widgets.sides import Sides
from app.widgets.split_view import SplitView
from app.widgets.swatch import Activity
from app.widgets.tab_bar import ConversationTabs
from app.widgets.tab_list import TabListButton
from app.widgets.tab_menu import fill_tab_menu
from app.widgets.words import shown_title

NUMBERED_TABS = 9


class TabArea(QWidget):
    """The tabs, and one or two of their pages.

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
        self._unseen: dict[str, Activity] = {}
        self._load_notice: Notice | None = None
        self._closed = ClosedTabs(session)
        self.tabs = ConversationTabs(themes)
        self.tabs.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.notices = NoticeArea(themes)
        self.split = SplitView(themes)
        self.pages = Pages(session, themes, self.split, self)
        self.sides = Sides(session, themes, self, actions["split_view"])
        self._lay_out(actions)
        for conversation_id in session.conversation_ids():
            self._add_tab(conversation_id)
        self._connect()
        self.show_conversation(session.active_conversation_id or self.tabs.current_id())
        self.sides.restore()
        self.split.split_changed.connect(self._on_split_changed)

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
        self.tab_list = TabListButton(self._themes, self.tabs)
        row.addWidget(self.tab_list)
        row.addStretch(1)
        row.addWidget(button_for(actions["split_view"]))
        row.addWidget(button_for(actions["toggle_theme"]))
        row.addWidget(button_for(actions["toggle_cache_panel"]))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(row_widget)
        self._column = column
        self.notices.setContentsMargins(12, 8, 12, 4)
        column.addWidget(self.notices)
        column.addWidget(self.split, 1)

    def _connect(self) -> None:
        session, tabs = self._session, self.tabs
        session.conversation_added.connect(self._on_conversation_added)
        session.conversation_closed.connect(self._on_conversation_closed)
        session.conversation_changed.connect(self._update_mark)
        session.request_state_changed.connect(self._update_mark)
        session.answer_ended.connect(self._on_answer_ended)
        session.notice_raised.connect(self._on_notice_raised)
        session.model_state_changed.connect(self._on_model_state_changed)
        tabs.currentChanged.connect(self._on_tabs_current_changed)
        tabs.close_requested.connect(self.close_conversation)
        tabs.rename_finished.connect(session.rename)
        tabs.menu_opened.connect(lambda menu, chosen: fill_tab_menu(menu, self, session, chosen))
        tabs.order_changed.connect(session.set_order)
        tabs.customContextMenuRequested.connect(tabs.show_menu)

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What the registry's actions about tabs do."""
        tabs = self.tabs
        numbered = {
            f"tab_{n}": partial(self._show_numbered, n) for n in range(1, NUMBERED_TABS + 1)
        }
        return {
            **numbered,
            "close_tab": lambda: self.close_conversation(tabs.current_id()),
            "reopen_tab": self.reopen_last,
            "fork": lambda: self._session.fork(tabs.current_id()),
            "next_tab": lambda: self.step(1),
            "previous_tab": lambda: self.step(-1),
            "move_tab_left": lambda: tabs.move_current(-1),
            "move_tab_right": lambda: tabs.move_current(1),
            "tab_list": self.tab_list.open_list,
            "split_view": self.sides.toggle,
            "other_pane": self.sides.focus_other,
        }

    # --- what the window asks ---

    def put_under_tabs(self, widget: QWidget) -> None:
        """Shows ``widget`` between the tabs and what belongs to the tab in front."""
        self._column.insertWidget(1, widget)

    @property
    def current_page(self) -> ConversationPage | None:
        return self.pages.get(self.tabs.current_id())

    def page(self, conversation_id: str) -> ConversationPage:
        """The page of an open conversation, made if it was never shown. Raises KeyError."""
        return self.pages.page(conversation_id)

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
        page = self.pages.get(conversation_id)
        if page is None or message_id not in page.conversation.messages:
            return
        if message_id not in {message.message_id for message in page.conversation.path()}:
            self._session.select_version(conversation_id, message_id)
        page.transcript.show_message(message_id)
        page.transcript.setFocus(Qt.FocusReason.OtherFocusReason)

    def close_conversation(self, conversation_id: str) -> None:
        """Closes a tab; a new empty one takes the place of the last."""
        page = self.pages.get(conversation_id)
        if page is not None:
            page.flush()
        self._closed.add(conversation_id, self.tabs.index_of(conversation_id))
        self._session.close_conversation(conversation_id)

    def close_others(self, conversation_id: str, only_right: bool = False) -> None:
        """Closes all tabs but one, or those at its right."""
        first = self.tabs.index_of(conversation_id) + 1 if only_right else 0
        for other in self.tabs.ids()[first:]:
            if other != conversation_id:
                self.close_conversation(other)

    def reopen_last(self) -> None:
        """Opens the tab that was closed last where it was; nothing if there is none."""
        closed = self._closed.take()
        if closed is not None:
            conversation_id, index = closed
            self.show_conversation(conversation_id)
            self.tabs.moveTab(self.tabs.index_of(conversation_id), index)

    def step(self, by: int) -> None:
        """Goes ``by`` tabs to the right, around the ends."""
        if self.tabs.count():
            self.tabs.setCurrentIndex((self.tabs.currentIndex() + by) % self.tabs.count())

    def flush(self) -> None:
        """Hands everything that was typed to the session."""
        for page in self.pages:
            page.flush()
        self.sides.save()

    # --- what the session says ---

    def _on_conversation_added(self, conversation_id: str) -> None:
        self._add_tab(conversation_id)
        self.show_conversation(conversation_id)

    def _on_conversation_closed(self, conversation_id: str) -> None:
        self._unseen.pop(conversation_id, None)
        page, kept = self.pages.get(conversation_id), self.split.active_page
        if page is self.split.active_page and self.split.other_page is not None:
            kept = self.split.other_page
        self.pages.remove(conversation_id)
        if isinstance(kept, ConversationPage) and kept is not page:
            self.show_conversation(kept.conversation_id)
        self.tabs.remove(conversation_id)
        if not self.tabs.count():
            self.show_conversation(self._session.new_conversation())

    def _on_answer_ended(self, conversation_id: str, status: MessageStatus) -> None:
        if self.pages.get(conversation_id) in self.split.shown:
            return
        if status is MessageStatus.ERROR:
            self._unseen[conversation_id] = Activity.FAILED_UNSEEN
        elif status is MessageStatus.DONE:
            # Of several answers one may have failed before.
            self._unseen.setdefault(conversation_id, Activity.DONE_UNSEEN)
        self._update_mark(conversation_id)

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
            for area in (self.notices, *(page.notices for page in self.pages)):
                area.retract(message=state.error.message)
        if status is ModelStatus.READY and self._load_notice is not None:
            self.notices.add(self._load_notice)
        if status is not ModelStatus.FAILED:
            self._load_notice = None

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
        self._unseen.pop(conversation_id, None)
        self._update_mark(conversation_id)
        page = self.page(conversation_id)
        # A click into the other side has put the keyboard there before; a stack that shows another
        # page puts it anywhere.
        has_keyboard = page.isAncestorOf(QApplication.focusWidget() or self)
        self.split.show_page(page)
        self.sides.update_headings()
        if not has_keyboard:
            page.composer.edit.setFocus()
        self._session.set_active_conversation(conversation_id)
        self.current_changed.emit(conversation_id)

    def activity(self, conversation_id: str) -> Activity:
        """What its tab's mark tells."""
        phase = self._session.request_state(conversation_id).phase
        if phase is RequestPhase.DECODE:
            return Activity.STREAMING
        if phase in (RequestPhase.WAITING, RequestPhase.PREFILL):
            return Activity.WAITING
        return self._unseen.get(conversation_id, Activity.IDLE)

    def _update_mark(self, conversation_id: str) -> None:
        if self.tabs.index_of(conversation_id) < 0:
            return
        conversation = self._session.conversation(conversation_id)
        activity = self.activity(conversation_id)
        title = shown_title(conversation.title)
        self.tabs.set_mark(conversation_id, conversation.number, title, activity)
        if self.pages.get(conversation_id) in self.split.shown:
            self.sides.update_headings()
        self.activity_changed.emit(conversation_id, activity)

    def _on_split_changed(self) -> None:
        for page in self.split.shown:
            if isinstance(page, ConversationPage):
                self._unseen.pop(page.conversation_id, None)
                self._update_mark(page.conversation_id)

    def _show_numbered(self, number: int) -> None:
        """The tab with this place in the row; the last number is the last tab."""
        index = self.tabs.count() - 1 if number == NUMBERED_TABS else number - 1
        if 0 <= index < self.tabs.count():
            self.show_conversation(self.tabs.ids()[index])
