"""What the inspector is asked: a conversation, a mode, two backends."""

from __future__ import annotations

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QComboBox, QGridLayout, QLabel, QWidget

from app.cache_panel.parts import plain_label
from app.i18n import tr
from app.parity import words
from app.session import Session
from app.widgets.words import shown_title

BACKENDS_MODE, LIVE_MODE = "backends", "live"


class ParityForm(QWidget):
    """Follows the open conversations that have messages. ``changed()``: another choice."""

    changed = Signal()

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.conversation_box = _box(tr("Conversation"))
        self.mode_box = _box(tr("What is compared"))
        self.mode_box.addItem(tr("Two ways to compute attention"), BACKENDS_MODE)
        self.mode_box.addItem(tr("The cache as it is now, with a recomputation"), LIVE_MODE)
        self.backend_box = _box(tr("Attention"))
        self.reference_box = _box(tr("Reference"))
        for box in (self.backend_box, self.reference_box):
            for name in words.BACKENDS:
                box.addItem(words.backend(name), name)
        self.reference_box.setCurrentIndex(self.reference_box.findData("dense"))
        self._labels: dict[QComboBox, QLabel] = {}
        self._lay_out()
        for signal in (
            session.conversation_added,
            session.conversation_closed,
            session.conversation_changed,
            session.message_added,
        ):
            signal.connect(self._on_session_conversations_changed)
        for box in self._labels:
            box.currentIndexChanged.connect(self._on_box_changed)
        self.fill()

    def _lay_out(self) -> None:
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(8)
        boxes = (self.conversation_box, self.mode_box, self.backend_box, self.reference_box)
        for row, box in enumerate(boxes):
            label = plain_label(box.accessibleName())
            label.setBuddy(box)
            self._labels[box] = label
            grid.addWidget(label, row, 0)
            grid.addWidget(box, row, 1)
        grid.setColumnStretch(1, 1)

    @property
    def conversation_id(self) -> str:
        """The chosen conversation, or empty."""
        return self.conversation_box.currentData() or ""

    @property
    def is_live(self) -> bool:
        """Whether the present cache is asked about, and not two backends."""
        return bool(self.mode_box.currentData() == LIVE_MODE)

    @property
    def backend(self) -> str:
        """The backend that is judged."""
        return str(self.backend_box.currentData())

    @property
    def reference(self) -> str:
        """The backend that it is judged by."""
        return str(self.reference_box.currentData())

    @property
    def choice(self) -> tuple[str, ...]:
        """All that a report depends on."""
        if self.is_live:
            return self.conversation_id, LIVE_MODE
        return self.conversation_id, BACKENDS_MODE, self.backend, self.reference

    @property
    def asks_nothing(self) -> bool:
        """Whether a way would be compared with itself, which is always equal."""
        return not self.is_live and self.backend == self.reference

    def set_busy(self, busy: bool) -> None:
        """Nothing can be chosen while the engine is at it."""
        for box in (self.backend_box, self.reference_box):
            box.setEnabled(not self.is_live and not busy)
            self._labels[box].setEnabled(not self.is_live)
        for box in (self.conversation_box, self.mode_box):
            box.setEnabled(not busy)

    def fill(self) -> None:
        """Lists the conversations; the chosen one stays chosen."""
        session, box = self._session, self.conversation_box
        entries = [
            (i, f"{c.number} {shown_title(c.title)}")
            for i in session.conversation_ids()
            if (c := session.conversation(i)).messages
        ]
        before = [(box.itemData(i), box.itemText(i)) for i in range(box.count())]
        # An open list would close under the user's hand.
        if entries == before or box.view().isVisible():
            return
        chosen = box.currentData() or session.active_conversation_id
        box.blockSignals(True)
        box.clear()
        for conversation_id, text in entries:
            box.addItem(text, conversation_id)
        box.setCurrentIndex(max(0, box.findData(chosen)) if entries else -1)
        box.blockSignals(False)
        self.changed.emit()

    @Slot()
    def _on_session_conversations_changed(self) -> None:
        self.fill()

    @Slot()
    def _on_box_changed(self) -> None:
        self.changed.emit()


def _box(name: str) -> QComboBox:
    box = QComboBox()
    box.setAccessibleName(name)
    box.view().setAccessibleName(name)
    box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    return box
