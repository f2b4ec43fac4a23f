"""When the engine may run its next step: full speed, paused, single steps, or slow motion."""

from __future__ import annotations


class Pacer:
    """``paused``: only granted steps run.

    ``steps_per_s``: at most so many a second, None is no limit.
    """

    def __init__(self) -> None:
        self.paused = False
        self.steps_per_s: float | None = None
        self._granted = 0
        self._stepped_s = float("-inf")

    def pause(self) -> None:
        self.paused = True
        self._granted = 0

    def resume(self) -> None:
        self.paused = False

    def grant(self, steps: int) -> None:
        """Lets a paused engine run ``steps`` steps."""
        self._granted += steps

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until the next step may run; 0 is now, None is not before a command."""
        if self.paused and self._granted == 0:
            return None
        if self.steps_per_s is None:
            return 0.0
        # From the latest step on, so that another rate holds at once.
        return max(0.0, self._stepped_s + 1.0 / self.steps_per_s - now_s)

    def stepped(self, now_s: float) -> None:
        """A step has been run."""
        if self.paused:
            self._granted -= 1
        self._stepped_s = now_s
