"""Plays a recording: folds its events forwards and backwards, one engine step at a time. No Qt."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import Undo
from app.cache_panel.trace_names import TraceNames
from app.i18n import tr
from engine.api.errors import TraceError
from engine.api.events import PoolEvent
from engine.api.trace import read_trace

HEAD_LINES = 2
"""Lines of a recording before its first event."""


class TracePlayer:
    """``model`` is the pool after ``position`` events; ``starts`` the positions between two steps.

    ``trouble`` says in words where the recording cannot be followed, and why: what is before can.

    Raises:
        TraceError: there is not even a snapshot to begin with.
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        snapshot, events = read_trace(path)
        self.path = path
        self.model = PoolModel.from_snapshot(snapshot)
        self.names = TraceNames(snapshot)
        self.events: list[PoolEvent] = []
        self.starts = [0]
        self.trouble = ""
        self.is_loaded = False
        self._undos: list[Undo] = []
        self._unread: Iterator[PoolEvent] = events
        self._newest_step = snapshot.step
        self._end: int | None = None

    # --- reading ---

    def load(self, budget_s: float) -> bool:
        """Reads further events for so long. True when all are there."""
        end_s = time.perf_counter() + budget_s
        while not self.is_loaded and time.perf_counter() < end_s:
            try:
                event = next(self._unread)
            except StopIteration:
                self._finish_loading("")
            except (TraceError, OSError) as error:
                self._finish_loading(self._damage(error))
            else:
                self._keep(event)
        return self.is_loaded

    def _keep(self, event: PoolEvent) -> None:
        if event.step > self._newest_step and self.events:
            self.starts.append(len(self.events))
        self._newest_step = max(self._newest_step, event.step)
        self.events.append(event)
        self.names.learn(event)

    def _finish_loading(self, trouble: str) -> None:
        self.is_loaded = True
        if self.events:
            self.starts.append(len(self.events))
        if trouble and self._end is None:
            self.trouble = trouble

    def _damage(self, error: Exception) -> str:
        line = len(self.events) + HEAD_LINES + 1
        reason = str(error) if isinstance(error, TraceError) else f"{self.path.name}: {error}"
        return tr(
            "The recording is damaged or cut off at line {line}. What is before is shown. {reason}",
            line=f"{line:,}",
            reason=reason,
        )

    # --- moving ---

    @property
    def position(self) -> int:
        """How many events are folded."""
        return len(self._undos)

    @property
    def num_steps(self) -> int:
        """Steps that are known so far."""
        return len(self.starts) - 1

    @property
    def step_index(self) -> int:
        """The last start that is not after ``position``."""
        return bisect_right(self.starts, self.position) - 1

    @property
    def end(self) -> int:
        """The last position that can be reached."""
        return len(self.events) if self._end is None else self._end

    def seek(self, position: int, budget_s: float = float("inf")) -> bool:
        """Folds towards ``position`` for so long. True if it is there, or as near as it can be."""
        target = max(0, min(position, self.end))
        end_s = time.perf_counter() + budget_s
        while self.position != target:
            moved = self._forward() if self.position < target else self._backward()
            if not moved:
                return True
            if self.position % 64 == 0 and time.perf_counter() > end_s:
                return False
        return True

    def _forward(self) -> bool:
        undo = self.model.forward(self.events[self.position])
        if undo is None:
            self._note_inconsistency()
            return False
        self._undos.append(undo)
        return True

    def _backward(self) -> bool:
        # Whatever was folded forwards can be taken back: only this class moves the model.
        event, undo = self.events[self.position - 1], self._undos[-1]
        fits = self.model.backward(event, undo)
        assert fits, self.model.inconsistency
        self._undos.pop()
        return True

    def _note_inconsistency(self) -> None:
        """The event changed nothing, so the way back stays open."""
        self._end = self.position
        self.trouble = tr(
            "Line {line} does not fit the pool before it: {reason}. What is before is shown.",
            line=f"{self.position + HEAD_LINES + 1:,}",
            reason=self.model.inconsistency,
        )
        self.model.inconsistency = ""
