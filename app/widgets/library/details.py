"""What is known of one model, what loading it would take, and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QLabel,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.conversation import Conversation
from app.error_text import describe_error
from app.i18n import tr
from app.library.rereading import answered_by, rereading
from app.library.status import Standing
from app.session import Session
from app.theme import ThemeManager
from app.widgets.library.estimate import EstimateView
from app.widgets.library.model_list import ModelRow
from app.widgets.library.path_label import PathLabel
from app.widgets.library.template_row import TemplateRow
from app.widgets.library.words import (
    count_words,
    disk_words,
    license_words,
    note_words,
    reread_words,
)
from app.widgets.swatch_row import SwatchRow
from engine.api.model_description import ModelDescription

_COUNT_MS = 1000
"""While answers are being written, what another model would have to read grows."""


class ModelDetails(QScrollArea):
    """Shows a row of the list; ``template_chosen(name)``: another chat template for it."""

    template_chosen = Signal(str)

    def __init__(
        self, session: Session, themes: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._session = session
        self.row: ModelRow | None = None
        self._facts: list[tuple[str, str]] = []
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(tr("About the model"))
        self.title = _label("title")
        self.cause = _label(tone="error")
        self.action = _label()
        self.facts = QGridLayout()
        self.facts.setHorizontalSpacing(16)
        self.facts.setVerticalSpacing(4)
        self.facts.setColumnStretch(1, 1)
        self.estimate = EstimateView(themes)
        self.notes = _label(tone="muted")
        self.template = TemplateRow()
        self.template.chosen.connect(self.template_chosen)
        self.reread = _label()
        self.tabs_name = _label(tone="muted")
        self.tabs = SwatchRow(themes)
        self._count_timer = QTimer(self)
        self._count_timer.setTimerType(Qt.TimerType.VeryCoarseTimer)
        self._count_timer.setInterval(_COUNT_MS)
        self._count_timer.timeout.connect(self._on_count_timer_timeout)
        page = QWidget()
        column = QVBoxLayout(page)
        column.setContentsMargins(4, 4, 12, 4)
        column.setSpacing(10)
        for part in (self.title, self.cause, self.action):
            column.addWidget(part)
        column.addLayout(self.facts)
        for widget in (self.estimate, self.template, self.notes, self.reread):
            column.addWidget(widget)
        column.addWidget(self.tabs_name)
        column.addWidget(self.tabs)
        column.addStretch(1)
        self.setWidget(page)

    def show_row(self, row: ModelRow | None) -> None:
        """Shows another model, or what has changed of this one; None: no model is chosen."""
        self.row = row
        page = self.widget()
        assert page is not None
        page.setVisible(row is not None)
        if row is None:
            return
        entry = row.entry
        self.title.setText(entry.name)
        self._show_trouble(row)
        self._show_facts(row)
        about = entry.description
        is_loaded = row.standing is Standing.LOADED
        self.estimate.setVisible(about is not None)
        if about is not None:
            info = self._session.model_state.info if is_loaded else None
            self.estimate.show_description(about, self._session.library.speed(entry), info)
        _set_text(self.notes, "\n".join(note_words(about)) if about is not None else "")
        self._show_template(row)
        self._show_cost(row)
        self._show_tabs(row)
        said = (label.text() for label in page.findChildren(QLabel) if not label.isHidden())
        self.setAccessibleDescription("\n".join(text for text in said if text))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._count_timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._count_timer.stop()

    def _on_count_timer_timeout(self) -> None:
        if self.row is not None and self._session.num_running_answers:
            self._show_cost(self.row)

    def _show_trouble(self, row: ModelRow) -> None:
        entry = row.entry
        load_path = self._session.library.load_path(entry.path)
        error = entry.error or self._session.load_errors.get(load_path)
        cause, action = ("", "") if error is None else describe_error(error)
        if row.standing is Standing.GONE:
            cause = tr("The file is no longer there.")
            action = tr("Put it back, or take it off the list.")
        elif row.standing is Standing.ABSENT:
            cause, action = "", tr("The starter model is fetched once (94 MB) and kept.")
        elif row.standing is Standing.LOADED:
            cause = action = ""
        _set_text(self.cause, cause)
        _set_text(self.action, action)

    def _show_facts(self, row: ModelRow) -> None:
        entry = row.entry
        facts = [] if entry.description is None else _facts(entry.description)
        if entry.exists:
            facts.append((tr("On disk"), disk_words(entry)))
        facts.append((tr("Where"), entry.path))
        if facts == self._facts:
            return
        self._facts = facts
        while (item := self.facts.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        for n, (name, value) in enumerate(facts):
            label = _label(tone="muted", text=name, wraps=False)
            self.facts.addWidget(label, n, 0, Qt.AlignmentFlag.AlignTop)
            is_path = value == entry.path
            shown = PathLabel(value) if is_path else _label(text=value)
            shown.setAccessibleName(f"{name}: {value}")
            self.facts.addWidget(shown, n, 1)

    def _show_template(self, row: ModelRow) -> None:
        about = row.entry.description
        self.template.setVisible(about is not None)
        if about is not None:
            state = self._session.model_state
            info = state.info if row.standing is Standing.LOADED else None
            chosen = self._session.library.places.chat_templates.get(row.entry.path, "")
            self.template.show_choice(about.has_chat_template, chosen, info)

    def _conversations(self) -> list[Conversation]:
        session = self._session
        return [session.conversation(i) for i in session.conversation_ids()]

    def _show_cost(self, row: ModelRow) -> None:
        entry, about = row.entry, row.entry.description
        words = ""
        if entry.exists and entry.error is None and row.standing is not Standing.LOADED:
            length = 0 if about is None else about.context_length
            cost = rereading(self._conversations(), length, self._session.tokens_so_far)
            words = reread_words(cost, self._session.library.speed(entry), about)
        _set_text(self.reread, words)

    def _show_tabs(self, row: ModelRow) -> None:
        answered = answered_by(self._conversations(), row.entry.name)
        _set_text(self.tabs_name, tr("Answered last in these tabs:") if answered else "")
        self.tabs.set_conversations(answered)
        self.tabs.setVisible(bool(answered))


def _facts(about: ModelDescription) -> list[tuple[str, str]]:
    context = tr("{n} tokens", n=f"{about.context_length:,}")
    return [
        (tr("Family"), f"{about.family} ({about.architecture})"),
        (tr("Parameters"), count_words(about.num_parameters)),
        (tr("Quantisation"), about.quantization),
        (tr("Context"), context),
        (tr("Licence"), license_words(about)),
    ]


def _set_text(label: QLabel, text: str) -> None:
    label.setText(text)
    label.setVisible(bool(text))


def _label(role: str = "", tone: str = "", text: str = "", wraps: bool = True) -> QLabel:
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(wraps)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if role:
        label.setProperty("role", role)
    if tone:
        label.setProperty("tone", tone)
    return label
