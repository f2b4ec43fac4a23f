"""What the engine thread did while a conversation waited: so that a long gap comes with its reason.

On a machine that is lent for minutes there is no second run in which to look for it.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Self
from unittest import mock

from engine.core import EngineCore
from engine.metrics import EngineMetrics
from tests.benchmarks.report import Row

_KEPT = 50_000
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Committed:
    """A step whose tokens were there at ``at_s``; sizes in tokens, ``padded`` of its prompts."""

    at_s: float
    duration_s: float
    decodes: int
    prompt: int
    padded: int


class StepJournal:
    """While it is open, notes each call of a step, each step committed and each collection.

    Costs two reads of the clock a step. Times are those of ``clock``, in seconds.
    """

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.committed: deque[Committed] = deque(maxlen=_KEPT)
        self.calls: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self.collections: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._clock = clock
        self._collection_began_s = 0.0
        self._patches = ExitStack()

    def __enter__(self) -> Self:
        step, record_step = EngineCore.step, EngineMetrics.record_step

        def timed_step(core: EngineCore) -> object:
            began_s = self._clock()
            try:
                return step(core)
            finally:
                self.calls.append((began_s, self._clock()))

        def noted(
            metrics: EngineMetrics, duration_s: float, decodes: int, prompt: int, padded: int = 0
        ) -> None:
            self.committed.append(Committed(self._clock(), duration_s, decodes, prompt, padded))
            record_step(metrics, duration_s, decodes, prompt, padded)

        self._patches.enter_context(mock.patch.object(EngineCore, "step", timed_step))
        self._patches.enter_context(mock.patch.object(EngineMetrics, "record_step", noted))
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        gc.callbacks.remove(self._on_collection)
        self._patches.close()

    def story(self, begin_s: float, end_s: float) -> Row:
        """What happened from ``begin_s`` to ``end_s``, in milliseconds from ``begin_s`` on.

        ``steps``: those committed then, when and how long each took, and its tokens; with lag 1 the
        one that was committed first had begun before. ``away_ms``: longest time between two calls
        of a step, in which commands are taken up and snapshots made. ``told_ms``: from the last
        commit to the end, at which the client had its token. ``collected_ms``: spent looking for
        reference cycles, whichever thread did.
        """
        committed = [step for step in self.committed if begin_s <= step.at_s <= end_s]
        calls = [call for call in self.calls if call[1] > begin_s and call[0] < end_s]
        away = [later[0] - earlier[1] for earlier, later in pairwise(calls)]
        return {
            "gap_ms": (end_s - begin_s) * 1e3,
            "steps": [
                {
                    "at_ms": (step.at_s - begin_s) * 1e3,
                    "ms": step.duration_s * 1e3,
                    "decodes": step.decodes,
                    "prompt": step.prompt,
                    "padded": step.padded,
                }
                for step in committed
            ],
            "calls": [[(a - begin_s) * 1e3, (b - begin_s) * 1e3] for a, b in calls],
            "away_ms": max(away, default=0.0) * 1e3,
            "told_ms": (end_s - committed[-1].at_s) * 1e3 if committed else None,
            "collected_ms": 1e3
            * sum(min(b, end_s) - max(a, begin_s) for a, b in self._overlapping(begin_s, end_s)),
        }

    def _overlapping(self, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        return [span for span in self.collections if span[1] > begin_s and span[0] < end_s]

    def _on_collection(self, phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            self._collection_began_s = self._clock()
        else:
            self.collections.append((self._collection_began_s, self._clock()))
