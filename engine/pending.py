"""Requests that the core does not know yet: a model loads, or their prompt is being encoded.

No torch.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from engine.api.client import QueueClient
from engine.api.commands import Cancel, Command, Continue, Fork, Pause, Resume, Submit, Truncate
from engine.api.errors import DuplicateIdError, ErrorInfo
from engine.api.events import FinishReason, RequestWaiting, WaitReason
from engine.api.refusal import ids_of, unstarted
from engine.encoding import EncodingJob, Encodings
from engine.roster import refuse

_OF_A_REQUEST = (Pause, Resume, Fork, Truncate)


@dataclass(slots=True, eq=False)
class Pending:
    """The requests of one command.

    ``waiting``: those that have not been cancelled since. ``deferred``: commands about them, for
    when the core knows them. ``job``: the encoding of their prompt, once it has begun.
    """

    client: QueueClient
    command: Submit | Continue
    arrival_s: float
    waiting: dict[str, None]
    deferred: list[tuple[QueueClient, Command]] = field(default_factory=list)
    job: EncodingJob | None = None


class PendingRequests:
    """``handle`` serves a command again that came too early."""

    def __init__(
        self, encodings: Encodings, handle: Callable[[QueueClient, Command], None]
    ) -> None:
        self._encodings = encodings
        self._handle = handle
        self._by_id: dict[str, Pending] = {}
        self._held: list[Pending] = []

    def find(self, request_id: str) -> Pending | None:
        return self._by_id.get(request_id)

    def begin(
        self,
        client: QueueClient,
        command: Submit | Continue,
        arrival_s: float,
        running: Container[str],
    ) -> Pending:
        """Takes up a command's requests. ``running``: ids that are in use besides.

        Raises:
            DuplicateIdError: a request id is in use.
        """
        request_ids = ids_of(command)
        for index, request_id in enumerate(request_ids):
            known = request_id in running or request_id in self._by_id
            if known or request_id in request_ids[:index]:
                raise DuplicateIdError(f"request {request_id} exists already")
        pending = Pending(client, command, arrival_s, dict.fromkeys(request_ids))
        for request_id in request_ids:
            self._by_id[request_id] = pending
        return pending

    def entered(self, pending: Pending, request_id: str) -> None:
        """The core knows the request."""
        del self._by_id[request_id], pending.waiting[request_id]

    def settle(self, pending: Pending) -> None:
        """Serves the commands that came too early, now that it is known what became of it."""
        # The job names this and the engine, which would live on in the cycle once it is let go.
        pending.job = None
        deferred, pending.deferred = pending.deferred, []
        for client, command in deferred:
            self._handle(client, command)

    def defer(self, client: QueueClient, command: Command) -> bool:
        """Keeps a command about a request that the core does not know yet. False: it is no such."""
        if not isinstance(command, (*_OF_A_REQUEST, Cancel)):
            return False
        pending = self._by_id.get(command.request_id)
        if pending is None:
            pending = self._parent_of(command.request_id)
        elif isinstance(command, Cancel):
            return False
        if pending is not None:
            pending.deferred.append((client, command))
        return pending is not None

    def _parent_of(self, child_id: str) -> Pending | None:
        """What a fork waits for whose child is to have this id: also its end must wait then."""
        for pending in self._by_id.values():
            for _, command in pending.deferred:
                if isinstance(command, Fork) and command.new_request_id == child_id:
                    return pending
        return None

    # --- those that wait for a model ---

    def hold(self, pending: Pending) -> None:
        """Keeps requests until the model is there."""
        self._held.append(pending)
        command = pending.command
        for request_id in ids_of(command):
            waiting = RequestWaiting(request_id, command.conversation_id, WaitReason.LOADING)
            pending.client.post(waiting)

    def take_held(self) -> list[Pending]:
        """What was held, in order; nothing is held any more."""
        held, self._held = self._held, []
        return held

    def end_held(self) -> None:
        """Cancels every request that waits for a model: none will come."""
        for pending in list(self._held):
            self.end(pending, FinishReason.CANCELLED)

    # --- the end of those that do not get into the core ---

    def end(self, pending: Pending, reason: FinishReason, error: ErrorInfo | None = None) -> None:
        """Ends what is left of a command's requests."""
        for request_id in list(pending.waiting):
            del self._by_id[request_id], pending.waiting[request_id]
            pending.client.post(unstarted(pending.command, request_id, reason, error))
        self._forget(pending)
        self.settle(pending)

    def end_of(self, client: QueueClient) -> None:
        """Cancels all requests of a client."""
        for pending in set(self._by_id.values()):
            if pending.client is client:
                self.end(pending, FinishReason.CANCELLED)

    def end_unheld(self) -> None:
        """Cancels every request whose prompt is being encoded."""
        for pending in set(self._by_id.values()).difference(self._held):
            self.end(pending, FinishReason.CANCELLED)

    def fail_all(self, error: ErrorInfo) -> None:
        """Ends every request with an error."""
        for pending in set(self._by_id.values()):
            # Served now, they would come upon what broke the engine, and nobody else would be told.
            deferred, pending.deferred = pending.deferred, []
            self.end(pending, FinishReason.ERROR, error)
            for client, command in deferred:
                refuse(client, command, error)

    def cancel(self, request_id: str) -> bool:
        """Ends one request. False if it is not among these."""
        pending = self._by_id.pop(request_id, None)
        if pending is None:
            return False
        del pending.waiting[request_id]
        pending.client.post(unstarted(pending.command, request_id, FinishReason.CANCELLED))
        if not pending.waiting:
            self._forget(pending)
            self.settle(pending)
        return True

    def _forget(self, pending: Pending) -> None:
        """Nothing of it is wanted any more."""
        if pending in self._held:
            self._held.remove(pending)
        self._encodings.drop(lambda job: job is pending.job)
