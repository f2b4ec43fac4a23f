"""Asking before the program is left: in mid-answer, amid a file, or with something unsaved."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox, QWidget

from app.conversation import MessageStatus
from app.i18n import tr, tr_n
from app.session import Session

_SESSION_END_S = 60.0
"""How long a desktop that ends its session may take; the user may still call that off."""


class QuitGuard:
    """Whether the window may be closed now. ``box``: the question while it is shown."""

    def __init__(
        self, session: Session, window: QWidget, is_at_files: Callable[[], bool] = lambda: False
    ) -> None:
        """``is_at_files``: whether files are being written or read."""
        self._is_at_files = is_at_files
        self._session = session
        self._window = window
        self._is_forced = False
        self._session_ends_until_s = 0.0
        self.box: QMessageBox | None = None

    def force(self) -> None:
        """Nothing is asked from now on: a signal, or the user has been asked."""
        self._is_forced = True

    def session_ends(self) -> None:
        """The desktop's session ends: nothing is asked, nobody has the time to answer."""
        self._session_ends_until_s = time.monotonic() + _SESSION_END_S

    def allows(self) -> bool:
        """True if nothing is lost by closing now; otherwise asks, and closes if that is wanted."""
        if self._is_forced or time.monotonic() < self._session_ends_until_s:
            return True
        busy, is_at_files = self._num_running(), self._is_at_files()
        # What is read is also stored, which can take a while.
        is_saved = is_at_files or self._session.save_all()
        if not busy and not is_at_files and is_saved:
            return True
        if self.box is None:
            self._ask(*_words(busy, is_at_files, is_saved))
        else:
            self.box.raise_()
            self.box.activateWindow()
        return False

    def _num_running(self) -> int:
        session = self._session
        busy = [session.conversation(i) for i in session.conversation_ids() if session.is_busy(i)]
        return sum(m.status is MessageStatus.STREAMING for c in busy for m in c.messages.values())

    def _ask(self, words: str, more: str) -> None:
        box = QMessageBox(self._window)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setIcon(QMessageBox.Icon.Question)
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setWindowTitle(tr("Quit Quire?"))
        box.setText(words)
        box.setInformativeText(more)
        leave = box.addButton(tr("Quit anyway"), QMessageBox.ButtonRole.DestructiveRole)
        stay = box.addButton(tr("Stay"), QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(stay)
        box.setEscapeButton(stay)
        leave.clicked.connect(self._leave)
        box.finished.connect(self._on_box_gone)
        box.destroyed.connect(self._on_box_gone)
        self.box = box
        box.open()

    def _leave(self) -> None:
        self.force()
        self._window.close()

    def _on_box_gone(self, _what: object) -> None:
        self.box = None


def _words(busy: int, is_at_files: bool, is_saved: bool) -> tuple[str, str]:
    """What goes on, and what leaving would do to it."""
    going_on, then = [], []
    if busy:
        going_on.append(
            tr_n("{n} answer is still being written.", "{n} answers are still being written.", busy)
        )
    if is_at_files:
        going_on.append(tr("A file is still being written or read."))
        then.append(tr("That is given up; a file that was there before stays as it was."))
    if not is_saved:
        going_on.append(tr("Not everything could be saved."))
        then.append(
            tr(
                "It is lost if you quit now. Free some disk space and saving goes on by itself, or "
                "export the conversations to another disk."
            )
        )
    elif busy:
        then.append(tr("What has come so far is kept. You can continue it after the next start."))
    return "\n".join(going_on), "\n".join(then)
