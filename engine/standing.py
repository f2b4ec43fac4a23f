"""How the engine stands, as its clients are told."""

from __future__ import annotations

from engine.api.events import EngineStatus, EngineStatusChanged
from engine.pacer import Pacer
from engine.roster import Roster


class Standing:
    """What has become of the model, and the pace of steps."""

    def __init__(self, roster: Roster, pacer: Pacer) -> None:
        self._roster = roster
        self._pacer = pacer
        self._status = EngineStatus.NO_MODEL

    def change(self, status: EngineStatus) -> None:
        """Another status, told to all clients."""
        self._status = status
        self.tell()

    def tell(self) -> None:
        """Tells all clients; the pace has changed."""
        self._roster.tell_all(self.event())

    def event(self) -> EngineStatusChanged:
        """What a client is told."""
        return EngineStatusChanged(self._status, self._pacer.paused, self._pacer.steps_per_s)
