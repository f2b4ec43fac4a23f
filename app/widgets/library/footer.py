"""Below the models: folders that cannot be read, and when the memory is freed."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.i18n import tr, tr_n
from app.library.scan import DENIED, MISSING
from app.session import Session
from app.settings import Settings
from app.widgets.calm_combo import CalmComboBox

_MINUTES = (0, 5, 15, 30, 60, 240)


class Footer(QWidget):
    """Changes the same setting as the settings window."""

    def __init__(self, session: Session, settings: Settings) -> None:
        super().__init__()
        self._session = session
        self._settings = settings
        self.problems = QLabel()
        self.problems.setTextFormat(Qt.TextFormat.PlainText)
        self.problems.setWordWrap(True)
        self.problems.setProperty("tone", "warning")
        self.now = QLabel()
        self.now.setTextFormat(Qt.TextFormat.PlainText)
        self.now.setProperty("tone", "muted")
        name = QLabel(tr("Free the memory when idle"))
        name.setProperty("tone", "muted")
        self.idle = CalmComboBox()
        self.idle.setObjectName("model idle")
        self.idle.setAccessibleName(tr("Free the memory when idle"))
        self.idle.activated.connect(self._on_idle_activated)
        name.setBuddy(self.idle)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.now, 1)
        row.addWidget(name)
        row.addWidget(self.idle)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.problems)
        column.addLayout(row)

    def refresh(self) -> None:
        """Fits everything to the library and the settings."""
        self.problems.setText("\n".join(self._problems()))
        self.problems.setVisible(bool(self.problems.text()))
        minutes = self._settings.values.idle_unload_minutes
        choices = sorted({*_MINUTES, minutes})
        if choices != [self.idle.itemData(n) for n in range(self.idle.count())]:
            self.idle.clear()
            for each in choices:
                words = tr_n("after {n} minute", "after {n} minutes", each)
                self.idle.addItem(words if each else tr("never"), each)
        self.idle.setCurrentIndex(self.idle.findData(minutes))
        state = self._session.model_state
        asleep = tr("The model's memory is free; the next message loads it again.")
        self.now.setText(asleep if state.is_asleep else "")

    def _problems(self) -> list[str]:
        said = []
        reasons = {MISSING: tr("it is not there"), DENIED: tr("access is denied")}
        for scan in self._session.library.scans:
            is_own = scan.folder == self._session.library.models_dir
            if scan.problem and not is_own:
                said.append(
                    tr(
                        "The folder {folder} cannot be read: {reason}. It stays in the list.",
                        folder=scan.folder,
                        reason=reasons.get(scan.problem, scan.problem),
                    )
                )
            elif scan.is_cut:
                said.append(
                    tr(
                        "{folder} has more folders than were looked into; choose one of them "
                        "instead.",
                        folder=scan.folder,
                    )
                )
        return said

    def _on_idle_activated(self, _index: int) -> None:
        self._session.change_settings(idle_unload_minutes=self.idle.currentData())
