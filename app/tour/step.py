"""What a step of the lesson is: it asks the engine for something and waits until it happened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum

from app.tour.rig import Rig
from engine.api.events import Event, PoolEvent


class Target(StrEnum):
    """The part of the panel that a step points at."""

    NOTHING = ""
    GRID = "grid"
    TABLES = "tables"
    USAGE = "usage"
    TAPE = "tape"


class Step(ABC):
    """``is_done`` turns true when events say so, never by time.

    ``steps_per_s``: the engine's pace, None for its own. ``starts_anew``: with an empty pool.
    ``keeps_running``: what the step before began goes on.
    """

    target = Target.GRID
    steps_per_s: float | None = 8.0
    starts_anew = False
    keeps_running = False

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.is_done = False

    @property
    @abstractmethod
    def title(self) -> str:
        """A few words."""

    @property
    @abstractmethod
    def text(self) -> str:
        """What is going to happen and what it is good for."""

    @property
    def look(self) -> str:
        """Where to look, and at what; empty for nowhere."""
        return ""

    @property
    def waiting(self) -> str:
        """What has not happened yet; empty for nothing."""
        return ""

    def start(self) -> None:
        """Asks the engine for what is to be seen."""
        if not self.keeps_running:
            self.rig.begin(self.steps_per_s, anew=self.starts_anew)
        self.begin()

    def begin(self) -> None:
        """The step's own questions."""
        self.is_done = True

    def take(self, event: Event | PoolEvent) -> None:  # noqa: B027 - some steps wait for nothing
        """Looks at one event."""

    def blocks(self) -> frozenset[int]:
        """The blocks of which the outcome gives the ids: the panel outlines them."""
        return frozenset()

    def outcome(self) -> str:
        """What has happened, with its figures; empty if there is nothing to tell."""
        return ""
