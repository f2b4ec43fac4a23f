"""Where a message is written: grows to eight lines, Enter sends, safe for input methods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from math import ceil

from PySide6.QtCore import QEvent, QMimeData, Qt, Signal
from PySide6.QtGui import QFocusEvent, QInputMethodEvent, QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPlainTextEdit, QVBoxLayout, QWidget

from app import theme
from app.conversation import Attachment
from app.i18n import sentences, tr
from app.theme import ThemeManager
from app.widgets.attachments import Attachments
from app.widgets.buttons import IconButton
from app.widgets.file_reader import files_in
from app.widgets.text_edits import written_text
from app.widgets.token_gauge import GaugeDetails, TokenGauge

MAX_LINES = 8
_MEASURED_LINES = 200
_SLACK = 4
LARGE_PASTE = 64 * 1024
LONG_WORD = 16 * 1024
"""Where a line cannot be broken Qt lays it out in quadratic time, at every key press anew."""


class ComposerEdit(QPlainTextEdit):
    """The text box. ``submit_requested`` on Enter.

    ``large_text_pasted(text)`` and ``files_dropped(paths)`` instead of inserting;
    ``picture_pasted()``: there is nothing in it to insert.
    """

    submit_requested = Signal()
    large_text_pasted = Signal(str)
    files_dropped = Signal(object)
    picture_pasted = Signal()
    focus_changed = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._is_composing = False
        self.setFont(theme.body_font())
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(2)
        self.textChanged.connect(self._fit_direction)

    @property
    def is_composing(self) -> bool:
        """True while an input method shows text that is not committed yet."""
        return self._is_composing or bool(self.textCursor().block().layout().preeditAreaText())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        if is_enter and not shift and not self.is_composing:
            self.submit_requested.emit()
            event.accept()
            return
        super().keyPressEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._is_composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return bool(files_in(source)) or source.hasText() or source.hasImage()

    def insertFromMimeData(self, source: QMimeData) -> None:
        paths = files_in(source)
        if paths:
            self.files_dropped.emit(paths)
            return
        text = source.text()
        if not text and source.hasImage():
            self.picture_pasted.emit()
        elif is_large(text):
            self.large_text_pasted.emit(text)
        else:
            self.insertPlainText(text)

    def fitting_height(self, least: int, most: int) -> int:
        """So high that all lines are seen whole, in pixels; with less than ``least`` lines as for
        so many, with more than ``most`` as for so many of the tallest.

        Chinese, for one, is taller than what the font itself says of a line.
        """
        heights = list(islice(self._line_heights(), _MEASURED_LINES))
        missing = least - len(heights)
        text = sum(heights) + max(missing, 0) * min(heights)
        if len(heights) > most:
            text = most * max(heights)
        self.ensurePolished()
        margins = self.contentsMargins()
        around = margins.top() + margins.bottom() + 2.0 * self.document().documentMargin()
        return ceil(text + around) + _SLACK

    def _line_heights(self) -> Iterator[float]:
        block = self.document().firstBlock()
        while block.isValid():
            # Asked for its place, a paragraph is laid out.
            self.blockBoundingRect(block)
            layout = block.layout()
            for index in range(layout.lineCount()):
                yield layout.lineAt(index).height()
            block = block.next()

    def _fit_direction(self) -> None:
        """Text that begins in Arabic or Hebrew stands at the right."""
        document = self.document()
        is_rtl = document.firstBlock().textDirection() == Qt.LayoutDirection.RightToLeft
        align = Qt.AlignmentFlag.AlignRight if is_rtl else Qt.AlignmentFlag.AlignLeft
        option = document.defaultTextOption()
        if option.alignment() != align:
            option.setAlignment(align)
            document.setDefaultTextOption(option)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._is_composing = False
        super().focusOutEvent(event)
        self.focus_changed.emit(False)


class Composer(QFrame):
    """Text box, large pastes, Send or Stop.

    Signals:
        submitted(text): the user wants to send; the text stays until ``clear``.
        stop_requested()
        draft_changed(text): after each change, with all that would be sent.
        system_prompt_requested(), sampling_requested(), attach_requested()
        files_dropped(paths)
    """

    submitted = Signal(str)
    stop_requested = Signal()
    draft_changed = Signal(str)
    system_prompt_requested = Signal()
    sampling_requested = Signal()
    attach_requested = Signal()
    files_dropped = Signal(object)

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._is_busy = False
        self._is_quiet = False
        self.edit = ComposerEdit()
        self.edit.setAccessibleName(tr("Message"))
        self.edit.setPlaceholderText(tr("Write a message"))
        self.attachments = Attachments(themes)
        self.send_button = IconButton(themes, "send", tr("Send"), self, "on_accent")
        self.send_button.setProperty("kind", "send")
        self.prompt_button = IconButton(themes, "prompt", tr("System prompt"), self, "muted")
        self.sampling_button = IconButton(themes, "settings", tr("Sampling"), self, "muted")
        self.attach_button = IconButton(themes, "attach", tr("Attach text files"), self, "muted")
        self.reading = QLabel()
        self.reading.setTextFormat(Qt.TextFormat.PlainText)
        self.reading.setProperty("tone", "muted")
        self.reading.hide()
        self.gauge = TokenGauge(themes)
        self.details = GaugeDetails()
        self._lay_out()
        self._connect()
        self._fit()
        self._update_button()

    def _lay_out(self) -> None:
        row = QHBoxLayout()
        row.setSpacing(4)
        for button in (self.attach_button, self.prompt_button, self.sampling_button):
            row.addWidget(button)
        row.addWidget(self.gauge, 1)
        row.addSpacing(4)
        row.addWidget(self.send_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 8, 8, 8)
        layout.setSpacing(4)
        for widget in (self.attachments, self.reading, self.edit, self.details):
            layout.addWidget(widget)
        layout.addLayout(row)

    def _connect(self) -> None:
        self.edit.submit_requested.connect(self.submit)
        self.edit.large_text_pasted.connect(self.attachments.add)
        self.edit.files_dropped.connect(self.files_dropped)
        self.edit.textChanged.connect(self._on_text_changed)
        self.edit.document().documentLayout().documentSizeChanged.connect(self._fit)
        self.edit.focus_changed.connect(self._on_focus_changed)
        self.attachments.changed.connect(self._on_text_changed)
        self.send_button.clicked.connect(self._on_send_clicked)
        self.prompt_button.clicked.connect(self.system_prompt_requested)
        self.sampling_button.clicked.connect(self.sampling_requested)
        self.attach_button.clicked.connect(self.attach_requested)
        self.gauge.clicked.connect(self._on_gauge_clicked)

    def text(self) -> str:
        """All that would be sent: attachments first, then what was typed."""
        return "\n\n".join([*self.attachments.texts, written_text(self.edit)]).strip("\n")

    def typed_text(self) -> str:
        """What is in the text box."""
        return written_text(self.edit)

    def set_parts(self, attachments: tuple[Attachment, ...], typed: str) -> None:
        """Replaces everything; a large text becomes an attachment."""
        if is_large(typed):
            attachments, typed = (*attachments, Attachment("", typed)), ""
        # Told once, when both are there: nobody should take half of it for the draft.
        before, self._is_quiet = self.text(), True
        self.attachments.set_items(attachments)
        if typed != written_text(self.edit):
            self.edit.setPlainText(typed)
        self._is_quiet = False
        self.edit.moveCursor(self.edit.textCursor().MoveOperation.End)
        if self.text() != before:
            self._on_text_changed()

    def set_text(self, text: str) -> None:
        """Replaces everything; a large text becomes an attachment."""
        self.set_parts((), text)

    def show_reading(self, names: str) -> None:
        """Says which files are still read; empty when none is."""
        self.reading.setText(tr("Reading {names}…", names=names) if names else "")
        self.reading.setVisible(bool(names))

    def clear(self) -> None:
        """Takes everything away."""
        self.set_parts((), "")

    def submit(self) -> None:
        """As if Enter was pressed; does nothing while an answer runs or nothing is written."""
        if not self._is_busy and not self.edit.is_composing and self.text().strip():
            self.submitted.emit(self.text())

    def set_busy(self, is_busy: bool) -> None:
        """While busy the button stops the answer; typing goes on."""
        if is_busy != self._is_busy:
            self._is_busy = is_busy
            self._update_button()

    def _on_send_clicked(self) -> None:
        if self._is_busy:
            self.stop_requested.emit()
        else:
            self.submit()

    def _on_text_changed(self) -> None:
        # A line may have become taller with a letter.
        self._fit()
        if self._is_quiet:
            return
        self._update_button()
        self.draft_changed.emit(self.text())

    def _on_gauge_clicked(self) -> None:
        self.details.setVisible(self.gauge.button.isChecked() and self.details.has_lines)

    def show_details(self, lines: list[str]) -> None:
        """The sentences behind the figures, seen while the gauge is pressed."""
        self.details.show_lines(lines)
        self.gauge.button.setEnabled(bool(lines))
        self.gauge.button.setAccessibleDescription(sentences(*lines))
        self._on_gauge_clicked()

    def _update_button(self) -> None:
        can_send = bool(self.attachments.texts) or bool(written_text(self.edit).strip())
        enabled = self._is_busy or can_send
        icon = "stop" if self._is_busy else "send"
        self.send_button.set_icon(icon, "on_accent" if enabled else "muted")
        self.send_button.set_name(tr("Stop") if self._is_busy else tr("Send"))
        self.send_button.setEnabled(enabled)

    def _on_focus_changed(self, has_focus: bool) -> None:
        self.setProperty("active", has_focus)
        self.style().unpolish(self)
        self.style().polish(self)

    def _fit(self) -> None:
        """As high as its text, between one and ``MAX_LINES`` lines."""
        self.edit.setFixedHeight(self.edit.fitting_height(1, MAX_LINES))

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._fit()


def is_large(text: str) -> bool:
    """Whether a text box that held ``text`` would be slow."""
    if len(text) > LARGE_PASTE:
        return True
    words = re.finditer(r"\w+", text) if len(text) > LONG_WORD else ()
    return any(word.end() - word.start() > LONG_WORD for word in words)


def is_typed(event: QKeyEvent) -> bool:
    """Whether a key press stands for a character, and for nothing else."""
    modifier = Qt.KeyboardModifier
    control_or_alt = modifier.ControlModifier | modifier.AltModifier
    pressed = event.modifiers() & (control_or_alt | modifier.MetaModifier)
    # AltGr is both on Windows.
    is_plain = not pressed or pressed == control_or_alt
    return is_plain and event.text().isprintable() and bool(event.text().strip())
