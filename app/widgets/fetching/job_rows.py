"""The list of fetches: a row each, with how far it is and what can be done with it."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QMessageBox,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.fetching.queue import ACTIVE, JobView
from app.fetching.run import State
from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.buttons import IconButton
from app.widgets.fetching.service import FetchService
from app.widgets.fetching.words import job_title, job_words
from app.widgets.library.words import size_words

_PARTS = 1000
_ROOM = 236
_TICK_MS = 1000


class JobRow(QFrame):
    """One fetch."""

    load_requested = Signal(str)

    def __init__(self, service: FetchService, themes: ThemeManager, view: JobView) -> None:
        super().__init__()
        self._service = service
        self._view = view
        self._job_id = view.job.job_id
        self.setProperty("role", "card")
        self.title = _plain_label()
        self.status = _plain_label()
        self.status.setWordWrap(True)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setRange(0, _PARTS)
        name = job_title(view)
        self.bar.setAccessibleName(tr("Progress of {name}", name=name))
        self.load_button = QPushButton(tr("Load"))
        self.load_button.setAccessibleName(tr("Load {name}", name=name))
        self.pause_button = IconButton(themes, "pause", tr("Pause {name}", name=name))
        self.resume_button = IconButton(themes, "play", tr("Go on with {name}", name=name))
        self.cancel_button = IconButton(themes, "close", tr("Stop fetching {name}", name=name))
        self.title.setText(name)
        self.load_button.clicked.connect(self._on_load_clicked)
        self.pause_button.clicked.connect(self._on_pause_clicked)
        self.resume_button.clicked.connect(self._on_resume_clicked)
        self.cancel_button.clicked.connect(self._on_cancel_clicked)
        self._lay_out()
        self.show_view(view)

    def _lay_out(self) -> None:
        words = QVBoxLayout()
        words.setSpacing(4)
        for widget in (self.title, self.bar, self.status):
            words.addWidget(widget)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 8, 8)
        row.setSpacing(4)
        row.addLayout(words, 1)
        row.addSpacing(8)
        for button in (
            self.load_button,
            self.pause_button,
            self.resume_button,
            self.cancel_button,
        ):
            row.addWidget(button)

    def show_view(self, view: JobView) -> None:
        """How the fetch is now."""
        self._view = view
        state = view.state
        is_over = state is State.DONE
        self.bar.setVisible(not is_over)
        total = max(view.job.total_bytes, 1)
        self.bar.setValue(round(_PARTS * view.done_bytes / total))
        self.load_button.setVisible(is_over)
        self.pause_button.setVisible(state in ACTIVE)
        self.resume_button.setVisible(
            state in (State.PAUSED, State.FAILED, State.WAITING, State.OFFLINE)
        )
        self.cancel_button.set_name(
            tr("Take {name} out of the list", name=job_title(view))
            if is_over
            else tr("Stop fetching {name}", name=job_title(view))
        )
        waits = state in (State.WAITING, State.OFFLINE)
        self.resume_button.set_name(
            tr("Try {name} now", name=job_title(view))
            if waits or state is State.FAILED
            else tr("Go on with {name}", name=job_title(view))
        )
        self._set_tone("error" if state is State.FAILED else "warning" if waits else "muted")
        self.status.setText(job_words(view, self._service.host, time.monotonic()))

    @property
    def moves(self) -> bool:
        """Whether its words change with time alone."""
        return self._view.state in (State.WAITING, State.FETCHING)

    def _set_tone(self, tone: str) -> None:
        if self.status.property("tone") != tone:
            self.status.setProperty("tone", tone)
            self.status.style().unpolish(self.status)
            self.status.style().polish(self.status)

    def _on_load_clicked(self) -> None:
        self.load_requested.emit(str(self._view.path))

    def _on_pause_clicked(self) -> None:
        had_focus = self.pause_button.hasFocus()
        self._service.queue.pause(self._job_id)
        if had_focus:
            self.resume_button.show()
            self.resume_button.setFocus()

    def _on_resume_clicked(self) -> None:
        had_focus = self.resume_button.hasFocus()
        self._service.queue.resume(self._job_id)
        if had_focus:
            self.pause_button.show()
            self.pause_button.setFocus()

    def _on_cancel_clicked(self) -> None:
        if self._view.state is State.DONE:
            self._service.queue.dismiss(self._job_id)
        elif self._view.done_bytes == 0:
            self._service.queue.cancel(self._job_id, keep_part=False)
        else:
            self.ask_cancel()

    def ask_cancel(self) -> QMessageBox:
        """Asks whether to keep what has been fetched. The fetch goes on meanwhile."""
        box = QMessageBox(self.window())
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setWindowTitle(tr("Stop fetching"))
        box.setText(tr("Stop fetching {name}?", name=job_title(self._view)))
        size = size_words(self._view.done_bytes)
        box.setInformativeText(
            tr(
                "{size} of it are here. If they are kept, fetching it again goes on there.",
                size=size,
            )
        )
        keep = box.addButton(tr("Keep the part"), QMessageBox.ButtonRole.AcceptRole)
        delete = box.addButton(tr("Delete the part"), QMessageBox.ButtonRole.DestructiveRole)
        stay = box.addButton(tr("Go on fetching"), QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(stay)
        box.setEscapeButton(stay)
        queue, job_id = self._service.queue, self._job_id
        keep.clicked.connect(lambda: queue.cancel(job_id, keep_part=True))
        delete.clicked.connect(lambda: queue.cancel(job_id, keep_part=False))
        box.open()
        return box


class JobList(QWidget):
    """All fetches; hidden while there are none. ``load_requested(path)``: of one that is done."""

    load_requested = Signal(str)

    def __init__(
        self, service: FetchService, themes: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._service = service
        self._themes = themes
        self._rows: dict[str, JobRow] = {}
        heading = QLabel(tr("Fetches"))
        heading.setProperty("role", "heading")
        self._inside = QWidget()
        self._column = QVBoxLayout(self._inside)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        self.area = QScrollArea()
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setWidgetResizable(True)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setWidget(self._inside)
        self.area.setAccessibleName(tr("Fetches"))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(heading)
        column.addWidget(self.area)
        self._timer = QTimer(self)
        self._timer.setInterval(_TICK_MS)
        self._timer.timeout.connect(self._on_timer_timeout)
        self.refresh()

    def rows(self) -> list[JobRow]:
        """In the order in which they are shown."""
        return list(self._rows.values())

    def refresh(self) -> None:
        """Shows the fetches as they are now."""
        # What runs or waits is seen first.
        views = sorted(self._service.jobs(), key=lambda view: view.state is State.DONE)
        ids = [view.job.job_id for view in views]
        if ids != list(self._rows):
            self._arrange(views)
        for view in views:
            self._rows[view.job.job_id].show_view(view)
        self.setVisible(bool(views))
        self._fit_height()
        self._update_timer()

    def _arrange(self, views: list[JobView]) -> None:
        old, self._rows = self._rows, {}
        for view in views:
            row = old.pop(view.job.job_id, None)
            if row is None:
                row = JobRow(self._service, self._themes, view)
                row.load_requested.connect(self.load_requested)
            self._rows[view.job.job_id] = row
            # Puts a row that is there already into its new place.
            self._column.addWidget(row)
            # At once, so that it counts for the height.
            row.show()
        for gone in old.values():
            gone.hide()
            self._column.removeWidget(gone)
            gone.deleteLater()

    def _fit_height(self) -> None:
        """As high as its rows, up to a limit."""
        self._column.activate()
        width = self.area.viewport().width()
        wanted = self._column.heightForWidth(width) if width > 0 else 0
        self.area.setFixedHeight(min(max(wanted, self._column.sizeHint().height()), _ROOM))

    def _update_timer(self) -> None:
        if self.isVisible() and any(row.moves for row in self._rows.values()):
            if not self._timer.isActive():
                self._timer.start()
        else:
            self._timer.stop()

    def _on_timer_timeout(self) -> None:
        self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._fit_height()
        self._update_timer()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()


def _plain_label() -> QLabel:
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label
