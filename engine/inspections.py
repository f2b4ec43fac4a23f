"""Long questions, worked on bit by bit between two steps, so that answers go on meanwhile."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from engine.api.client import QueueClient
from engine.api.commands import Command
from engine.api.errors import EngineError, ErrorInfo, unexpected
from engine.api.events import CommandFailed, QueryProgress, Reply
from engine.limits import device_lost
from engine.queries import Sliced

BESIDE_ANSWERS_S = 0.02
"""How long answers may wait for questions after each step."""

ALONE_S = 0.05
"""How long commands may wait for questions when nothing else is computed."""


@dataclass(slots=True, eq=False)
class _Inspection:
    client: QueueClient
    command: Command
    slices: Sliced
    fraction: float = 0.0
    told: float = 0.0

    def fail(self, error: ErrorInfo) -> None:
        name = type(self.command).__name__
        self.client.post(CommandFailed(self.command.command_id, name, error))

    def tell_progress(self) -> None:
        if self.fraction > self.told:
            self.told = self.fraction
            self.client.post(QueryProgress(self.command.command_id, self.fraction))


class Inspections:
    """The questions of one engine, one after another, each a generator of slices.

    A generator gives back what it has borrowed when it is closed.
    """

    def __init__(self) -> None:
        self._queue: deque[_Inspection] = deque()

    @property
    def are_waiting(self) -> bool:
        """Whether there is something to do."""
        return bool(self._queue)

    def add(self, client: QueueClient, command: Command, slices: Sliced) -> None:
        """Takes up a question; its reply comes later."""
        self._queue.append(_Inspection(client, command, slices))

    def advance(self, budget_s: float) -> None:
        """Works for about so long, at least one slice.

        Raises:
            DeviceLostError: the device died.
        """
        end = time.perf_counter() + budget_s
        while self._queue:
            self._slice(self._queue[0])
            if time.perf_counter() >= end:
                break
        if self._queue:
            self._queue[0].tell_progress()

    def drop(
        self,
        error: ErrorInfo,
        which: Callable[[QueueClient, Command], bool] = lambda _client, _command: True,
    ) -> None:
        """Ends questions with an error, some of them by who asked what."""
        for inspection in list(self._queue):
            if which(inspection.client, inspection.command):
                self._end(inspection)
                inspection.fail(error)

    def abandon(self, error: ErrorInfo) -> None:
        """Ends all questions of an engine that has failed."""
        while self._queue:
            inspection = self._queue.popleft()
            inspection.fail(error)
            # What broke the engine may break this too.
            with suppress(Exception):
                inspection.slices.close()

    def _slice(self, inspection: _Inspection) -> None:
        try:
            inspection.fraction = next(inspection.slices)
        except StopIteration as stop:
            self._end(inspection)
            reply: Reply = stop.value
            inspection.client.post(reply)
        except Exception as error:
            self._end(inspection)
            lost = device_lost(error)
            known = error if isinstance(error, EngineError) else unexpected(error)
            inspection.fail((lost or known).info())
            if lost is not None:
                raise lost from error

    def _end(self, inspection: _Inspection) -> None:
        self._queue.remove(inspection)
        inspection.slices.close()
