"""The fetches: one at a time, on a thread that lives while there is something to do. Qt-free."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from app.fetching.control import Control, StoppedError
from app.fetching.errors import FetchError
from app.fetching.hub import Hub
from app.fetching.jobs import Job, JobFiles, sweep
from app.fetching.partial import require_room
from app.fetching.run import Delays, JobRun, Report, State
from engine.api.errors import ErrorInfo

_LOG = logging.getLogger(__name__)
THREAD_NAME = "quire-fetch"
RUNNING = frozenset({State.CHECKING, State.FETCHING, State.WAITING, State.OFFLINE})
ACTIVE = RUNNING | {State.QUEUED}


@dataclass(frozen=True, slots=True)
class JobView:
    """A fetch at one moment.

    ``until``: when a wait ends, on ``time.monotonic``'s clock. ``error``: why it waits or failed.
    ``seconds_left`` is None while nobody can tell.
    """

    job: Job
    state: State
    done_bytes: int
    path: Path
    speed: float = 0.0
    seconds_left: float | None = None
    until: float = 0.0
    error: ErrorInfo | None = None


class FetchQueue:
    """All fetches of a model folder. Every method returns at once and may be called by any thread,
    but ``close``, which waits.

    ``on_changed()`` and ``on_fetched(path)`` are called from the fetching thread as well.
    """

    def __init__(
        self,
        hub: Hub,
        models_dir: Path,
        on_changed: Callable[[], None] = lambda: None,
        on_fetched: Callable[[Path], None] = lambda _path: None,
        delays: Delays | None = None,
    ) -> None:
        self._hub = hub
        self._files = JobFiles(models_dir)
        self._on_changed = on_changed
        self._on_fetched = on_fetched
        self._delays = delays or Delays()
        self._lock = threading.RLock()
        self._views: dict[str, JobView] = {}
        self._thread: threading.Thread | None = None
        self._current = ""
        self._current_run: JobRun | None = None
        self._control = Control()
        self._doomed: set[str] = set()
        self._closed = False
        _sweep_later(self._files.thrown_away())
        for job in self._files.load():
            # The last program ended in the middle; the network is used only when asked for.
            state = State.PAUSED if job.error is None else State.FAILED
            self._views[job.job_id] = self._view(job, state)

    @property
    def models_dir(self) -> Path:
        return self._files.models_dir

    def use_hub(self, hub: Hub) -> None:
        """Fetches that begin or go on from now on use ``hub``."""
        with self._lock:
            self._hub = hub

    def views(self) -> list[JobView]:
        """All fetches in their order; those that are done stay until ``dismiss``."""
        with self._lock:
            return [self._present(view) for view in self._views.values()]

    def _present(self, view: JobView) -> JobView:
        # A server that falls silent reports nothing; its speed falls all the same.
        run = self._current_run
        if view.state is not State.FETCHING or run is None or self._current != view.job.job_id:
            return view
        now = run.progress()
        return replace(
            view, done_bytes=now.done_bytes, speed=now.speed, seconds_left=now.seconds_left
        )

    def bytes_to_come(self, but_for: str = "") -> int:
        """What the fetches that run or wait will still take of the disk, the one with the id
        ``but_for`` aside.
        """
        active = (view for view in self.views() if view.state in ACTIVE)
        others = (view for view in active if view.job.job_id != but_for)
        return sum(max(0, view.job.total_bytes - view.done_bytes) for view in others)

    def add(self, job: Job) -> str:
        """Puts a fetch at the end; one that is there already goes on. Returns its id.

        Raises:
            FileWriteError: the model folder cannot be written.
            DiskFullError: it does not fit.
        """
        with self._lock:
            known = self._views.get(job.job_id)
            if known is not None and known.state in ACTIVE:
                return job.job_id
            if known is not None:
                job = replace(job, finished=known.job.finished)
            rest = job.total_bytes - self._files.bytes_there(job)
            require_room(job.folder(self.models_dir), rest + self.bytes_to_come())
            self._files.save(job)
            self._views.pop(job.job_id, None)
            self._views[job.job_id] = self._view(job, State.QUEUED)
            self._start()
        self._on_changed()
        return job.job_id

    def pause(self, job_id: str) -> None:
        """Nothing more is fetched of it until ``resume``."""
        self._stop_as(job_id, State.PAUSED)

    def resume(self, job_id: str) -> None:
        """Goes on with one that was paused or failed; one that waits tries at once."""
        with self._lock:
            view = self._views.get(job_id)
            if view is None or self._closed:
                return
            if view.state in (State.WAITING, State.OFFLINE):
                self._control.hurry()
            elif view.state in (State.PAUSED, State.FAILED):
                job = self._files.keep_error(view.job, None)
                self._views[job_id] = self._view(job, State.QUEUED)
                self._start()
        self._on_changed()

    def cancel(self, job_id: str, keep_part: bool) -> None:
        """Takes a fetch out of the list. ``keep_part``: what is there stays for another time."""
        with self._lock:
            view = self._views.pop(job_id, None)
            if view is None:
                return
            self._files.forget(view.job)
            if self._current == job_id:
                # The thread still has the file open.
                if not keep_part:
                    self._doomed.add(job_id)
                self._control.stop()
            elif not keep_part and view.state is not State.DONE:
                _sweep_later(self._files.throw_away(view.job))
        self._on_changed()

    def dismiss(self, job_id: str) -> None:
        """Takes a fetch that is done out of the list."""
        with self._lock:
            view = self._views.get(job_id)
            if view is not None and view.state is State.DONE:
                del self._views[job_id]
        self._on_changed()

    def close(self, timeout_s: float) -> bool:
        """Ends the thread; fetches that ran are there again with the next start. False if it is
        still busy after ``timeout_s``.
        """
        with self._lock:
            self._closed = True
            self._control.stop()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    # --- the thread ---

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                queued = [v for v in self._views.values() if v.state is State.QUEUED]
                if not queued or self._closed:
                    self._thread = None
                    return
                job = queued[0].job
                self._current, self._control = job.job_id, Control()
                control = self._control
            self._run(job, control)

    def _run(self, job: Job, control: Control) -> None:
        follower = _Follower(self, job.job_id, control)
        run = JobRun(self._hub, job, self.models_dir, control, follower, self._delays)
        self._current_run = run
        try:
            run.run()
            self._on_done(run.job, control)
        except StoppedError:
            pass
        except FetchError as error:
            _LOG.warning("fetch of %s failed: %s: %s", job.repo_id, error.code, error.message)
            self._fail(job.job_id, control, error.info())
        except Exception as error:
            # A fault of ours must not leave a fetch that seems to run.
            _LOG.exception("fetch of %s", job.repo_id)
            line = f"{type(error).__name__}: {error}"
            self._fail(job.job_id, control, ErrorInfo("internal", line, ""))
        finally:
            self._end(run.job)

    def _on_done(self, job: Job, control: Control) -> None:
        with self._lock:
            view = self._views.get(job.job_id)
            if view is None or control.is_stopped:
                return
            self._files.forget(job)
            self._views[job.job_id] = self._view(job, State.DONE)
        _LOG.info("fetched %s of %s", job.key, job.repo_id)
        self._on_changed()
        self._on_fetched(job.model_path(self.models_dir))

    def _fail(self, job_id: str, control: Control, error: ErrorInfo) -> None:
        with self._lock:
            view = self._views.get(job_id)
            if view is None or control.is_stopped:
                return
            job = self._files.keep_error(view.job, error)
            self._views[job_id] = self._view(job, State.FAILED)

    def _end(self, job: Job) -> None:
        with self._lock:
            self._current, self._current_run = "", None
            if job.job_id in self._doomed:
                self._doomed.discard(job.job_id)
                if job.job_id not in self._views:
                    _sweep_later(self._files.throw_away(job))
        self._on_changed()

    def take_report(self, job_id: str, control: Control, report: Report) -> None:
        """For the thread: what it says no longer counts after the fetch was stopped."""
        with self._lock:
            view = self._views.get(job_id)
            if view is None or control.is_stopped:
                return
            self._views[job_id] = JobView(
                job=view.job,
                state=report.state,
                done_bytes=report.done_bytes,
                path=view.path,
                speed=report.speed,
                seconds_left=report.seconds_left,
                until=report.until,
                error=report.error,
            )
        self._on_changed()

    def take_job(self, job: Job) -> None:
        """For the thread: the job is further, or another one.

        Raises:
            FileWriteError: the model folder cannot be written.
        """
        with self._lock:
            view = self._views.get(job.job_id)
            if view is None:
                return
            self._views[job.job_id] = replace(view, job=job)
            self._files.save(job)

    def _stop_as(self, job_id: str, state: State) -> None:
        with self._lock:
            view = self._views.get(job_id)
            if view is None or view.state not in ACTIVE:
                return
            self._views[job_id] = self._view(view.job, state)
            if self._current == job_id:
                self._control.stop()
        self._on_changed()

    def _view(self, job: Job, state: State) -> JobView:
        done = self._files.bytes_there(job)
        return JobView(job, state, done, job.model_path(self.models_dir), error=job.error)


@dataclass(frozen=True, slots=True)
class _Follower:
    """Ties what one run says to that run."""

    queue: FetchQueue
    job_id: str
    control: Control

    def reported(self, report: Report) -> None:
        self.queue.take_report(self.job_id, self.control, report)

    def job_changed(self, job: Job) -> None:
        self.queue.take_job(job)


def _sweep_later(thrown: list[Path]) -> None:
    """On a thread of its own: gigabytes take seconds."""
    if thrown:
        threading.Thread(target=sweep, args=(thrown,), name="fetch-sweep", daemon=True).start()
