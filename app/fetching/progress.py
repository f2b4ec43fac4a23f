"""Speed and time left of something that grows. Qt-free."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 8.0


class SpeedMeter:
    """Bytes a second over the last seconds, so that it follows a network that changes. One thread
    adds, any thread asks.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, total: int) -> None:
        """``total`` bytes are there now. A total that shrinks begins anew."""
        now = self._clock()
        with self._lock:
            if self._samples and total < self._samples[-1][1]:
                self._samples.clear()
            self._samples.append((now, total))
            while len(self._samples) > 2 and now - self._samples[0][0] > WINDOW_S:
                self._samples.popleft()

    def reset(self) -> None:
        """Nothing is moving."""
        with self._lock:
            self._samples.clear()

    @property
    def bytes_per_s(self) -> float:
        """0 until half a second has been seen. Falls while nothing comes."""
        with self._lock:
            if len(self._samples) < 2:
                return 0.0
            (first, before), (_last, after) = self._samples[0], self._samples[-1]
        seconds = self._clock() - first
        return (after - before) / seconds if seconds >= 0.5 else 0.0

    def seconds_left(self, remaining: int) -> float | None:
        """None while the speed is not known."""
        speed = self.bytes_per_s
        return remaining / speed if speed > 0.0 else None
