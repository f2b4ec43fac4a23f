"""The badge that says whether the pool adds up, and hands out the facts when it does not."""

from __future__ import annotations

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QToolButton, QToolTip, QWidget

from app.cache_panel.pool_grid import as_tool_tip
from app.i18n import tr


class Badge(QToolButton):
    """Quiet while nothing is wrong; red with a word otherwise. A click copies the facts."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._faults: tuple[str, ...] | None = None
        self.setProperty("kind", "badge")
        self.clicked.connect(self._on_clicked)
        self.show_faults([])

    @property
    def faults(self) -> list[str]:
        """What is wrong, one fact a line; empty for nothing."""
        return list(self._faults or ())

    def show_faults(self, faults: list[str]) -> None:
        """Shows these facts, or that there are none."""
        if tuple(faults) == self._faults:
            return
        self._faults = tuple(faults)
        if faults:
            self.setText(tr("✕ Inconsistent"))
            facts = "\n".join([*faults, tr("Click to copy this for a report.")])
            self.setToolTip(as_tool_tip(facts))
        else:
            self.setText(tr("✓ Consistent"))
            self.setToolTip(tr("Events, counts and block tables fit together."))
        self.setAccessibleName(self.text())
        self.setAccessibleDescription("\n".join(faults))
        # The style sheet looks at the property only when asked to.
        self.setProperty("tone", "error" if faults else "muted")
        self.style().unpolish(self)
        self.style().polish(self)
        self.updateGeometry()

    def _on_clicked(self) -> None:
        if self.faults:
            QGuiApplication.clipboard().setText("\n".join(self.faults))
            place = self.mapToGlobal(self.rect().bottomLeft())
            QToolTip.showText(place, tr("Copied."), self)
