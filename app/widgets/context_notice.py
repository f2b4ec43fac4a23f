"""Says before sending what the model would no longer read, or that it cannot read it all."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from app.i18n import sentences, tr
from app.session import Session
from app.session_state import Outlook
from app.theme import ThemeManager
from app.widgets.buttons import IconButton
from app.widgets.words import drop_words, error_words, overflow_words
from engine.api.params import OverflowPolicy

ASK_DELAY_MS = 300


class ContextNotice(QFrame):
    """Hidden as long as what is written fits.

    Signals:
        send_allowed(text): a text that ``allows`` held back may be sent now.
    """

    send_allowed = Signal(str)

    def __init__(
        self,
        session: Session,
        themes: ThemeManager,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._conversation_id = ""
        self._text = ""
        self._held = ""
        self._shown: Outlook | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(ASK_DELAY_MS)
        self._timer.timeout.connect(self._ask)
        self.setProperty("role", "notice")
        self.setProperty("tone", "warning")
        icon = IconButton(themes, "warning", "", self, "warning")
        icon.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        icon.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.label = QLabel()
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.label.setWordWrap(True)
        self.drop_button = QPushButton(tr("Drop oldest messages"))
        self.drop_button.clicked.connect(self._on_drop_clicked)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 6, 6, 6)
        row.setSpacing(8)
        row.addWidget(icon, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(self.label, 1)
        row.addWidget(self.drop_button, 0, Qt.AlignmentFlag.AlignTop)
        session.outlook_changed.connect(self._on_outlook_changed)
        session.model_state_changed.connect(self.refresh)
        self.hide()

    def open(self, conversation_id: str) -> None:
        """Whose messages it speaks of from now on."""
        self._conversation_id = conversation_id

    def set_text(self, text: str) -> None:
        """What is written now; asked about when the typing pauses."""
        if text and text == self._held:
            # The held text came back into the composer.
            self._text = text
            return
        self._text, self._held = text, ""
        if text.strip():
            self._timer.start()
        else:
            self._timer.stop()
            self._show(None)

    def refresh(self) -> None:
        """The conversation, its policy or the model changed: asks anew."""
        if self._text.strip():
            self._timer.start(0)

    def allows(self, text: str) -> bool:
        """Whether ``text`` may be sent: what it drops is known, and shown if it is anything.

        Otherwise the engine is asked, and ``send_allowed`` follows if nothing new is dropped.
        """
        conversation = self._session.conversation(self._conversation_id)
        known = self._session.outlook(self._conversation_id)
        if conversation.overflow is OverflowPolicy.STOP:
            # The engine refuses it with the numbers, and the text comes back.
            return True
        if known is not None and known.text == text:
            return True
        if self._session.is_busy(self._conversation_id):
            return True
        self._timer.stop()
        if not self._session.ask_outlook(self._conversation_id, text):
            return True
        self._held = text
        return False

    def _ask(self) -> None:
        if self._conversation_id not in self._session.conversation_ids():
            # Its tab was closed: until the page is gone, events still come.
            return
        if self._session.is_busy(self._conversation_id):
            return
        if not self._session.ask_outlook(self._conversation_id, self._text):
            self._show(None)

    def _on_outlook_changed(self, conversation_id: str) -> None:
        if conversation_id != self._conversation_id:
            return
        outlook = self._session.outlook(conversation_id)
        if outlook is not None and outlook.text not in (self._text, self._held):
            return
        held, self._held = self._held, ""
        was_shown = self._shown.dropped_messages if self._shown is not None else 0
        self._show(outlook, bool(held))
        if held and (outlook is None or outlook.dropped_messages in (0, was_shown)):
            self.send_allowed.emit(held)

    def _show(self, outlook: Outlook | None, is_held: bool = False) -> None:
        conversation = self._session.conversation(self._conversation_id)
        words = "" if outlook is None else _words(outlook)
        if words and is_held and outlook is not None and outlook.dropped_messages:
            words = sentences(words, tr("Press Enter again to send."))
        self._shown = outlook if words else None
        self.label.setText(words)
        overflows = outlook is not None and not outlook.fits and outlook.error is None
        # Before the first message there is nothing to drop.
        can_drop = conversation.overflow is OverflowPolicy.STOP and bool(conversation.messages)
        self.drop_button.setVisible(overflows and can_drop)
        self.setVisible(bool(words))

    def _on_drop_clicked(self) -> None:
        self._session.set_overflow(self._conversation_id, OverflowPolicy.DROP_OLDEST)


def _words(outlook: Outlook) -> str:
    if outlook.error is not None:
        # Whatever else failed says so when the message is sent.
        return error_words(outlook.error) if outlook.error.code == "message_too_long" else ""
    if not outlook.fits:
        return overflow_words(outlook)
    return drop_words(outlook) if outlook.dropped_messages else ""
