"""Rates and times of the engine over time, as the metrics page shows them. Free of Qt."""

from __future__ import annotations

import csv
import math
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TextIO

from engine.api.events import EngineStats, Event, RequestFinished, TokensGenerated

KEPT_POINTS = 7200
"""An hour of counters that come twice a second."""
ITL_SPAN_S = 10.0
"""Percentiles are of the gaps between tokens in so many seconds."""
SHARES = (0.5, 0.95, 0.99)

SPEED, PREFILL, TTFT = "decode_tokens_per_s", "prefill_tokens_per_s", "ttft_s"
ITL = ("itl_p50_s", "itl_p95_s", "itl_p99_s")
HIT_RATE, USED, CACHED, FREE = "hit_rate", "used_blocks", "cached_blocks", "free_blocks"
NAMES = (SPEED, PREFILL, TTFT, *ITL, HIT_RATE, USED, CACHED, FREE)

Point = tuple[float, float]


class Metrics:
    """``series[name]``: points (seconds on a monotonic clock, value), the oldest first.

    TTFT, queue to first visible text, and hit rate have a point for each answer that ended; the hit
    rate counts what the prompt found at its first admission. ITL is each gap between two tokens of
    an answer, as they reach the window. A NaN parts what is not connected.
    """

    def __init__(self) -> None:
        self.series: dict[str, deque[Point]] = {name: deque(maxlen=KEPT_POINTS) for name in NAMES}
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self._last_token_s: dict[str, float] = {}
        self._gaps: deque[Point] = deque(maxlen=20_000)

    def interrupt(self, now_s: float) -> None:
        """Nothing was counted until now: what comes is not connected with what was before."""
        self._last_token_s.clear()
        self._gaps.clear()
        for name in (SPEED, PREFILL, *ITL, USED, CACHED, FREE):
            if self.series[name]:
                self.series[name].append((now_s, math.nan))

    def note_stats(self, now_s: float, stats: EngineStats) -> None:
        """Takes the engine's counters."""
        values = {
            SPEED: stats.decode_tokens_per_s if stats.num_running else 0.0,
            PREFILL: stats.prefill_tokens_per_s,
            USED: stats.used_blocks,
            CACHED: stats.cached_blocks,
            FREE: stats.free_blocks,
        }
        for name, value in values.items():
            self.series[name].append((now_s, float(value)))
        while self._gaps and self._gaps[0][0] < now_s - ITL_SPAN_S:
            self._gaps.popleft()
        if self._gaps:
            gaps = sorted(gap for _, gap in self._gaps)
            for name, share in zip(ITL, SHARES, strict=True):
                self.series[name].append((now_s, percentile(gaps, share)))
        elif self.series[ITL[0]] and not math.isnan(self.series[ITL[0]][-1][1]):
            for name in ITL:
                self.series[name].append((now_s, math.nan))

    def note_event(self, now_s: float, event: Event) -> None:
        """Takes tokens and ends of answers; everything else is left alone."""
        if isinstance(event, TokensGenerated):
            last = self._last_token_s.get(event.request_id)
            if event.token_ids:
                self._last_token_s[event.request_id] = now_s
            if last is not None and event.token_ids:
                # Those that came together in one look share the time since the one before.
                count = len(event.token_ids)
                self._gaps.extend([(now_s, (now_s - last) / count)] * count)
        elif isinstance(event, RequestFinished):
            self._last_token_s.pop(event.request_id, None)
            usage = event.usage
            if usage.ttft_s > 0:
                self.series[TTFT].append((now_s, usage.ttft_s))
            if usage.prompt_tokens:
                self.prompt_tokens += usage.prompt_tokens
                self.cached_tokens += usage.cached_tokens
                rate = usage.cached_tokens / usage.prompt_tokens
                self.series[HIT_RATE].append((now_s, rate))

    def latest(self, name: str) -> float:
        """The newest value; NaN if there is none."""
        points = self.series[name]
        return points[-1][1] if points else math.nan

    def rows(self, names: Iterable[str] = NAMES) -> Iterator[tuple[float, str, float]]:
        """Every point that is a number, in the order of time."""
        points = [
            (time_s, name, value)
            for name in names
            for time_s, value in self.series[name]
            if not math.isnan(value)
        ]
        yield from sorted(points)

    def write_csv(self, file: TextIO, now_s: float, now: datetime) -> int:
        """``time,series,value`` a line; ``now`` is the clock's ``now_s``. Returns the lines."""
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("time", "series", "value"))
        count = 0
        for time_s, name, value in self.rows():
            at = datetime.fromtimestamp(now.timestamp() - (now_s - time_s), now.tzinfo)
            writer.writerow((at.isoformat(timespec="milliseconds"), name, f"{value:.6g}"))
            count += 1
        return count


def percentile(ordered: list[float], share: float) -> float:
    """The value at ``share`` (0 to 1) of sorted values, the nearest rank."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
