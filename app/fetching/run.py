"""One run of a fetch: its files one after another, with the patience networks need. Qt-free."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from app.fetching.catalogue import RemoteFile
from app.fetching.control import Control
from app.fetching.errors import (
    ChecksumError,
    ConnectionLostError,
    FetchError,
    FetchInUseError,
    HubOfflineModeError,
    HubTroubleError,
    HubUnreachableError,
    RateLimitedError,
    WrongSizeError,
)
from app.fetching.hub import Hub
from app.fetching.jobs import Job
from app.fetching.progress import SpeedMeter
from app.fetching.transfer import Stage, Transfer
from engine.api.errors import ErrorInfo

_LOG = logging.getLogger(__name__)
MAX_TRIES = 8
"""Attempts in a row that bring nothing, before a fetch gives up on a server that fails."""

_TELL_EVERY_S = 0.2


class State(StrEnum):
    """What a fetch is doing.

    ``WAITING``: for a server or another process, until a moment that is known. ``OFFLINE``: for
    the network; it goes on by itself.
    """

    QUEUED = "queued"
    CHECKING = "checking"
    FETCHING = "fetching"
    WAITING = "waiting"
    OFFLINE = "offline"
    PAUSED = "paused"
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds: between attempts (doubled each time up to ``longest_s``), between looks whether
    the network is back, and whether another process is done.
    """

    first_s: float = 1.0
    longest_s: float = 60.0
    offline_s: float = 10.0
    in_use_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Report:
    """What a run says of itself; see ``JobView`` for the fields."""

    state: State
    done_bytes: int
    speed: float = 0.0
    seconds_left: float | None = None
    until: float = 0.0
    error: ErrorInfo | None = None


class Listener(Protocol):
    """Who follows a run; called in its thread."""

    def reported(self, report: Report) -> None:
        """The run does something else, or is further."""

    def job_changed(self, job: Job) -> None:
        """A file is complete, or is another one on the hub now."""


class JobRun:
    """Fetches the files of ``job`` that are not there yet."""

    def __init__(
        self,
        hub: Hub,
        job: Job,
        models_dir: Path,
        control: Control,
        listener: Listener,
        delays: Delays,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self._hub = hub
        self._folder = job.folder(models_dir)
        self._control = control
        self._listener = listener
        self._delays = delays
        self._clock = clock
        self._meter = SpeedMeter(clock)
        self._before = 0
        """Bytes of the files before the present one."""
        self._here = 0
        """Bytes of the present file."""
        self._reached = 0
        """The furthest that the present file has come, to tell attempts that bring nothing."""
        self._stage: Stage | None = None
        self._told_at = 0.0
        self._logged = ""

    def run(self) -> None:
        """Returns when all files are there.

        Raises:
            StoppedError: the control was stopped.
            FetchError: it cannot go on without the user.
        """
        for file in self.job.files:
            self._fetch(file)
            self._before += file.size
            self._here = 0

    def _fetch(self, file: RemoteFile) -> None:
        tries = num_bad = 0
        self._reached = 0
        while True:
            transfer = self._transfer(file)
            before = self._reached
            try:
                is_new = transfer.run()
                file = self._present(file, transfer)
                if is_new:
                    self._change(self.job.with_finished(file.name))
                return
            except HubOfflineModeError:
                # This process will stay without the network.
                raise
            except HubUnreachableError as error:
                self._wait(State.OFFLINE, self._delays.offline_s, error)
                tries = 0
            except RateLimitedError as error:
                self._wait(State.WAITING, error.seconds, error)
            except FetchInUseError as error:
                self._wait(State.WAITING, self._delays.in_use_s, error)
            except (ConnectionLostError, HubTroubleError) as error:
                tries = 1 if self._reached > before else tries + 1
                if tries >= MAX_TRIES:
                    raise
                pause = min(self._delays.first_s * 2.0 ** (tries - 1), self._delays.longest_s)
                asked = error.seconds if isinstance(error, HubTroubleError) else 0.0
                self._wait(State.WAITING, max(pause, asked), error)
            except (ChecksumError, WrongSizeError) as error:
                num_bad += 1
                if num_bad > 1:
                    raise
                # Bytes that a proxy or a disk spoilt; a second time it is the hub's.
                _LOG.warning("%s It is fetched once more.", error.message)
                self._reached = 0
            file = self._present(file, transfer)

    def _present(self, file: RemoteFile, transfer: Transfer) -> RemoteFile:
        """The file as the hub has it now."""
        if transfer.file != file:
            self._change(self.job.with_file(transfer.file))
        return transfer.file

    def _transfer(self, file: RemoteFile) -> Transfer:
        self._control.check()
        job = self.job
        return Transfer(
            self._hub, job.repo_id, job.commit, file, self._folder, self._control, self._on_told
        )

    def _change(self, job: Job) -> None:
        self.job = job
        self._listener.job_changed(job)

    def _on_told(self, stage: Stage, done: int) -> None:
        self._here = done
        if stage is Stage.FETCHING:
            if done > self._reached:
                self._reached, self._logged = done, ""
            self._meter.add(self._before + done)
        now = self._clock()
        if stage is self._stage and now - self._told_at < _TELL_EVERY_S:
            return
        self._stage, self._told_at = stage, now
        if stage is Stage.CHECKING:
            self._listener.reported(Report(State.CHECKING, self._before + done))
        else:
            self._listener.reported(self.progress())

    def progress(self) -> Report:
        """How far it is and how fast now, for a run that is fetching. Any thread."""
        done = self._before + self._here
        left = self._meter.seconds_left(self.job.total_bytes - done)
        return Report(State.FETCHING, done, self._meter.bytes_per_s, left)

    def _wait(self, state: State, seconds: float, error: FetchError) -> None:
        self._control.check()
        self._meter.reset()
        self._stage = None
        if error.code != self._logged:
            # Once: a machine may be offline for days.
            self._logged = error.code
            _LOG.info("fetch of %s waits: %s", self.job.repo_id, error.code)
        done = self._before + self._here
        until = self._clock() + seconds
        self._listener.reported(Report(state, done, until=until, error=error.info()))
        self._control.wait(seconds)
