"""The parity inspector: does paging change what attention computes? A window of its own."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Slot
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.bridge import Bridge
from app.cache_panel.parts import plain_label, wrapped_label
from app.conversation import new_id
from app.i18n import tr
from app.parity import words
from app.parity.form import ParityForm
from app.parity.plot import LayerPlot
from app.session import Session
from app.session_state import ModelStatus
from app.theme import ThemeManager
from app.widgets.words import error_words
from engine.api.commands import CancelQuery, CompareBackends, Inspect
from engine.api.events import CommandFailed, Event, ParityReport, QueryProgress

_SIZE = QSize(760, 640)
_CANCELLED = "query_cancelled"


class ParityWindow(QWidget):
    """Asks the engine and shows what it found. It answers others meanwhile.

    ``report``: the last one, None before it and while the engine works.
    """

    def __init__(
        self,
        session: Session,
        bridge: Bridge,
        themes: ThemeManager,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.setObjectName("parity_window")
        self.setWindowTitle(tr("Parity inspector"))
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(_SIZE)
        self._session = session
        self._bridge = bridge
        self._query_id = ""
        self._asked: tuple[str, ...] = ()
        self._is_live = False
        self._had_focus = False
        self.report: ParityReport | None = None
        self._make_parts(themes)
        self._lay_out()
        self._connect()
        self._show_busy()

    # --- making ---

    def _make_parts(self, themes: ThemeManager) -> None:
        self.form = ParityForm(self._session)
        self.compare_button = QPushButton(tr("Compare"))
        self.compare_button.setProperty("kind", "primary")
        self.cancel_button = QPushButton(tr("Cancel"))
        self.progress = QProgressBar()
        self.progress.setRange(0, 1000)
        self.progress.setTextVisible(False)
        self.progress.setAccessibleName(tr("Progress of the comparison"))
        self.plot = LayerPlot(themes)
        self.layer = plain_label(tone="muted")
        self.heading = plain_label()
        self.heading.setProperty("role", "heading")
        self.verdict = wrapped_label()
        self.verdict.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.verdict.setAccessibleName(tr("Verdict"))

    def _lay_out(self) -> None:
        intro = wrapped_label(tone="muted")
        intro.setText(
            tr(
                "Paging changes where keys and values are stored, never what attention computes. "
                "Here the engine proves it on a conversation of yours, layer by layer. Answers go "
                "on meanwhile."
            )
        )
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.progress, 1)
        buttons.addStretch(1)
        buttons.addWidget(self.cancel_button)
        buttons.addWidget(self.compare_button)
        card = QFrame()
        card.setProperty("role", "card")
        inside = QVBoxLayout(card)
        inside.setContentsMargins(12, 10, 12, 10)
        inside.setSpacing(4)
        inside.addWidget(self.heading)
        inside.addWidget(self.verdict)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 16, 20, 16)
        column.setSpacing(12)
        column.addWidget(intro)
        column.addWidget(self.form)
        column.addLayout(buttons)
        column.addWidget(self.plot, 1)
        column.addWidget(self.layer)
        column.addWidget(card)

    def _connect(self) -> None:
        self._session.model_state_changed.connect(self._show_busy)
        self._bridge.engine_event.connect(self._on_bridge_engine_event)
        self.form.changed.connect(self._on_form_changed)
        self.compare_button.clicked.connect(self.compare)
        self.cancel_button.clicked.connect(self.cancel)
        self.plot.layer_chosen.connect(self._on_plot_layer_chosen)

    # --- what the user does ---

    @property
    def is_busy(self) -> bool:
        """Whether the engine is at it."""
        return bool(self._query_id)

    @Slot()
    def compare(self) -> None:
        """Asks; nothing happens without a conversation."""
        form, conversation_id = self.form, self.form.conversation_id
        if not conversation_id or self.is_busy or form.asks_nothing:
            return
        conversation = self._session.conversation(conversation_id)
        messages, context = conversation.chat_messages(), conversation.context()
        self._query_id = new_id()
        self._asked = form.choice
        self._is_live = form.is_live
        self.report = None
        self.progress.setValue(0)
        self.plot.show_report(None)
        self._say("", tr("Comparing…"))
        if self._is_live:
            self._bridge.send(
                Inspect(conversation_id, messages, context, command_id=self._query_id)
            )
        else:
            self._bridge.send(
                CompareBackends(
                    conversation_id,
                    messages,
                    form.backend,
                    form.reference,
                    context,
                    command_id=self._query_id,
                )
            )
        self._show_busy()

    @Slot()
    def _on_form_changed(self) -> None:
        """A verdict must not stand under a question to which it is no answer."""
        if self._asked and not self.is_busy and self.form.choice != self._asked:
            self._asked = ()
            self.report = None
            self.plot.show_report(None)
            self._say("", "")
        self._show_busy()

    @Slot()
    def cancel(self) -> None:
        """Ends the comparison early."""
        if self.is_busy:
            self._bridge.send(CancelQuery(self._query_id))

    # --- what the engine tells ---

    @Slot(object)
    def _on_bridge_engine_event(self, event: Event) -> None:
        if not self.is_busy:
            return
        match event:
            case QueryProgress(query_id=self._query_id):
                self.progress.setValue(round(event.fraction * 1000))
            case ParityReport(command_id=self._query_id):
                self._finish(event)
            case CommandFailed(command_id=self._query_id):
                self._query_id = ""
                is_cancelled = event.error.code == _CANCELLED
                text = tr("Cancelled.") if is_cancelled else error_words(event.error)
                self._say("" if is_cancelled else tr("It could not be compared"), text)
                self._show_busy()

    def _finish(self, report: ParityReport) -> None:
        self._query_id = ""
        self.report = report
        self.plot.show_report(report)
        heading = tr("✓ Equal") if report.within_bound else tr("✕ Different")
        info = self._session.model_state.info
        dtype = "" if info is None else tr("Computed in {dtype}.", dtype=info.dtype)
        self._say(heading, f"{words.verdict(report, live=self._is_live)} {dtype}".strip())
        # The conversation may have been closed meanwhile: the form then says another.
        self._on_form_changed()

    # --- showing ---

    def _say(self, heading: str, text: str) -> None:
        self.heading.setText(heading)
        self.heading.setVisible(bool(heading))
        self.verdict.setText(text)

    @Slot()
    def _show_busy(self) -> None:
        self._had_focus = self.compare_button.hasFocus() or self.cancel_button.hasFocus()
        is_ready = self._session.model_state.status is ModelStatus.READY
        has_one = bool(self.form.conversation_id)
        self.form.set_busy(self.is_busy)
        can_ask = is_ready and has_one and not self.form.asks_nothing
        self.compare_button.setEnabled(can_ask and not self.is_busy)
        self.cancel_button.setEnabled(self.is_busy)
        self._keep_focus()
        self.progress.setVisible(self.is_busy)
        if self.is_busy or self.report is not None:
            return
        if not is_ready:
            self._say("", tr("Load a model first."))
        elif not has_one:
            self._say("", tr("Ask something first: there is no conversation with messages yet."))
        elif self.form.asks_nothing:
            self._say("", tr("Choose two different ways."))
        elif not self.verdict.text() or self.verdict.text() in self._hints():
            self._say("", tr("Choose a conversation and compare."))

    def _keep_focus(self) -> None:
        """The keyboard goes from the button that is no longer of use to the other."""
        if self._had_focus:
            button = self.cancel_button if self.is_busy else self.compare_button
            button.setFocus(Qt.FocusReason.OtherFocusReason)

    def _hints(self) -> tuple[str, ...]:
        return (
            tr("Load a model first."),
            tr("Ask something first: there is no conversation with messages yet."),
            tr("Choose two different ways."),
        )

    @Slot(int)
    def _on_plot_layer_chosen(self, index: int) -> None:
        report = self.report
        text = "" if report is None or index < 0 else words.layer(report, index)
        self.layer.setText(text)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.form.fill()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        # A minimised window is hidden by the system and comes back.
        if not event.spontaneous():
            self.cancel()
