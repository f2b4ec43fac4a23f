"""Describes models beside the engine thread, one after the other, from their headers.

A header with a large vocabulary is walked over in Python, which holds the interpreter: the walk
rests after each quarter of a millisecond, so that neither steps nor the window feel it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.api.client import QueueClient
from engine.api.commands import DescribeModel
from engine.api.errors import EngineError, ErrorInfo, InterruptedQueryError, unexpected
from engine.api.events import ModelDescribed
from engine.api.model_description import DescriptionNote, ModelDescription
from engine.held_memory import Held
from engine.questions import CANCELLED
from engine.roster import refuse
from engine.side_jobs import SideJobs
from engine.torch_preload import preload_torch

MAX_WAITING = 256
DESCRIBER_THREAD_NAME = "quire-describer"
_WORK_S = 0.000_25
_REST_S = 0.001


class _Dropped(Exception):
    """Nobody waits for the answer any more."""


@dataclass(slots=True, eq=False)
class _Job:
    client: QueueClient
    command: DescribeModel
    held: Held
    description: ModelDescription | None = None
    error: ErrorInfo | None = None
    dropped: bool = False

    def conclude(self) -> None:
        """Gives the answer. Engine thread."""
        if self.description is None:
            assert self.error is not None
            refuse(self.client, self.command, self.error)
            return
        command = self.command
        self.client.post(ModelDescribed(command.command_id, command.path, self.description))


class Describer:
    """All descriptions of one engine thread, in a thread of their own.

    ``changed`` is called from that thread whenever there is something to ``conclude``.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._jobs: SideJobs[_Job] = SideJobs(DESCRIBER_THREAD_NAME, self._describe, changed)

    def ask(self, client: QueueClient, command: DescribeModel, held: Held) -> None:
        """Takes up a question; its answer comes later.

        Raises:
            InterruptedQueryError: too many are waiting.
        """
        if len(self._jobs) >= MAX_WAITING:
            raise InterruptedQueryError(
                f"{MAX_WAITING} models are waiting to be described.", waiting=MAX_WAITING
            )
        self._jobs.add(_Job(client, command, held))

    def conclude(self) -> None:
        """Gives the answers that were found since the last call."""
        self._jobs.conclude()

    def cancel(self, client: QueueClient, query_id: str) -> None:
        """Ends one of the client's questions; one that is not waiting is ignored."""
        self._drop(CANCELLED, lambda job: job.client is client and _is_called(job, query_id))

    def drop_of(self, client: QueueClient, error: ErrorInfo) -> None:
        """The client goes away."""
        self._drop(error, lambda job: job.client is client)

    def close(self, error: ErrorInfo, timeout_s: float) -> bool:
        """Refuses what is waiting and ends the thread; False if that took longer."""
        self._drop(error, lambda _job: True)
        return self._jobs.close(timeout_s)

    def _drop(self, error: ErrorInfo, is_meant: Callable[[_Job], bool]) -> None:
        for job in self._jobs.drop(is_meant):
            refuse(job.client, job.command, error)

    def _describe(self, job: _Job) -> None:
        """Finds the answer, or stops when nobody wants it any more."""
        rested = time.perf_counter()

        def breathe() -> None:
            nonlocal rested
            if job.dropped:
                raise _Dropped
            if time.perf_counter() - rested > _WORK_S:
                time.sleep(_REST_S)
                rested = time.perf_counter()

        try:
            breathe()
            job.description = _description(job.command, job.held, breathe)
        except _Dropped:
            pass
        except Exception as error:
            known = error if isinstance(error, EngineError) else unexpected(error)
            job.error = known.info()


def _is_called(job: _Job, query_id: str) -> bool:
    return bool(query_id) and job.command.command_id == query_id


def _description(
    command: DescribeModel, held: Held, breathe: Callable[[], None]
) -> ModelDescription:
    # Imported here: with no model loaded yet, these are the first to need numpy and torch.
    from engine.loading.describe import describe

    facts = describe(Path(command.path), breathe)
    breathe()
    preload_torch()
    from engine.loading.estimate import estimate

    found = estimate(facts, command.config, held)
    config, notes = facts.config, list(facts.notes)
    if found.context_length < config.context_length:
        notes.append(DescriptionNote.CUT_CONTEXT)
    return ModelDescription(
        path=command.path,
        name=facts.name,
        family=facts.family,
        architecture=config.architecture,
        quantization=facts.quantization,
        num_parameters=facts.num_parameters,
        file_bytes=facts.identity.file_bytes,
        context_length=found.context_length,
        license=facts.license,
        has_chat_template=facts.has_chat_template,
        device=str(found.device),
        dtype=str(found.dtype).removeprefix("torch."),
        weights_bytes=found.weights_bytes,
        kv_bytes_per_1000_tokens=1000 * found.block_bytes // command.config.block_size,
        workspace_bytes=found.workspace_bytes,
        free_bytes=found.memory.free,
        total_bytes=found.memory.total,
        block_size=command.config.block_size,
        num_blocks=found.num_blocks,
        fits=found.fits,
        format=facts.format,
        identity=facts.identity,
        trained_context_length=config.context_length,
        notes=tuple(notes),
    )
