"""The chosen repository: its licence, what can be fetched of it, and the button that does."""

from __future__ import annotations

from enum import Enum, auto

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QListView,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.fetching.catalogue import Choice, Repository
from app.fetching.queue import ACTIVE
from app.i18n import tr, tr_n
from app.markdown_inline import visible_text
from app.theme import ThemeManager
from app.widgets.dialogs import confirm_link
from app.widgets.fetching.choice_list import ChoiceDelegate, ChoiceModel, ChoiceRow
from app.widgets.fetching.service import FetchService
from app.widgets.fetching.words import (
    error_words,
    fit_words,
    fits_disk,
    short_fit_words,
)
from app.widgets.library.words import size_words
from app.widgets.words import SEPARATOR

# Small, with little loss; in this order.
_USUAL = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0")


class Deed(Enum):
    """What the button does."""

    FETCH = auto()
    GO_ON = auto()
    LOAD = auto()
    NOTHING = auto()


class RepositoryView(QWidget):
    """``load_requested(path)``: of a model that is here. ``token_requested``: a token is needed."""

    load_requested = Signal(str)
    token_requested = Signal()

    def __init__(
        self, service: FetchService, themes: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._service = service
        self._deed = Deed.NOTHING
        self.title = _label("role", "heading")
        self.facts = _label("tone", "muted")
        self.page_button = QPushButton(tr("Model's page…"))
        self.page_button.setProperty("kind", "quiet")
        self.page_button.clicked.connect(self._on_page_clicked)
        self.gate = _GateNotice()
        self.gate.token_button.clicked.connect(self.token_requested)
        self.model = ChoiceModel(self)
        self.list = QListView()
        self.list.setObjectName("fetch_choices")
        self.list.setModel(self.model)
        self.list.setItemDelegate(ChoiceDelegate(themes, self.model, self.list))
        self.list.setAccessibleName(tr("What can be fetched"))
        self.list.setUniformItemSizes(True)
        self.list.setMouseTracking(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.selectionModel().currentChanged.connect(self._on_current_changed)
        self.list.activated.connect(self._on_list_activated)
        themes.changed.connect(self.list.viewport().update)
        self.note = _label("tone", "muted")
        self.fit = _label("tone", "muted")
        self.button = QPushButton()
        self.button.setObjectName("fetch_button")
        self.button.setProperty("kind", "primary")
        self.button.clicked.connect(self._on_button_clicked)
        self._lay_out()
        service.shown_changed.connect(self.refresh)
        service.token_changed.connect(self.refresh)
        self.refresh()

    def _lay_out(self) -> None:
        heading = QHBoxLayout()
        heading.addWidget(self.title, 1)
        heading.addWidget(self.page_button)
        last = QHBoxLayout()
        last.setSpacing(12)
        last.addWidget(self.fit, 1)
        last.addWidget(self.button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addLayout(heading)
        for widget in (self.facts, self.gate):
            column.addWidget(widget)
        column.addWidget(self.list, 1000)
        column.addWidget(self.note)
        column.addLayout(last)
        # Where there is no list, all stands at the top.
        column.addStretch(1)

    @property
    def choice(self) -> Choice | None:
        """The one that the button would fetch."""
        row = self.model.row_at(self.list.currentIndex())
        return None if row is None else row.choice

    def refresh(self) -> None:
        """Shows the repository as the service has it now."""
        shown = self._service.shown
        repository = shown.repository
        self.title.setText(visible_text(shown.repo_id))
        self.title.setVisible(bool(shown.repo_id))
        self.page_button.setVisible(repository is not None)
        self.list.setVisible(repository is not None and bool(repository.choices))
        self.gate.setVisible(self._is_shut())
        if repository is None:
            self._show_nothing()
            return
        licence = visible_text(repository.licence) or tr("no licence stated")
        downloads = tr_n("{n} download", "{n} downloads", repository.downloads)
        gated = tr("terms to accept") if repository.gated else ""
        parts = (tr("Licence: {licence}", licence=licence), downloads, gated)
        self.facts.setText(SEPARATOR.join(part for part in parts if part))
        self.facts.show()
        _set_note(self.note, _nothing_words(repository), "warning")
        self.refresh_choices()
        if not self.list.currentIndex().isValid():
            self.list.setCurrentIndex(self.model.index(self._best_row()))

    def _show_nothing(self) -> None:
        shown = self._service.shown
        self.model.set_rows(())
        self.facts.hide()
        self.fit.hide()
        self.button.hide()
        if shown.error is not None:
            _set_note(self.note, " ".join(error_words(shown.error)), "error")
            # Without its listing nobody knows whether it is gated; a token is what may help.
            self.gate.setVisible(shown.error.code in ("hub_gated", "hub_token_refused"))
        elif shown.repo_id:
            _set_note(self.note, tr("Looking what there is…"), "muted")
        else:
            words = tr("Search for a model, and choose one to see what there is to fetch.")
            _set_note(self.note, words, "muted")

    def refresh_choices(self) -> None:
        """What is here of each, and what fits, has changed."""
        repository = self._service.shown.repository
        if repository is None:
            return
        service = self._service
        memory = service.free_memory()
        rows = []
        for choice in repository.choices:
            disk = service.free_disk(repository, choice)
            there = service.bytes_there(repository, choice)
            fit = short_fit_words(choice, there, disk, memory)
            _words, tone = fit_words(choice, there, disk, memory)
            rows.append(ChoiceRow(choice, fit, tone))
        self.model.set_rows(rows)
        self._refresh_button()

    def _best_row(self) -> int:
        """What most people want: a usual quantisation that fits, else the largest that does."""
        rows = self.model.rows()
        fitting = [n for n, row in enumerate(rows) if row.tone == "muted"]
        for key in _USUAL:
            for n in fitting:
                if rows[n].choice.key == key:
                    return n
        usable = [n for n, row in enumerate(rows) if row.choice.unusable is None]
        return fitting[-1] if fitting else (usable or [0])[0]

    def _refresh_button(self) -> None:
        repository, choice = self._service.shown.repository, self.choice
        self.fit.setVisible(choice is not None)
        self.button.setVisible(choice is not None)
        if repository is None or choice is None:
            return
        service = self._service
        there = service.bytes_there(repository, choice)
        disk = service.free_disk(repository, choice)
        words, tone = fit_words(choice, there, disk, service.free_memory())
        _set_note(self.fit, words, tone)
        self._deed = self._deed_of(repository, choice)
        needs_room = self._deed in (Deed.FETCH, Deed.GO_ON)
        may = not needs_room or (fits_disk(choice, there, disk) and not self._is_shut())
        self.button.setText(_deed_words(self._deed, choice, there))
        self.button.setEnabled(may and self._deed is not Deed.NOTHING)

    def _deed_of(self, repository: Repository, choice: Choice) -> Deed:
        service = self._service
        view = service.view_of(repository, choice)
        if view is not None and view.state in ACTIVE:
            return Deed.NOTHING
        if service.is_there(repository, choice):
            return Deed.LOAD
        if choice.unusable is not None:
            return Deed.NOTHING
        return Deed.GO_ON if service.bytes_there(repository, choice) else Deed.FETCH

    def _is_shut(self) -> bool:
        """Whether a token is needed and none is there."""
        repository = self._service.shown.repository
        return repository is not None and repository.gated and not self._service.has_token

    def _on_current_changed(self, _now: QModelIndex, _before: QModelIndex) -> None:
        self._refresh_button()

    def _on_list_activated(self, _index: QModelIndex) -> None:
        if self.button.isEnabled():
            self._on_button_clicked()

    def _on_button_clicked(self) -> None:
        repository, choice = self._service.shown.repository, self.choice
        if repository is None or choice is None:
            return
        if self._deed is Deed.LOAD:
            self.load_requested.emit(str(self._service.path_of(repository, choice)))
            return
        error = self._service.fetch(repository, choice)
        if error is not None:
            _set_note(self.fit, " ".join(error_words(error.info())), "error")

    def _on_page_clicked(self) -> None:
        repository = self._service.shown.repository
        if repository is not None:
            confirm_link(repository.page, self)


class _GateNotice(QFrame):
    """Says that a model asks for terms and a token, and where to get it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "notice")
        self.setProperty("tone", "warning")
        label = _label("role", "")
        label.setText(
            tr(
                "The authors ask you to accept their terms on the model's page. After that an "
                "access token of your account opens it."
            )
        )
        self.token_button = QPushButton(tr("Access token…"))
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 8, 8)
        row.setSpacing(8)
        row.addWidget(label, 1)
        row.addWidget(self.token_button)


def _deed_words(deed: Deed, choice: Choice, there: int) -> str:
    if deed is Deed.LOAD:
        return tr("Load")
    if deed is Deed.GO_ON:
        return tr("Go on ({size} left)", size=size_words(choice.total_bytes - there))
    if deed is Deed.NOTHING and choice.unusable is None:
        return tr("Being fetched")
    return tr("Fetch ({size})", size=size_words(choice.total_bytes))


def _nothing_words(repository: Repository) -> str:
    """Why there is nothing to choose; empty if there is something."""
    if repository.choices:
        return ""
    if repository.has_pickles:
        return tr(
            "Its weights are pickled files only. They could run code, so Quire does not fetch them."
        )
    return tr("There is no GGUF and no safetensors model in it.")


def _set_note(label: QLabel, words: str, tone: str) -> None:
    """``words`` in the colour of ``tone``; hidden if there are none."""
    label.setText(words)
    label.setVisible(bool(words))
    if label.property("tone") != tone:
        label.setProperty("tone", tone)
        label.style().unpolish(label)
        label.style().polish(label)


def _label(name: str, value: str) -> QLabel:
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if value:
        label.setProperty(name, value)
    return label
