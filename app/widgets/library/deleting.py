"""Deleting a model's files, after a question."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QFile, Qt
from PySide6.QtWidgets import QMessageBox, QWidget

from app.i18n import tr
from app.library.entry import ModelEntry
from app.library.expanded import expanded_copies
from app.library.scan import files_of
from app.widgets.library.words import size_words

_LOG = logging.getLogger(__name__)


def ask_to_delete(
    entry: ModelEntry, models_dir: str, parent: QWidget, then: Callable[[], object]
) -> QMessageBox:
    """Asks, and moves the file or folder to the recycle bin, with what the engine expanded of it in
    ``models_dir``; ``then`` is called afterwards.
    """
    box = QMessageBox(parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setIcon(QMessageBox.Icon.Question)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setWindowTitle(tr("Delete a model"))
    size = size_words(entry.identity.file_bytes)
    box.setText(tr("Move “{name}” ({size}) to the recycle bin?", name=entry.name, size=size))
    is_folder = Path(entry.path).is_dir()
    words = entry.path
    if is_folder:
        words = tr("The folder with all that is in it: {path}", path=entry.path)
    elif entry.num_parts > 1:
        words = tr("All {n} parts: {path}", n=entry.num_parts, path=entry.path)
    box.setInformativeText(words)
    delete = box.addButton(tr("Move to the recycle bin"), QMessageBox.ButtonRole.DestructiveRole)
    keep = box.addButton(tr("Keep"), QMessageBox.ButtonRole.RejectRole)
    box.setDefaultButton(keep)
    box.setEscapeButton(keep)

    def on_delete() -> None:
        # Told by what is about to go.
        copies = expanded_copies(Path(entry.path), Path(models_dir))
        # The first part last: as long as it is there, the model is listed.
        if not all(move_to_trash(path) for path in reversed(files_of(Path(entry.path)))):
            _say_failed(entry, parent)
        else:
            # Of no use without the file, and in no list.
            for copy in copies:
                if not move_to_trash(copy):
                    _LOG.warning("the expanded copy was not moved to the recycle bin: %s", copy)
        then()

    delete.clicked.connect(on_delete)
    box.open()
    return box


def move_to_trash(path: Path) -> bool:
    """False if the system has no recycle bin for it, or refuses."""
    if not path.exists():
        return True
    moved = QFile.moveToTrash(str(path))
    return bool(moved[0] if isinstance(moved, tuple) else moved)


def _say_failed(entry: ModelEntry, parent: QWidget) -> None:
    box = QMessageBox(parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setIcon(QMessageBox.Icon.Warning)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setWindowTitle(tr("Delete a model"))
    box.setText(tr("“{name}” could not be moved to the recycle bin.", name=entry.name))
    box.setInformativeText(
        tr("It is where it was. Delete it in its folder: {path}", path=entry.path)
    )
    box.open()
