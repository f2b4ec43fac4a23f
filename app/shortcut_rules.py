"""Which keys an action may have."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence

from app.i18n import tr

_PLAIN_KEYS = {
    Qt.Key.Key_Escape,
    Qt.Key.Key_Pause,
    *(Qt.Key(Qt.Key.Key_F1.value + n) for n in range(24)),
}
_WRITING = (
    *("Return", "Enter", "Shift+Return", "Shift+Enter", "Tab", "Shift+Tab"),
    *("Ctrl+C", "Ctrl+V", "Ctrl+X", "Ctrl+A", "Ctrl+Z", "Ctrl+Y", "Ctrl+Shift+Z"),
)


def keys_text(keys: QKeySequence) -> str:
    """Keys as the platform writes them."""
    return keys.toString(QKeySequence.SequenceFormat.NativeText)


def problem_with(keys: QKeySequence, action: QAction, actions: Iterable[QAction]) -> str:
    """Why ``action`` cannot have ``keys``, in words; empty if it can."""
    if keys.isEmpty():
        return ""
    text = keys_text(keys)
    if keys.toString() in _WRITING:
        return tr("{keys} is needed for writing.", keys=text)
    stroke = keys[0]  # type: ignore[index] # the stubs lack it
    shift = Qt.KeyboardModifier.ShiftModifier
    has_modifier = bool(stroke.keyboardModifiers() & ~shift)
    if not has_modifier and stroke.key() not in _PLAIN_KEYS:
        return tr("{keys} alone could no longer be typed; add Ctrl or Alt.", keys=text)
    for other in actions:
        if other is not action and keys in other.shortcuts():
            name = other.text().rstrip("…").replace("&", "")
            return tr("{keys} belongs to “{action}”.", keys=text, action=name)
    return ""
