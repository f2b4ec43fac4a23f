"""Tells by a notification of the desktop that an answer is done while nobody looks."""

from __future__ import annotations

from PySide6.QtCore import QObject, Slot

from app.conversation import MessageStatus
from app.i18n import tr
from app.notifications import IsActive, Notifier
from app.session import Session
from app.settings import Settings
from app.widgets.words import error_words, shown_title


class AnswerNotices(QObject):
    """Nothing is told while the application has the focus, or of an answer that the user ended."""

    def __init__(
        self, session: Session, settings: Settings, notifier: Notifier, is_active: IsActive
    ) -> None:
        super().__init__()
        self._session = session
        self._settings = settings
        self._notifier = notifier
        self._is_active = is_active
        self._busy: set[str] = set()
        session.request_state_changed.connect(self._on_session_request_state_changed)
        session.conversation_closed.connect(self._busy.discard)

    @Slot(str)
    def _on_session_request_state_changed(self, conversation_id: str) -> None:
        if self._session.is_busy(conversation_id):
            self._busy.add(conversation_id)
            return
        was_busy = conversation_id in self._busy
        self._busy.discard(conversation_id)
        if not was_busy or conversation_id not in self._session.conversation_ids():
            return
        if self._settings.values.notify_when_done and not self._is_active():
            self._tell(conversation_id)

    def _tell(self, conversation_id: str) -> None:
        conversation = self._session.conversation(conversation_id)
        answer = conversation.messages.get(conversation.active_leaf_id or "")
        if answer is None:
            return
        if answer.status is MessageStatus.DONE:
            words = tr("The answer is done.")
        elif answer.status is MessageStatus.ERROR:
            words = error_words(answer.error) if answer.error else tr("The answer failed.")
        else:
            return
        title = shown_title(conversation.title)
        self._notifier.notify(conversation_id, title, words, tr("Open"))
