"""Commands that are encoded first, and questions: from the command to the one reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.api.client import QueueClient
from engine.api.commands import Command
from engine.api.errors import ErrorInfo, NoModelError
from engine.api.events import Reply
from engine.encoding import Encode, EncodingJob, Encodings
from engine.inspections import Inspections
from engine.model_loader import LoadedEngine
from engine.queries import is_query, query_of
from engine.roster import refuse

CANCELLED = ErrorInfo("query_cancelled", "The question was cancelled.")


class Questions:
    """What has been asked of an engine and not been answered yet."""

    def __init__(self, encodings: Encodings, inspections: Inspections) -> None:
        self._encodings = encodings
        self._inspections = inspections

    def ask(self, engine: LoadedEngine | None, client: QueueClient, command: Command) -> None:
        """Answers now or later.

        Raises:
            NotSupportedYetError: a command of the interface that this engine does not do yet.
            NoModelError: nothing is loaded.
        """
        query = query_of(command)
        if engine is None:
            raise NoModelError("No model is loaded.")

        def finish(found: object) -> None:
            reply = query.reply(engine, command, found)
            if isinstance(reply, Reply):
                client.post(reply)
            else:
                self._inspections.add(client, command, reply)

        self.encode(engine, client, command, query.encode, finish)

    def encode(
        self,
        engine: LoadedEngine,
        client: QueueClient,
        command: Command,
        encode: Encode,
        finish: Callable[[Any], None],
    ) -> None:
        """Calls ``finish`` with what ``encode`` gave, on the engine thread, now or later."""
        job = EncodingJob(
            client,
            command,
            encode,
            finish,
            refuse=lambda error: refuse(client, command, error),
        )
        self._encodings.start(engine, job)

    def cancel(self, client: QueueClient, query_id: str) -> None:
        """Ends one of the client's questions; one that is not waiting is ignored."""

        def is_meant(asker: QueueClient, command: Command) -> bool:
            return asker is client and command.command_id == query_id

        if not query_id:
            return
        for job in self._encodings.drop(
            lambda job: is_query(job.command) and is_meant(job.client, job.command)
        ):
            job.refuse(CANCELLED)
        self._inspections.drop(CANCELLED, is_meant)

    def drop(self, error: ErrorInfo) -> None:
        """The engine goes away: nothing will be answered any more."""
        for job in self._encodings.drop():
            job.refuse(error)
        self._inspections.drop(error)

    def drop_of(self, client: QueueClient, error: ErrorInfo) -> None:
        """The client goes away."""
        for job in self._encodings.drop(lambda job: job.client is client):
            job.refuse(error)
        self._inspections.drop(error, lambda asker, _command: asker is client)

    def abandon(self, error: ErrorInfo) -> None:
        """The engine has failed."""
        for job in self._encodings.drop():
            job.refuse(error)
        self._inspections.abandon(error)
