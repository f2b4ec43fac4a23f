"""Buttons whose icons follow the theme."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import QSize
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QToolButton, QWidget

from app.theme import ThemeManager


class IconButton(QToolButton):
    """A button with only an icon; its name is what screen readers and tool tips say."""

    def __init__(
        self,
        themes: ThemeManager,
        icon: str,
        name: str,
        parent: QWidget | None = None,
        token: str = "text",
    ) -> None:
        super().__init__(parent)
        self._themes = themes
        self._icon = icon
        self._token = token
        self.setIconSize(QSize(18, 18))
        self.set_name(name)
        themes.changed.connect(self._update_icon)
        self._update_icon()

    def set_name(self, name: str) -> None:
        self.setToolTip(name)
        self.setAccessibleName(name)

    def set_icon(self, icon: str, token: str) -> None:
        """Another icon in the colour of ``token``."""
        self._icon, self._token = icon, token
        self._update_icon()

    def _update_icon(self) -> None:
        self.setIcon(self._themes.theme.icon(self._icon, self._token))


def plain_tip(text: str) -> str:
    """``text`` for a tool tip, which would otherwise take what looks like HTML for HTML."""
    lines = escape(text).replace("\n", "<br>")
    return f"<p>{lines}</p>"


def button_for(action: QAction, parent: QWidget | None = None) -> QToolButton:
    """A button that is one of the registry's actions: its icon, state and slot."""
    button = QToolButton(parent)
    button.setDefaultAction(action)
    button.setIconSize(QSize(18, 18))
    button.setAccessibleName(action.text())
    return button
