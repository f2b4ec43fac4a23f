"""How fast the engine goes, and recording: the controls above the live pool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QVBoxLayout, QWidget

from app.bridge import Bridge
from app.cache_panel.parts import WrappedLabel, plain_label
from app.cache_panel.recorder import Recorder
from app.cache_panel.units import rate_words
from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.buttons import IconButton
from engine.api.commands import PauseEngine, ResumeEngine, SetRate, StepEngine
from engine.api.events import EngineStatusChanged

RATES: tuple[float | None, ...] = (None, 30.0, 10.0, 5.0, 2.0, 1.0, 0.5)


class PaceBar(QWidget):
    """Pause and go on, one step, a rate, record. Shows what the engine tells, not what was asked.

    ``is_paused`` and ``steps_per_s`` (None: no limit) are as the engine told last; ``state_label``,
    which the owner puts somewhere, says so in a word.
    """

    def __init__(
        self,
        bridge: Bridge,
        themes: ThemeManager,
        recorder: Recorder,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.is_paused = False
        self.steps_per_s: float | None = None
        self._bridge = bridge
        self._recorder = recorder
        self._has_model = False
        self.pause_button = IconButton(themes, "pause", tr("Pause the engine"))
        self.step_button = IconButton(themes, "step", tr("Run one step, then pause"))
        self.record_button = IconButton(themes, "record", tr("Record to a file"), token="error")
        self.rate_box = QComboBox()
        self.rate_box.setAccessibleName(tr("Speed of the engine"))
        self.rate_box.setToolTip(tr("Speed of the engine"))
        self.rate_box.view().setAccessibleName(tr("Speed of the engine"))
        for rate in RATES:
            self.rate_box.addItem(rate_words(rate), rate)
        self.state_label = plain_label(tone="warning")
        # Shown without a parent it would be a window.
        self.state_label.setParent(self)
        self.state_label.hide()
        self.note = WrappedLabel(1, "muted")
        self.note.hide()
        self._lay_out()
        self.pause_button.clicked.connect(self._on_pause_clicked)
        self.step_button.clicked.connect(self._on_step_clicked)
        self.rate_box.activated.connect(self._on_rate_activated)
        self.record_button.clicked.connect(self._on_record_clicked)
        recorder.changed.connect(self._on_recorder_changed)
        bridge.status_changed.connect(self._on_bridge_status_changed)
        if bridge.latest_status is not None:
            # A new panel of an engine that was slowed down or paused in another one.
            self._on_bridge_status_changed(bridge.latest_status)
        self.set_model_present(False)

    def _lay_out(self) -> None:
        self._row = row = QHBoxLayout()
        row.setSpacing(4)
        for button in (self.pause_button, self.step_button):
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            row.addWidget(button)
        row.addWidget(self.rate_box)
        row.addStretch(1)
        self.record_button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        row.addWidget(self.record_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(row)
        layout.addWidget(self.note)

    def add_tools(self, tools: Sequence[QWidget]) -> None:
        """Puts widgets behind the choice of the rate."""
        for tool in tools:
            # Before the room in the middle and the button at the end.
            self._row.insertWidget(self._row.count() - 2, tool)

    def set_model_present(self, present: bool) -> None:
        """Without a pool nothing can be recorded."""
        self._has_model = present
        self._on_recorder_changed()

    def record_to(self, path: str) -> None:
        """Begins a recording of the pool from now on."""
        snapshot = self._bridge.latest_snapshot()
        if path and snapshot is not None and self._has_model:
            self._recorder.start(Path(path), snapshot)

    # --- what the user does ---

    @Slot()
    def _on_pause_clicked(self) -> None:
        self._bridge.send(ResumeEngine() if self.is_paused else PauseEngine())

    @Slot()
    def _on_step_clicked(self) -> None:
        if not self.is_paused:
            self._bridge.send(PauseEngine())
        self._bridge.send(StepEngine(1))

    @Slot(int)
    def _on_rate_activated(self, index: int) -> None:
        self._bridge.send(SetRate(self.rate_box.itemData(index)))

    @Slot()
    def _on_record_clicked(self) -> None:
        if self._recorder.is_recording:
            self._recorder.stop()
            return
        dialog = QFileDialog(self, tr("Record the cache to a file"))
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters([tr("Cache recordings (*.ndjson)"), tr("All files (*)")])
        dialog.setDefaultSuffix("ndjson")
        dialog.selectFile("cache.ndjson")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.record_to)
        dialog.open()

    # --- what the others tell ---

    @Slot(object)
    def _on_bridge_status_changed(self, status: EngineStatusChanged) -> None:
        self._show_pace(status.paused, status.steps_per_s)

    def _show_pace(self, paused: bool, steps_per_s: float | None) -> None:
        self.is_paused, self.steps_per_s = paused, steps_per_s
        if paused:
            self.pause_button.set_icon("play", "text")
            self.pause_button.set_name(tr("Let the engine go on"))
        else:
            self.pause_button.set_icon("pause", "text")
            self.pause_button.set_name(tr("Pause the engine"))
        self.state_label.setText(tr("Paused") if paused else "")
        self.state_label.setVisible(paused)
        index = self.rate_box.findData(steps_per_s)
        if index < 0:
            # Another client chose a rate that is not in the list.
            self.rate_box.addItem(rate_words(steps_per_s), steps_per_s)
            index = self.rate_box.count() - 1
        self.rate_box.setCurrentIndex(index)

    @Slot()
    def _on_recorder_changed(self) -> None:
        recorder = self._recorder
        self.record_button.setEnabled(self._has_model or recorder.is_recording)
        if recorder.is_recording:
            self.record_button.set_icon("stop", "error")
            self.record_button.set_name(tr("Stop recording"))
        else:
            self.record_button.set_icon("record", "error")
            self.record_button.set_name(tr("Record to a file"))
        text = _recorder_words(recorder)
        self.note.setProperty("tone", "error" if recorder.trouble else "muted")
        self.note.style().unpolish(self.note)
        self.note.style().polish(self.note)
        self.note.show_text(text)
        self.note.setVisible(bool(text))


def _recorder_words(recorder: Recorder) -> str:
    if recorder.trouble or recorder.path is None:
        return recorder.trouble
    if recorder.is_recording:
        return tr("Recording to {name}", name=recorder.path.name)
    return tr("{n} events recorded to {path}", n=f"{recorder.num_events:,}", path=recorder.path)
