"""How much memory torch takes on the CPU while something runs, by its own account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class LiveBytes:
    """Beyond what was there before: ``peak`` at the most, ``left`` at the end, while ``made``, what
    the work gave back, is still there.
    """

    peak: int
    left: int
    made: Any


def live_bytes(work: Callable[[], Any]) -> LiveBytes:
    """What torch's allocator has handed out during ``work``."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        made = work()
    # torch has no public account of the CPU's memory: these are its profiler's events.
    kineto = seen.profiler.kineto_results
    changes = [event for event in kineto.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(changes, key=lambda each: each.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return LiveBytes(peak, held, made)
