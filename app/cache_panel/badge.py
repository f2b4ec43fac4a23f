"""The badge that says whether the pool adds up, and hands out the facts when it does not."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu, QToolButton, QToolTip, QWidget

from app.cache_panel.parts import as_tool_tip
from app.i18n import tr


class Badge(QToolButton):
    """Quiet while nothing is wrong; red with a word otherwise: a click then offers the facts.

    ``offers_diagnostics``: also the application's diagnostics, by ``diagnostics_requested``.
    """

    diagnostics_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.offers_diagnostics = False
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
            facts = "\n".join([*faults, tr("Click for what can be done.")])
            self.setToolTip(as_tool_tip(facts))
        else:
            self.setText("✓")
            self.setToolTip(tr("Events, counts and block tables fit together."))
        self.setAccessibleName(self.text() if faults else tr("Consistent"))
        self.setAccessibleDescription("\n".join(faults))
        # The style sheet looks at the property only when asked to.
        self.setProperty("tone", "error" if faults else "muted")
        self.style().unpolish(self)
        self.style().polish(self)
        self.updateGeometry()

    def menu_of_help(self) -> QMenu:
        """What can be done about it."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(tr("Copy the facts"), self._copy)
        if self.offers_diagnostics:
            menu.addAction(tr("Diagnostics…"), self.diagnostics_requested.emit)
        return menu

    def _on_clicked(self) -> None:
        if self.faults:
            self.menu_of_help().popup(self.mapToGlobal(self.rect().bottomLeft()))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText("\n".join(self.faults))
        place = self.mapToGlobal(self.rect().bottomLeft())
        QToolTip.showText(place, tr("Copied."), self)
