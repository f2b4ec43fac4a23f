"""What is told of a command that comes to nothing, so that nobody waits for an answer."""

from __future__ import annotations

from engine.api.commands import (
    Cancel,
    CancelQuery,
    Command,
    Continue,
    Disconnect,
    LoadModel,
    SetFocus,
    Shutdown,
    Submit,
    SubscribePool,
    UnsubscribePool,
)
from engine.api.errors import ErrorInfo
from engine.api.events import (
    CommandFailed,
    Event,
    FinishReason,
    ModelLoadFailed,
    RequestFinished,
    RequestUsage,
)

_SILENT = (
    *(Cancel, CancelQuery, Disconnect, SetFocus),
    *(Shutdown, SubscribePool, UnsubscribePool),
)


def ids_of(command: Submit | Continue) -> tuple[str, ...]:
    """The requests that a command makes."""
    return (command.request_id,) if isinstance(command, Continue) else command.request_ids


def unstarted(
    command: Submit | Continue,
    request_id: str,
    reason: FinishReason,
    error: ErrorInfo | None = None,
) -> RequestFinished:
    """The end of a request that never reached the scheduler."""
    return RequestFinished(
        request_id,
        command.conversation_id,
        reason=reason,
        text="",
        usage=RequestUsage(),
        turn=None,
        seed=command.params.seed or 0,
        error=error,
    )


def refused(command: Submit | Continue, error: ErrorInfo) -> list[RequestFinished]:
    """The ends of all requests of a command that is refused."""
    return [unstarted(command, name, FinishReason.ERROR, error) for name in ids_of(command)]


def refusals(command: Command, error: ErrorInfo) -> list[Event]:
    """What answers ``command`` when nobody serves it any more.

    What would get no reply from a living engine gets none here either.
    """
    match command:
        case Submit() | Continue():
            return [*refused(command, error)]
        case LoadModel():
            return [ModelLoadFailed(command.command_id, error)]
    if isinstance(command, _SILENT):
        return []
    return [CommandFailed(command.command_id, type(command).__name__, error)]
