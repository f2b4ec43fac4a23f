"""The page on which models are searched for and fetched."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QComboBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QPushButton,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from app.fetching.catalogue import Kind
from app.fetching.names import query_of
from app.i18n import tr, tr_n
from app.theme import ThemeManager
from app.widgets.fetching.job_rows import JobList
from app.widgets.fetching.repository_view import RepositoryView
from app.widgets.fetching.results import ResultDelegate, ResultModel
from app.widgets.fetching.service import FetchService
from app.widgets.fetching.token_dialog import TokenDialog
from app.widgets.fetching.words import error_words, kind_words

PROBE_MS = 15_000
"""How often a page that is seen looks whether the network is back."""

_LEAST_LEFT, _LEAST_RIGHT = 180, 330
_KINDS = (Kind.GGUF, Kind.SAFETENSORS, None)


class FetchPage(QWidget):
    """Search at the top, results at the left, the chosen model at the right, fetches below.

    ``model_fetched(path)``: a model is there. ``load_requested(path)``: the user wants it loaded.
    """

    model_fetched = Signal(str)
    load_requested = Signal(str)

    def __init__(
        self, service: FetchService, themes: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._service = service
        self._make_search()
        self.banner = OfflineBanner()
        self.model = ResultModel(self)
        self.list = QListView()
        self.list.setObjectName("fetch_results")
        self.list.setModel(self.model)
        self.list.setItemDelegate(ResultDelegate(themes, self.list))
        self.list.setAccessibleName(tr("Models found"))
        self.list.setUniformItemSizes(True)
        self.list.setMouseTracking(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.status = QLabel()
        self.status.setTextFormat(Qt.TextFormat.PlainText)
        self.status.setWordWrap(True)
        self.status.setProperty("tone", "muted")
        self.more_button = QPushButton(tr("More results"))
        self.more_button.setProperty("kind", "quiet")
        self.repository = RepositoryView(service, themes)
        self.jobs = JobList(service, themes)
        self._probe_timer = QTimer(self)
        self._probe_timer.setInterval(PROBE_MS)
        self._probe_timer.timeout.connect(service.probe)
        self._lay_out()
        self._connect(themes)
        self._on_service_findings_changed()
        self._on_service_offline_changed()

    def _make_search(self) -> None:
        findings = self._service.findings
        self.edit = QLineEdit(findings.text)
        self.edit.setObjectName("fetch_search")
        self._name_hub()
        self.edit.setClearButtonEnabled(True)
        self.edit.setMaxLength(200)
        self.kind = QComboBox()
        self.kind.setObjectName("fetch_kind")
        self.kind.setAccessibleName(tr("Form of the models"))
        for kind in _KINDS:
            self.kind.addItem(kind_words(kind))
        self.kind.setCurrentIndex(_KINDS.index(findings.kind))
        self.search_button = QPushButton(tr("Search"))
        self.search_button.setObjectName("fetch_search_button")
        self.token_button = QPushButton(tr("Access token…"))
        self.token_button.setObjectName("fetch_token")

    def _name_hub(self) -> None:
        host = self._service.host
        self.edit.setPlaceholderText(tr("Search {host}, or paste a model's address", host=host))
        self.edit.setAccessibleName(tr("Search models on {host}", host=host))

    def _on_service_hub_changed(self) -> None:
        self._name_hub()
        if self.isVisible():
            self._service.probe()
            self._service.look_for_token()

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.edit, 1)
        for widget in (self.kind, self.search_button, self.token_button):
            top.addWidget(widget)
        left = QWidget()
        left.setMinimumWidth(_LEAST_LEFT)
        found = QVBoxLayout(left)
        found.setContentsMargins(0, 0, 0, 0)
        found.setSpacing(4)
        found.addWidget(self.list, 1)
        foot = QHBoxLayout()
        foot.addWidget(self.status, 1)
        foot.addWidget(self.more_button)
        found.addLayout(foot)
        right = QWidget()
        right.setMinimumWidth(_LEAST_RIGHT)
        chosen = QVBoxLayout(right)
        chosen.setContentsMargins(16, 0, 0, 0)
        chosen.addWidget(self.repository)
        sides = QSplitter(Qt.Orientation.Horizontal)
        sides.setChildrenCollapsible(False)
        sides.addWidget(left)
        sides.addWidget(right)
        sides.setStretchFactor(0, 2)
        sides.setStretchFactor(1, 3)
        sides.setSizes([2 * _LEAST_RIGHT, 3 * _LEAST_RIGHT])
        sides.setProperty("kind", "panel")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        column.addLayout(top)
        column.addWidget(self.banner)
        column.addWidget(sides, 1)
        column.addWidget(self.jobs)

    def _connect(self, themes: ThemeManager) -> None:
        service = self._service
        self.edit.returnPressed.connect(self.search)
        self.search_button.clicked.connect(self.search)
        self.kind.activated.connect(self.search)
        self.token_button.clicked.connect(self.show_token)
        self.more_button.clicked.connect(service.search_more)
        self.banner.button.clicked.connect(service.probe)
        self.list.selectionModel().currentChanged.connect(self._on_list_current_changed)
        self.repository.load_requested.connect(self.load_requested)
        self.repository.token_requested.connect(self.show_token)
        self.jobs.load_requested.connect(self.load_requested)
        service.model_fetched.connect(self.model_fetched)
        service.findings_changed.connect(self._on_service_findings_changed)
        service.hub_changed.connect(self._on_service_hub_changed)
        service.jobs_changed.connect(self._on_service_jobs_changed)
        service.offline_changed.connect(self._on_service_offline_changed)
        themes.changed.connect(self.list.viewport().update)

    def sizeHint(self) -> QSize:
        return QSize(940, 620)

    def focus_search(self) -> None:
        """Puts the keyboard into the search field."""
        self.edit.setFocus(Qt.FocusReason.OtherFocusReason)
        self.edit.selectAll()

    def search(self) -> None:
        """Looks for what is typed; nothing typed shows what is fetched most."""
        if self._service.offline is None:
            text = query_of(self.edit.text())
            self._service.search(text, _KINDS[self.kind.currentIndex()])

    def show_token(self) -> TokenDialog:
        """Lets the user enter a token."""
        dialog = TokenDialog(self._service, self)
        dialog.open()
        return dialog

    def _on_list_current_changed(self, now: QModelIndex, _before: QModelIndex) -> None:
        result = self.model.row_at(now)
        if result is not None:
            self._service.choose(result.repo_id)

    def _on_service_findings_changed(self) -> None:
        findings = self._service.findings
        if not (findings.is_busy and not findings.results and self.model.rowCount()):
            # Of a new search the old results stay until the new ones are there.
            self.model.set_rows(findings.results)
        self.more_button.setVisible(bool(findings.next_url))
        self.more_button.setEnabled(not findings.is_busy)
        self.status.setText(self._status_words())
        here = self.model.index_of(self._service.shown.repo_id)
        if here.isValid() and not self.list.currentIndex().isValid():
            self.list.setCurrentIndex(here)

    def _status_words(self) -> str:
        findings = self._service.findings
        if findings.is_busy:
            return tr("Searching…")
        if findings.error is not None:
            return " ".join(error_words(findings.error))
        if not findings.is_done:
            return ""
        if not findings.results:
            return tr("No model has this name.")
        return tr_n("{n} model", "{n} models", len(findings.results))

    def _on_service_offline_changed(self) -> None:
        error = self._service.offline
        typed, pressed = self.edit.hasFocus(), self.banner.button.hasFocus()
        self.banner.show_error(None if error is None else error_words(error))
        for widget in (self.edit, self.kind, self.search_button):
            widget.setEnabled(error is None)
            widget.setToolTip("" if error is None else error_words(error)[0])
        # The keyboard goes with what can be done.
        if error is not None and typed:
            self.banner.button.setFocus(Qt.FocusReason.OtherFocusReason)
        elif error is None and pressed:
            self.edit.setFocus(Qt.FocusReason.OtherFocusReason)
        self._update_probing()

    def _on_service_jobs_changed(self) -> None:
        # Some times a second; a page that nobody sees has no work.
        if self.isVisible():
            self.jobs.refresh()
            self.repository.refresh_choices()

    def _update_probing(self) -> None:
        if self.isVisible() and self._service.offline is not None:
            self._probe_timer.start()
        else:
            self._probe_timer.stop()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        # The page is for the network alone: whoever opens it wants to know whether it is there.
        self._service.probe()
        self._service.look_for_token()
        self._on_service_jobs_changed()
        self._update_probing()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._probe_timer.stop()


class OfflineBanner(QFrame):
    """Says that the hub cannot be reached, and what that means."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "notice")
        self.setProperty("tone", "warning")
        self.label = QLabel()
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.label.setWordWrap(True)
        self.button = QPushButton(tr("Try again"))
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 8, 8)
        row.setSpacing(8)
        row.addWidget(self.label, 1)
        row.addWidget(self.button)
        self.hide()

    def show_error(self, words: tuple[str, str] | None) -> None:
        """(cause, what to do), or None to hide it."""
        self.setVisible(words is not None)
        if words is not None:
            self.label.setText(tr("Offline: {cause} {action}", cause=words[0], action=words[1]))
