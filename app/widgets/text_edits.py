"""What several text boxes have in common."""

from __future__ import annotations

from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QPlainTextEdit


def replace_text(edit: QPlainTextEdit, text: str) -> None:
    """Puts ``text`` in place of what the user wrote, who can undo it; ``setPlainText`` forgets."""
    cursor = QTextCursor(edit.document())
    cursor.select(QTextCursor.SelectionType.Document)
    cursor.insertText(text)
    edit.moveCursor(QTextCursor.MoveOperation.Start)
