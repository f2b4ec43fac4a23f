"""What several text boxes have in common."""

from __future__ import annotations

from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QPlainTextEdit

# Ends of a paragraph, and of a line within one (Shift+Enter); Qt's own ends of a frame.
_LINE_ENDS = ("\u2029", "\u2028", "\ufdd0", "\ufdd1")


def written_text(edit: QPlainTextEdit) -> str:
    """What is in a text box, as it was typed or pasted: ``toPlainText`` would make ordinary spaces
    of the no-break spaces.
    """
    text = edit.document().toRawText()
    for line_end in _LINE_ENDS:
        text = text.replace(line_end, "\n")
    return text


def replace_text(edit: QPlainTextEdit, text: str) -> None:
    """Puts ``text`` in place of what the user wrote, who can undo it; ``setPlainText`` forgets."""
    cursor = QTextCursor(edit.document())
    cursor.select(QTextCursor.SelectionType.Document)
    cursor.insertText(text)
    edit.moveCursor(QTextCursor.MoveOperation.Start)
