"""Steps that have been submitted and not committed yet. No torch."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from engine.request import PLACEHOLDER_TOKEN, Phase, Request
from engine.scheduler_output import SchedulerOutput, StepHandle


@dataclass(slots=True)
class Flight:
    """A submitted step: ``sample_index[i]`` is where the i-th sample goes in its request's ids."""

    output: SchedulerOutput
    handle: StepHandle
    sample_index: list[int]
    started_s: float


class Flights(deque[Flight]):
    """Flights in order of submission."""

    def launch(self, output: SchedulerOutput, handle: StepHandle, now_s: float) -> None:
        """Moves the step's requests to where they will be at its commit."""
        sample_index: list[int] = []
        for chunk in output.chunks:
            request = chunk.request
            request.num_computed_tokens = chunk.start + chunk.num_tokens
            request.num_in_flight += 1
            if chunk.samples:
                sample_index.append(request.num_tokens)
                request.token_ids.append(PLACEHOLDER_TOKEN)
                request.phase = Phase.DECODE
        self.append(Flight(output, handle, sample_index, now_s))

    def abandon(self) -> list[Request]:
        """Drops all flights, which were built on a step that broke off; returns their requests.

        They are waited for, so that the device is idle afterwards.
        """
        requests: list[Request] = []
        for flight in self:
            with suppress(Exception):
                flight.handle.result()
            requests.extend(chunk.request for chunk in flight.output.chunks)
        self.clear()
        return requests
