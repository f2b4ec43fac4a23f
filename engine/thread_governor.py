"""How many threads a step on the CPU uses, when other programs want the cores too.

A step is hundreds of short parallel regions, and each ends when its last thread does. If another
program holds one core, that thread is often not running, and every region waits for it: on two
cores a step then takes ten times as long with two threads, and not twice as long with one. So the
governor looks at what steps take.
"""

from __future__ import annotations

from collections.abc import Callable

_SUSPICIOUS = 2.0
"""A step this many times slower than the best one of its size is taken for a crowded machine."""

_RUN = 4
"""Steps in a row that are averaged before anything is changed."""

_PROBE_S = 3.0
_MOST_PROBE_S = 60.0
"""The full number of threads is tried again after this time, which doubles with every vain try."""

_ROW_COST = 0.25
"""One sequence more makes a step at most this much longer (0.06 was measured on two cores)."""

CALIBRATION_STEPS = 3 * _RUN
"""After so many steps of one size it is known which number of threads is the faster one."""

_FORGET = 1.002
"""The best time grows by this with every step: contexts get longer."""


class ThreadGovernor:
    """Chooses between all threads and half of them from the durations of decode steps.

    Args:
        num_threads: the full number.
        set_threads: changes the number, for instance ``torch.set_num_threads``.
    """

    def __init__(self, num_threads: int, set_threads: Callable[[int], None]) -> None:
        self.full = num_threads
        self.few = max(1, num_threads // 2)
        self.current = num_threads
        self._set_threads = set_threads
        self._best: dict[int, float] = {}
        self._compared = False
        self._size = 0
        self._durations: list[float] = []
        self._few_s = 0.0
        self._probe_at_s = 0.0
        self._probe_every_s = _PROBE_S

    def apply(self, present: int) -> None:
        """Before a step: sets the number again if somebody else in the process changed it."""
        if present != self.current:
            self._set_threads(self.current)

    def stepped(self, num_decodes: int, duration_s: float, now_s: float) -> None:
        """One step of decodes alone took ``duration_s``."""
        if self.full == self.few:
            return
        if num_decodes != self._size:
            # Steps of different sizes say nothing about one another.
            self._size, self._few_s = num_decodes, 0.0
            self._durations.clear()
        if self.current == self.full:
            best = self._best.get(num_decodes) or self._expected(num_decodes, duration_s)
            self._best[num_decodes] = min(best * _FORGET, duration_s)
        self._durations.append(duration_s)
        # A trial of all threads on a crowded machine is dear: two slow steps are enough to know.
        vain = [d for d in self._durations if 0.0 < _SUSPICIOUS * self._few_s < d]
        if len(self._durations) < _RUN and not (self.current == self.full and len(vain) >= 2):
            return
        typical = sorted(self._durations)[len(self._durations) // 2]
        self._durations.clear()
        if self.current == self.full:
            self._judge_full(typical, now_s)
        else:
            self._few_s = typical
            if now_s >= self._probe_at_s:
                self._use(self.full)

    def _expected(self, num_decodes: int, unknown_s: float) -> float:
        """The most that a step of a new size should take, from what is known of others."""
        bounds = [
            best * (1.0 + _ROW_COST * max(num_decodes - size, 0))
            for size, best in self._best.items()
        ]
        return min(bounds, default=unknown_s)

    def _judge_full(self, typical: float, now_s: float) -> None:
        probing, self._few_s = self._few_s, 0.0
        if not self._compared:
            # The machine may be crowded from the start: both numbers are tried once.
            self._compared = True
            self._probe_at_s = now_s
            self._use(self.few)
            return
        # Just tried again after a time with few threads: whatever was faster.
        limit = probing or _SUSPICIOUS * self._best[self._size]
        if typical > limit:
            self._probe_at_s = now_s + self._probe_every_s
            self._probe_every_s = min(2 * self._probe_every_s, _MOST_PROBE_S)
            self._use(self.few)
        else:
            self._probe_every_s = _PROBE_S

    def _use(self, num_threads: int) -> None:
        self.current = num_threads
        self._set_threads(num_threads)
