"""Fetching, as the window sees it: lives as long as the main window, whatever page is shown.

Nothing here waits: questions to the hub and to the keyring run on threads of their own. The network
is not used before the page is shown.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal

from app.fetching.catalogue import Choice, Kind, Repository, SearchPage, SearchResult
from app.fetching.errors import FetchError, HubUnreachableError
from app.fetching.hub import Hub, endpoint_of
from app.fetching.hub_client import host_of
from app.fetching.jobs import bytes_there, is_there, job_for
from app.fetching.partial import free_bytes
from app.fetching.queue import ACTIVE, FetchQueue, JobView
from app.fetching.run import Delays, State
from app.fetching.tokens import Keyring, Place, TokenStore, system_keyring
from engine.api.errors import ErrorInfo

_LOG = logging.getLogger(__name__)


class Question(StrEnum):
    """What can be asked; a later one of the same kind takes the place of an earlier."""

    SEARCH = "search"
    MORE = "more"
    REPOSITORY = "repository"
    PROBE = "probe"
    TOKEN = "token"


@dataclass(frozen=True, slots=True)
class Findings:
    """The search as it stands. ``next_url``: of more results, or empty."""

    text: str = ""
    kind: Kind | None = Kind.GGUF
    results: tuple[SearchResult, ...] = ()
    next_url: str = ""
    is_busy: bool = False
    is_done: bool = False
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """The chosen repository; ``repository`` is None while it is asked for, or after an error."""

    repo_id: str = ""
    repository: Repository | None = None
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True)
class _Reply:
    question: Question
    number: int
    value: object = field(repr=False)


class FetchService(QObject):
    """Searches, keeps the token, and holds the queue of fetches.

    ``model_fetched(path)``: a GGUF or a folder is there, whole and checked. ``jobs_changed``: the
    list of fetches or one of them is another; at most some times a second.
    """

    model_fetched = Signal(str)
    jobs_changed = Signal()
    findings_changed = Signal()
    shown_changed = Signal()
    offline_changed = Signal()
    token_changed = Signal()
    hub_changed = Signal()
    _replied = Signal(object)
    _queue_changed = Signal()
    _fetched = Signal(str)

    def __init__(
        self,
        models_dir: Path,
        endpoint: str = "",
        parent: QObject | None = None,
        find_keyring: Callable[[], Keyring | None] = system_keyring,
        delays: Delays | None = None,
    ) -> None:
        super().__init__(parent)
        self.findings = Findings()
        self.shown = Shown()
        self.offline: ErrorInfo | None = None
        """Why there is no connection; None if there is one, or if nobody has tried."""
        self.free_memory: Callable[[], int] = _available_memory
        self._find_keyring = find_keyring
        self._numbers: dict[Question, int] = {}
        self._pending = False
        self._is_closed = False
        self._take_hub(endpoint_of(endpoint))
        queued = Qt.ConnectionType.QueuedConnection
        self._replied.connect(self._on_replied, queued)
        self._queue_changed.connect(self._on_queue_changed, queued)
        self._fetched.connect(self.model_fetched, queued)
        self.queue = FetchQueue(
            self.hub, models_dir, self._tell_changed, self._tell_fetched, delays
        )

    @property
    def host(self) -> str:
        return self.hub.host

    def jobs(self) -> list[JobView]:
        """All fetches, in their order."""
        return self.queue.views()

    def active_count(self) -> int:
        """How many run or wait."""
        return sum(view.state in ACTIVE for view in self.jobs())

    def close(self, timeout_s: float = 2.0) -> bool:
        """Ends the fetching thread; what it has is kept. False if it did not end in time."""
        self._is_closed = True
        return self.queue.close(timeout_s)

    # --- the hub ---

    def use_endpoint(self, setting: str) -> None:
        """Another hub from now on; nothing happens if it is the same.

        What is being fetched goes on at the old one; other fetches go on at the new one, which has
        the same files or none, since their checksums are known.
        """
        endpoint = endpoint_of(setting)
        if endpoint == self.hub.endpoint:
            return
        self._take_hub(endpoint)
        self.queue.use_hub(self.hub)
        for question in Question:
            self._forget(question)
        self._set_findings(Findings())
        self._set_shown(Shown())
        self._set_offline(None)
        self.hub_changed.emit()
        self.token_changed.emit()

    def _take_hub(self, endpoint: str) -> None:
        # A hub has a token of its own: another one never sees it.
        self.tokens = TokenStore(host_of(endpoint), self._find_keyring)
        self.hub = Hub(endpoint, self.tokens.token)

    def search(self, text: str, kind: Kind | None) -> None:
        """Looks for models; ``findings`` follows."""
        self._set_findings(Findings(text, kind, is_busy=True))
        self._forget(Question.MORE)
        self._ask(Question.SEARCH, lambda: self.hub.search(text, kind))

    def search_more(self) -> None:
        """The next results of the same search."""
        now = self.findings
        if now.next_url and not now.is_busy:
            self._set_findings(replace(now, is_busy=True, error=None))
            self._ask(Question.MORE, lambda: self.hub.search(now.text, now.kind, now.next_url))

    def choose(self, repo_id: str) -> None:
        """Asks what there is to fetch of a repository; ``shown`` follows."""
        if repo_id == self.shown.repo_id and self.shown.error is None:
            return
        self.shown = Shown(repo_id)
        self.shown_changed.emit()
        self._ask(Question.REPOSITORY, lambda: self.hub.repository(repo_id))

    def probe(self) -> None:
        """Finds out whether the hub can be reached; ``offline`` follows."""
        self._ask(Question.PROBE, self.hub.probe)

    # --- fetching ---

    def fetch(self, repository: Repository, choice: Choice) -> FetchError | None:
        """Puts a choice into the queue; the error if it cannot be fetched here."""
        try:
            self.queue.add(job_for(repository, choice))
        except FetchError as error:
            _LOG.warning("not fetched: %s: %s", error.code, error.message)
            return error
        return None

    def view_of(self, repository: Repository, choice: Choice) -> JobView | None:
        """The fetch of a choice, if it is in the list."""
        job_id = job_for(repository, choice, 0.0).job_id
        return next((view for view in self.jobs() if view.job.job_id == job_id), None)

    def bytes_there(self, repository: Repository, choice: Choice) -> int:
        """How much of it is on the disk, whole files and parts."""
        return bytes_there(self.queue.models_dir, repository.repo_id, choice.files)

    def is_there(self, repository: Repository, choice: Choice) -> bool:
        """Whether all of it is there under its final names."""
        return is_there(self.queue.models_dir, repository.repo_id, choice.files)

    def free_disk(self, repository: Repository, choice: Choice) -> int | None:
        """Free bytes where models are kept, without what the other fetches in the list will take;
        None if nobody can tell.
        """
        free, own = free_bytes(self.queue.models_dir), self.view_of(repository, choice)
        if free is None:
            return None
        return max(0, free - self.queue.bytes_to_come("" if own is None else own.job.job_id))

    def path_of(self, repository: Repository, choice: Choice) -> Path:
        """Where the model is once it is fetched."""
        return job_for(repository, choice, 0.0).model_path(self.queue.models_dir)

    # --- the token ---

    def set_token(self, token: str) -> None:
        """Keeps a token, or deletes it if empty; ``token_changed`` follows."""
        self._ask(Question.TOKEN, lambda: self.tokens.set(token))

    def look_for_token(self) -> None:
        """Reads the keyring; ``token_changed`` follows."""
        self._ask(Question.TOKEN, self.tokens.token)

    @property
    def has_token(self) -> bool:
        """As far as the keyring has been read."""
        return self.tokens.place is not Place.NOWHERE

    # --- threads ---

    def _ask(self, question: Question, work: Callable[[], object]) -> None:
        number = self._forget(question)
        if self._is_closed:
            return

        def run() -> None:
            try:
                value = work()
            except FetchError as error:
                value = error
            # The window may have gone meanwhile.
            with suppress(RuntimeError):
                self._replied.emit(_Reply(question, number, value))

        threading.Thread(target=run, name=f"hub-{question}", daemon=True).start()

    def _forget(self, question: Question) -> int:
        """A reply to an earlier question no longer counts. Returns the next number."""
        number = self._numbers.get(question, 0) + 1
        self._numbers[question] = number
        return number

    def _on_replied(self, reply: _Reply) -> None:
        if reply.number != self._numbers.get(reply.question):
            return
        error = reply.value if isinstance(reply.value, FetchError) else None
        if reply.question is Question.TOKEN:
            self._on_token()
            return
        if error is None or not isinstance(error, HubUnreachableError):
            self._set_offline(None)
        else:
            self._set_offline(error.info())
        match reply.question, reply.value:
            case Question.SEARCH | Question.MORE, SearchPage() as page:
                before = self.findings.results if reply.question is Question.MORE else ()
                known = {result.repo_id for result in before}
                new = tuple(r for r in page.results if r.repo_id not in known)
                self._set_findings(
                    replace(
                        self.findings,
                        results=before + new,
                        next_url=page.next_url,
                        is_busy=False,
                        is_done=True,
                    )
                )
            case Question.SEARCH | Question.MORE, FetchError() as failed:
                self._set_findings(replace(self.findings, is_busy=False, error=failed.info()))
            case Question.REPOSITORY, Repository() as repository:
                self._set_shown(Shown(repository.repo_id, repository))
            case Question.REPOSITORY, FetchError() as failed:
                self._set_shown(Shown(self.shown.repo_id, None, failed.info()))

    def _on_token(self) -> None:
        self.token_changed.emit()
        # What was refused may be allowed now.
        if self.shown.error is not None and self.has_token:
            self.choose(self.shown.repo_id)

    def _set_findings(self, findings: Findings) -> None:
        self.findings = findings
        self.findings_changed.emit()

    def _set_shown(self, shown: Shown) -> None:
        self.shown = shown
        self.shown_changed.emit()

    def _set_offline(self, error: ErrorInfo | None) -> None:
        if error != self.offline:
            self.offline = error
            self.offline_changed.emit()
            if error is None:
                self._ask_again()

    def _ask_again(self) -> None:
        """The network is back: what could not be asked without it is asked now."""
        shown, findings = self.shown, self.findings
        if shown.error is not None and shown.error.code == HubUnreachableError.code:
            self.choose(shown.repo_id)
        if findings.error is not None and findings.error.code == HubUnreachableError.code:
            if findings.results:
                self._set_findings(replace(findings, error=None))
            else:
                self.search(findings.text, findings.kind)

    def _tell_changed(self) -> None:
        # One event for many changes: a queue that is cleared posts one a row.
        if not self._pending:
            self._pending = True
            with suppress(RuntimeError):
                self._queue_changed.emit()

    def _tell_fetched(self, path: Path) -> None:
        with suppress(RuntimeError):
            self._fetched.emit(str(path))

    def _on_queue_changed(self) -> None:
        # First, so that a change during the reading is not missed.
        self._pending = False
        for view in self.jobs():
            if view.state is State.FETCHING:
                self._set_offline(None)
            elif view.state is State.OFFLINE and view.error is not None:
                self._set_offline(view.error)
        self.jobs_changed.emit()


def _available_memory() -> int:
    import psutil

    return int(psutil.virtual_memory().available)
