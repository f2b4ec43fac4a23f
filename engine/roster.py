"""The clients at one engine: who is there, what each may do, and how a refusal is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from engine.api.client import Arrivals, QueueClient
from engine.api.commands import (
    Cancel,
    Command,
    Configure,
    Continue,
    DescribeModel,
    Disconnect,
    Fork,
    LoadModel,
    Pause,
    PauseEngine,
    Pin,
    Resume,
    ResumeEngine,
    SetRate,
    Shutdown,
    StepEngine,
    Submit,
    SubscribePool,
    Truncate,
    UnloadModel,
    Unpin,
)
from engine.api.errors import DuplicateIdError, ErrorInfo, NotAllowedError
from engine.api.events import CommandFailed, EngineStatusChanged, Event
from engine.api.refusal import refusals

GONE = ErrorInfo("disconnected", "This client has disconnected.")

_NEEDS: Mapping[type[Command], str] = MappingProxyType(
    {
        LoadModel: "models",
        UnloadModel: "models",
        Configure: "models",
        DescribeModel: "models",
        Continue: "continue",
        Fork: "fork",
        Truncate: "fork",
        Pause: "pause",
        Resume: "pause",
        Pin: "pins",
        Unpin: "pins",
        SubscribePool: "snapshots",
        PauseEngine: "pace",
        ResumeEngine: "pace",
        StepEngine: "pace",
        SetRate: "pace",
    }
)
"""The capability that a client must have for a command."""


class Roster:
    """``clients``: those that are there, in order of arrival."""

    def __init__(self, arrivals: Arrivals) -> None:
        self.clients: list[QueueClient] = []
        self._arrivals = arrivals
        self._inbox: deque[tuple[QueueClient, Command]] = deque()

    def take_arrivals(self) -> list[QueueClient]:
        """Those who have come since the last call; they are there now."""
        newcomers = self._arrivals.take()
        self.clients += newcomers
        return newcomers

    def take_commands(self) -> Iterator[tuple[QueueClient, Command]]:
        """What has been sent up to now, in each client's order."""
        for client in self.clients:
            self._inbox.extend((client, command) for command in client.take_commands())
        while self._inbox:
            client, command = self._inbox.popleft()
            if client in self.clients:
                yield client, command
            else:
                # It has departed with this command still behind it.
                refuse_unserved(client, command, GONE)

    def tell_all(self, event: Event) -> None:
        for client in self.clients:
            client.post(event)

    def dismiss(self, client: QueueClient) -> None:
        """The client has departed."""
        self.clients.remove(client)
        client.end(GONE)

    def end(self, event: EngineStatusChanged) -> None:
        """The engine thread ends, as ``event`` tells; nobody is served any more."""
        if event.error is not None:
            for client, command in self._inbox:
                refuse_unserved(client, command, event.error)
        self._arrivals.finish(event, self.clients)


def check_allowed(client: QueueClient, command: Command) -> None:
    """Raises:
    NotAllowedError: the client lacks the capability, or is not the one who may do this.
    """
    name = type(command).__name__
    needed = _NEEDS.get(type(command), "")
    if needed and needed not in client.capabilities:
        raise NotAllowedError(
            f"{name} needs the capability {needed}, which this client does not have.",
            command=name,
            capability=needed,
        )
    if isinstance(command, Shutdown) and not client.is_owner:
        raise NotAllowedError("Only the client that started the engine may end it.")
    if isinstance(command, Disconnect) and client.is_owner:
        raise NotAllowedError("The engine's owner ends it with Shutdown.")


def refuse(client: QueueClient, command: Command, error: ErrorInfo) -> None:
    """Tells a client that its command has failed."""
    # The ids of a duplicate are others', whose end is not to be told.
    if isinstance(command, Submit | Continue) and error.code != DuplicateIdError.code:
        refuse_unserved(client, command, error)
    elif not isinstance(command, Cancel):
        client.post(CommandFailed(command.command_id, type(command).__name__, error))


def refuse_unserved(client: QueueClient, command: Command, error: ErrorInfo) -> None:
    """Tells a client that nobody serves it any more, if it waits for an answer."""
    for event in refusals(command, error):
        client.post(event)
