"""What screen readers get of an item in a painted list."""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtGui import QAccessible, QAccessibleInterface, QWindow


class ItemAccess(QAccessibleInterface):
    """An item without children; it cannot be renamed. A subclass says which, where and what."""

    def __init__(self, parent: QAccessibleInterface) -> None:
        super().__init__()
        self._list = parent

    def object(self) -> QObject | None:  # type: ignore[override]
        return None

    def window(self) -> QWindow | None:  # type: ignore[override]
        return self._list.window()

    def parent(self) -> QAccessibleInterface:
        return self._list

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        return None

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:  # type: ignore[override]
        return None

    def childCount(self) -> int:
        return 0

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        return -1

    def setText(self, kind: QAccessible.Text, text: str) -> None:
        """Nothing changes."""

    def role(self) -> QAccessible.Role:
        return QAccessible.Role.ListItem
