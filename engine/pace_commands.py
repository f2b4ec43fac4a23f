"""Commands about the pace of steps."""

from __future__ import annotations

from engine.api.client import QueueClient
from engine.api.commands import Command, PauseEngine, ResumeEngine, SetRate, StepEngine
from engine.api.errors import InvalidValueError
from engine.pacer import Pacer
from engine.request_commands import Handler
from engine.slot import Slot
from engine.standing import Standing
from engine.submissions import Submissions


class PaceCommands:
    """``handlers``: what serves each kind of command."""

    def __init__(
        self, pacer: Pacer, slot: Slot, standing: Standing, submissions: Submissions
    ) -> None:
        self._pacer = pacer
        self._slot = slot
        self._standing = standing
        self._submissions = submissions
        self.handlers: dict[type[Command], Handler] = {
            PauseEngine: self._pause,
            ResumeEngine: self._resume,
            StepEngine: self._grant_steps,
            SetRate: self._set_rate,
        }

    def _pause(self, client: QueueClient, command: Command) -> None:
        self._pacer.pause()
        self._standing.tell()

    def _resume(self, client: QueueClient, command: Command) -> None:
        self._pacer.resume()
        engine = self._slot.engine
        if engine is not None:
            engine.core.note_pause(False)
            self._submissions.post(engine.core.take_events())
        self._standing.tell()

    def _grant_steps(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, StepEngine)
        if command.steps < 1:
            raise InvalidValueError(f"steps = {command.steps}: 1 or more", name="steps")
        self._pacer.grant(command.steps)

    def _set_rate(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, SetRate)
        rate = command.steps_per_s
        # No thread can sleep for as long as a still lower rate may ask.
        if rate is not None and not 0.001 <= rate <= 1000.0:
            raise InvalidValueError(
                f"steps_per_s = {rate}: 0.001 to 1000, or None", name="steps_per_s"
            )
        self._pacer.steps_per_s = rate
        self._standing.tell()
