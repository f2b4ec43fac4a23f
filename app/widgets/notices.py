"""Notices as bars inside the window; nothing pops up."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.i18n import tr
from app.session_state import Notice, Severity
from app.theme import ThemeManager
from app.widgets.buttons import IconButton
from app.widgets.words import error_words

MAX_NOTICES = 3
_TONES = {Severity.INFO: "accent", Severity.WARNING: "warning", Severity.ERROR: "error"}


class NoticeBar(QFrame):
    """One notice with a button that takes it away."""

    def __init__(self, themes: ThemeManager, notice: Notice, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.notice = notice
        tone = _TONES[notice.severity]
        self.setProperty("role", "notice")
        self.setProperty("tone", tone)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 6, 6, 6)
        row.setSpacing(8)
        icon = IconButton(
            themes, "info" if notice.severity is Severity.INFO else "warning", "", self, tone
        )
        icon.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        icon.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        row.addWidget(icon, 0, Qt.AlignmentFlag.AlignTop)
        self.label = QLabel(error_words(notice.error))
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.label.setWordWrap(True)
        self.label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        row.addWidget(self.label, 1)
        self.close_button = IconButton(themes, "close", tr("Dismiss"), self, "muted")
        row.addWidget(self.close_button, 0, Qt.AlignmentFlag.AlignTop)


class NoticeArea(QWidget):
    """The latest ``MAX_NOTICES`` notices, the newest at the bottom; a repeated one shows once."""

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._bars: list[NoticeBar] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(6)
        self.hide()

    @property
    def bars(self) -> list[NoticeBar]:
        return list(self._bars)

    def add(self, notice: Notice) -> None:
        """Shows a notice."""
        for bar in list(self._bars):
            if bar.notice.error == notice.error:
                self._remove(bar)
        while len(self._bars) >= MAX_NOTICES:
            self._remove(self._bars[0])
        bar = NoticeBar(self._themes, notice, self)
        bar.close_button.clicked.connect(lambda: self._remove(bar))
        self._bars.append(bar)
        self._column.addWidget(bar)
        self.show()

    def retract(self, *, code: str = "", message: str = "") -> None:
        """Takes notices of an error away that no longer hold, or are told elsewhere."""
        for bar in list(self._bars):
            error = bar.notice.error
            if error.code == code or error.message == message:
                self._remove(bar)

    def clear(self) -> None:
        """Takes all away."""
        for bar in list(self._bars):
            self._remove(bar)

    def _remove(self, bar: NoticeBar) -> None:
        if bar in self._bars:
            self._bars.remove(bar)
            bar.hide()
            bar.deleteLater()
            self.setVisible(bool(self._bars))
