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
        self._failed: dict[str, bool] = {}
        session.answer_ended.connect(self._on_session_answer_ended)
        session.conversation_closed.connect(self._on_session_conversation_closed)

    @Slot(str, object)
    def _on_session_answer_ended(self, conversation_id: str, status: MessageStatus) -> None:
        if status in (MessageStatus.DONE, MessageStatus.ERROR):
            failed = self._failed.get(conversation_id, False)
            self._failed[conversation_id] = failed or status is MessageStatus.ERROR
        # Of several answers the last one tells.
        if self._session.is_busy(conversation_id) or conversation_id not in self._failed:
            return
        has_failed = self._failed.pop(conversation_id)
        if conversation_id not in self._session.conversation_ids():
            return
        if self._settings.values.notify_when_done and not self._is_active():
            self._tell(conversation_id, has_failed)

    @Slot(str)
    def _on_session_conversation_closed(self, conversation_id: str) -> None:
        self._failed.pop(conversation_id, None)

    def _tell(self, conversation_id: str, has_failed: bool) -> None:
        conversation = self._session.conversation(conversation_id)
        words = tr("The answer is done.")
        if has_failed:
            answer = conversation.messages.get(conversation.active_leaf_id or "")
            error = answer.error if answer is not None else None
            words = error_words(error) if error else tr("The answer failed.")
        title = shown_title(conversation.title)
        self._notifier.notify(conversation_id, title, words, tr("Open"))
