"""Printing and PDF files: the dialogs, and the job that runs while the window goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QObject, QStandardPaths, Qt, QTimer
from PySide6.QtGui import QPagedPaintDevice, QPdfWriter
from PySide6.QtPrintSupport import QPrintDialog, QPrinter
from PySide6.QtWidgets import QDialog, QFileDialog, QWidget

from app.exporting_files import ExportFileError
from app.i18n import tr
from app.session import Session
from app.session_state import Notice, Severity
from app.widgets.transcript.printing import Printout, paper
from app.widgets.transcript.view import Transcript
from app.widgets.transfer_bar import TransferBar
from engine.api.files import discard, replace_file

SLICE_S = 0.01
_WAIT_MS = 20
_DOTS_PER_INCH = 300


class PrintJobs(QObject):
    """One job at a time. ``bar`` shows how far it is, and stops it."""

    def __init__(self, session: Session, window: QWidget) -> None:
        super().__init__(window)
        self._session = session
        self._window = window
        self.bar = TransferBar()
        self.bar.cancelled.connect(self.stop)
        self._work: Iterator[float] | None = None
        self._done = 0.0
        self._finish: Callable[[bool], None] = lambda _ended: None
        app = QCoreApplication.instance()
        if app is not None:
            app.aboutToQuit.connect(self.stop)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._go_on)

    @property
    def is_busy(self) -> bool:
        return self._work is not None

    def choose_pdf(self, view: Transcript, title: str, name: str) -> QFileDialog:
        """Asks where to write the PDF."""
        dialog = QFileDialog(self._window, tr("Export as PDF"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter(tr("PDF (*.pdf)"))
        dialog.setDefaultSuffix(".pdf")
        place = QStandardPaths.StandardLocation.DocumentsLocation
        dialog.setDirectory(QStandardPaths.writableLocation(place))
        dialog.selectFile(name)
        dialog.fileSelected.connect(lambda path: self.write_pdf(view, title, Path(path)))
        dialog.open()
        return dialog

    def choose_printer(self, view: Transcript, title: str) -> QDialog:
        """Asks for printer, paper and pages."""
        printer = QPrinter(QPrinter.PrinterMode.HighResolution)
        printer.setPageLayout(paper())
        printer.setDocName(title)
        dialog = QPrintDialog(printer, self._window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(lambda *_printer: self.print_to(view, title, printer))
        dialog.setWindowModality(Qt.WindowModality.WindowModal)
        dialog.show()
        return dialog

    def print_to(self, view: Transcript, title: str, printer: QPagedPaintDevice) -> bool:
        """Prints on ``printer``. False if something else is being printed."""
        if self._is_refused():
            return False
        self._begin(view, title, printer, lambda _ended: None)
        return True

    def write_pdf(self, view: Transcript, title: str, path: Path) -> bool:
        """Writes the whole file or none; a notice says which. False if something else runs."""
        if self._is_refused():
            return False
        partial = path.with_name(f"{path.name}.partial")
        try:
            partial.write_bytes(b"")
        except OSError as error:
            self._refuse(path, error)
            return False
        writer = QPdfWriter(str(partial))
        writer.setResolution(_DOTS_PER_INCH)
        writer.setPageLayout(paper())
        writer.setTitle(title)
        writer.setCreator("Quire")
        self._begin(view, title, writer, lambda ended: self._finish_pdf(path, ended))
        return True

    def stop(self) -> None:
        """Gives up; a file is not left behind."""
        self._end(False)

    def _begin(
        self,
        view: Transcript,
        title: str,
        device: QPagedPaintDevice,
        finish: Callable[[bool], None],
    ) -> None:
        self._finish = finish
        self._work = Printout(view.items, title).run(device)
        self.bar.begin(tr("Laying out {title}", title=title))
        self._timer.start(0)

    def _is_refused(self) -> bool:
        if self._work is None:
            return False
        words = tr("Another conversation is still being printed.")
        self._session.report("print_running", words, severity=Severity.WARNING)
        return True

    def _go_on(self) -> None:
        work, ends = self._work, time.perf_counter() + SLICE_S
        while work is not None and time.perf_counter() < ends:
            done = next(work, None)
            if done is None:
                self._end(True)
                return
            if done == self._done:
                # A formula is being drawn on its thread.
                self._timer.start(_WAIT_MS)
                return
            self._done = done
            self.bar.set_part(done)
        if work is not None:
            self._timer.start(0)

    def _end(self, ended: bool) -> None:
        if self._work is None:
            return
        self._timer.stop()
        # Closing it ends its painter, and so the file.
        work, self._work = self._work, None
        close = getattr(work, "close", None)
        if close is not None:
            close()
        self.bar.end()
        self._finish(ended)

    def _finish_pdf(self, path: Path, ended: bool) -> None:
        partial = path.with_name(f"{path.name}.partial")
        if not ended:
            discard(partial)
            return
        try:
            if not partial.read_bytes().rstrip().endswith(b"%%EOF"):
                raise OSError(tr("the disk may be full"))
            replace_file(partial, path)
        except OSError as error:
            discard(partial)
            self._refuse(path, error)
            return
        words = tr("Exported to {path}.", path=path)
        self._session.report("exported", words, severity=Severity.INFO)

    def _refuse(self, path: Path, error: OSError) -> None:
        reason = error.strerror or str(error)
        message = f"{path.name} cannot be written: {reason}"
        problem = ExportFileError(message, path=str(path), reason=reason)
        self._session.notice_raised.emit(Notice(Severity.ERROR, problem.info()))
