"""An edit that is being written is kept with the profile, like the draft in the composer."""

from __future__ import annotations

import json

from PySide6.QtCore import QObject, QTimer

from app.session import Session
from app.widgets.text_edits import written_text
from app.widgets.transcript.view import Transcript

_DELAY_MS = 400


class EditKeeper(QObject):
    """For one conversation's transcript."""

    def __init__(
        self, view: Transcript, session: Session, conversation_id: str, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._view = view
        self._session = session
        self._name = f"edit.{conversation_id}"
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_DELAY_MS)
        self._timer.timeout.connect(self.flush)
        view.acting.edit_changed.connect(self._on_edit_changed)

    def restore(self) -> None:
        """Opens what was being written when the program ended, if its message is shown."""
        try:
            kept = json.loads(self._session.window_state(self._name) or "{}")
            message_id, text = str(kept["message_id"]), str(kept["text"])
        except (ValueError, TypeError, KeyError):
            return
        self._view.acting.restore_edit(message_id, text)

    def flush(self) -> None:
        """Keeps what is being written now."""
        self._timer.stop()
        editor = self._view.acting.editor
        kept = ""
        if editor is not None and editor.is_changed:
            message_id, text = editor.item.view.message_id, written_text(editor.edit)
            kept = json.dumps({"message_id": message_id, "text": text}, ensure_ascii=False)
        if kept != self._session.window_state(self._name):
            self._session.set_window_state(self._name, kept)

    def _on_edit_changed(self) -> None:
        if self._view.acting.editor is None:
            self.flush()
        elif not self._timer.isActive():
            self._timer.start()
