"""Where models are looked for: folders that are watched, files that are opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QDir, Qt, Signal
from PySide6.QtWidgets import QFileDialog, QMenu, QPushButton, QWidget

from app.i18n import tr, tr_n
from app.library.places import model_of
from app.session import Session

_MAX_SHOWN = 60


class PlacesButton(QPushButton):
    """A menu of the watched folders. ``folder_wanted``: one more is to be chosen."""

    folder_wanted = Signal()

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(tr("Folders"), parent)
        self.setObjectName("model folders")
        self._session = session
        menu = QMenu(self)
        menu.aboutToShow.connect(self.fill)
        menu.setToolTipsVisible(True)
        self.setMenu(menu)

    def fill(self) -> None:
        """Makes the menu anew."""
        library, menu = self._session.library, self.menu()
        menu.clear()
        menu.addAction(tr("Add a folder…"), self.folder_wanted.emit)
        menu.addSeparator()
        first = menu.addMenu(_shown(library.models_dir))
        first.setToolTip(library.models_dir)
        first.addAction(tr("The model folder is always watched")).setEnabled(False)
        problems = {scan.folder: scan.problem for scan in library.scans if scan.problem}
        for folder in library.places.folders:
            text = _shown(folder)
            if folder in problems:
                text = tr("{folder} (cannot be read)", folder=text)
            part = menu.addMenu(text)
            stop = partial(library.remove_folder, folder)
            part.addAction(tr("Stop watching; its files stay"), stop)
        hidden = len(library.places.hidden)
        if hidden:
            menu.addSeparator()
            menu.addAction(
                tr_n("Show {n} removed model again", "Show {n} removed models again", hidden),
                library.show_all,
            )
        menu.addSeparator()
        menu.addAction(tr("Look again"), library.refresh)


def choose_folder(session: Session, parent: QWidget) -> QFileDialog:
    """Asks for a folder to watch."""
    dialog = _dialog(parent, tr("Add a folder of models"))
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    dialog.fileSelected.connect(session.library.add_folder)
    dialog.open()
    return dialog


def choose_model(session: Session, parent: QWidget, then: Callable[[str], object]) -> QFileDialog:
    """Asks for a model file; ``then`` gets its path once it is in the list."""
    dialog = _dialog(parent, tr("Open a model file"))
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    dialog.setNameFilters([tr("Model files (*.gguf *.safetensors)"), tr("All files (*)")])

    def on_selected(chosen: str) -> None:
        path = model_of(chosen)
        session.library.add_file(path)
        then(path)

    dialog.fileSelected.connect(on_selected)
    dialog.open()
    return dialog


def _dialog(parent: QWidget, title: str) -> QFileDialog:
    dialog = QFileDialog(parent, title)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return dialog


def _shown(folder: str) -> str:
    """The end of a path says more than its beginning; & would mark a key in a menu."""
    text = QDir.toNativeSeparators(folder).replace("&", "&&")
    return text if len(text) <= _MAX_SHOWN else f"…{text[-_MAX_SHOWN:]}"
