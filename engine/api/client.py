"""The client's end of the engine: queues and one wake-up, standard library only."""

from __future__ import annotations

import importlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine.api.commands import Command, Disconnect, Shutdown
from engine.api.errors import ErrorInfo, InternalError
from engine.api.events import EngineStatus, EngineStatusChanged, Event
from engine.api.refusal import refusals
from engine.api.snapshot import Snapshot

ENGINE_THREAD_NAME = "quire-engine"
CAPABILITIES = frozenset(
    {"snapshots", "block_events", "models", "fork", "pause", "continue", "pins", "pace"}
)
"""All that an engine can do for a client. *models*: load and unload; *pace*: pause the engine, step
it, slow it down. A command beyond a client's own capabilities is refused."""


class EngineClient(Protocol):
    """What the application sees of an engine, in this process or elsewhere."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What this engine can do beyond chatting: snapshots, block_events, models, fork, pins …"""

    def send(self, command: Command) -> None:
        """Queues a command. Never blocks; may be called from any thread."""

    def poll_events(self) -> list[Event]:
        """All events since the last call, in order. Never blocks."""

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, or None before the first. One reference read."""

    def set_wakeup(self, wakeup: Callable[[], None] | None) -> None:
        """``wakeup`` is called from the engine thread, at most once until the next poll."""

    def close(self, timeout_s: float = 5.0) -> bool:
        """Leaves, and waits: the engine's owner ends it, any other client only departs.

        A client that departs takes its requests, subscription and pins with it. False if that had
        not happened after the time.
        """


class QueueClient:
    """An ``EngineClient`` over two deques; the worker holds the other end.

    ``is_owner``: it may end the engine and may act on every client's requests.
    """

    def __init__(
        self, capabilities: frozenset[str] = CAPABILITIES, *, is_owner: bool = True
    ) -> None:
        self.is_owner = is_owner
        self._capabilities = capabilities
        self._commands: deque[Command] = deque()
        self._events: deque[Event] = deque()
        self._snapshot: Snapshot | None = None
        self._wakeup: Callable[[], None] | None = None
        self._wakeup_pending = False
        self._over: ErrorInfo | None = None
        self._gone = threading.Event()
        self._command_posted: Callable[[], None] = lambda: None
        self._closer: Callable[[float], bool] = lambda _timeout_s: True

    @property
    def capabilities(self) -> frozenset[str]:
        return self._capabilities

    def send(self, command: Command) -> None:
        self._commands.append(command)
        if self._over is None:
            self._command_posted()
        else:
            self._refuse_commands()

    def poll_events(self) -> list[Event]:
        # Cleared first: an event posted while we pop asks for another wake-up instead of being
        # missed.
        self._wakeup_pending = False
        return [self._events.popleft() for _ in range(len(self._events))]

    def latest_snapshot(self) -> Snapshot | None:
        return self._snapshot

    def set_wakeup(self, wakeup: Callable[[], None] | None) -> None:
        self._wakeup = wakeup
        self._wakeup_pending = False
        if wakeup is not None and self._events:
            self._wake()

    def close(self, timeout_s: float = 5.0) -> bool:
        self._wakeup = None
        return self._closer(timeout_s)

    # --- the engine's side ---

    def attach(self, command_posted: Callable[[], None], closer: Callable[[float], bool]) -> None:
        """Called once by the engine's side: how to wake it, and how to leave it."""
        self._command_posted = command_posted
        self._closer = closer

    def take_commands(self) -> list[Command]:
        """All commands since the last call, in order; what is sent meanwhile is for the next."""
        return [self._commands.popleft() for _ in range(len(self._commands))]

    def post(self, event: Event) -> None:
        """Hands an event to the client. Called from the engine thread."""
        self._events.append(event)
        if not self._wakeup_pending:
            self._wake()

    def publish(self, snapshot: Snapshot) -> None:
        """Replaces the snapshot that ``latest_snapshot`` returns."""
        self._snapshot = snapshot

    def end(self, error: ErrorInfo) -> None:
        """Nobody serves this client any more: what it asked and will ask is refused."""
        self._over = error
        self._refuse_commands()
        self._gone.set()

    def wait_end(self, timeout_s: float) -> bool:
        """Waits for ``end``; False if it has not come in time."""
        return self._gone.wait(timeout_s)

    def _refuse_commands(self) -> None:
        """Refuses each command once, whichever thread comes upon it: the sender's or the engine's.

        A command that is queued just when the engine ends is found by one of the two.
        """
        assert self._over is not None
        while True:
            try:
                command = self._commands.popleft()
            except IndexError:
                return
            for event in refusals(command, self._over):
                self.post(event)

    def _wake(self) -> None:
        wakeup = self._wakeup
        # Pending only if somebody was told: a wake-up that is set later must not wait for it.
        if wakeup is not None:
            self._wakeup_pending = True
            wakeup()


class Arrivals:
    """Clients on their way to the engine thread, as long as there is one."""

    def __init__(self, owner: QueueClient) -> None:
        self._lock = threading.Lock()
        self._waiting = [owner]
        self._end: EngineStatusChanged | None = None

    def add(self, client: QueueClient) -> None:
        """From any thread. Where the engine has ended, the client is told so at once."""
        with self._lock:
            end = self._end
            if end is None:
                self._waiting.append(client)
        if end is not None:
            _dismiss(client, end)

    def take(self) -> list[QueueClient]:
        """Those who have come since the last call."""
        if not self._waiting:
            return []
        with self._lock:
            clients, self._waiting = self._waiting, []
        return clients

    def finish(self, end: EngineStatusChanged, attached: list[QueueClient]) -> None:
        """The engine thread ends: everybody here and everybody to come is told. Once only."""
        with self._lock:
            if self._end is not None:
                return
            self._end = end
            clients, self._waiting = [*attached, *self._waiting], []
        for client in clients:
            _dismiss(client, end)


def _dismiss(client: QueueClient, end: EngineStatusChanged) -> None:
    client.end(end.error or ErrorInfo("engine_stopped", "The engine has been shut down."))
    client.post(end)


class EngineHandle:
    """A running engine thread, and the way to it. ``owner``: the one client that may end it.

    The engine is imported by its own thread, so that the caller pays for no torch import.
    """

    def __init__(self, name: str = ENGINE_THREAD_NAME) -> None:
        """``name``: of the thread."""
        self.owner = QueueClient()
        self._posted = threading.Event()
        self._arrivals = Arrivals(self.owner)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.owner.attach(self._posted.set, self._shut_down)
        self._thread.start()

    def connect(self, capabilities: frozenset[str] = CAPABILITIES) -> EngineClient:
        """One more client, from any thread; it is told the engine's status and model first."""
        client = QueueClient(capabilities, is_owner=False)

        def leave(timeout_s: float) -> bool:
            client.send(Disconnect())
            return client.wait_end(timeout_s)

        client.attach(self._posted.set, leave)
        self._arrivals.add(client)
        self._posted.set()
        return client

    def _run(self) -> None:
        try:
            # Imported by name: the interface must not depend on what it fronts.
            worker = importlib.import_module("engine.worker")
            worker.run_worker(self._arrivals, self._posted)
        finally:
            # Nothing happens here if the worker has said why it ended.
            error = InternalError("The engine could not be started.").info()
            end = EngineStatusChanged(EngineStatus.FAILED, error=error)
            self._arrivals.finish(end, [])

    def _shut_down(self, timeout_s: float) -> bool:
        self.owner.send(Shutdown())
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


def start_engine(name: str = ENGINE_THREAD_NAME) -> EngineClient:
    """Starts an engine thread of this name and returns its owner's client at once."""
    return EngineHandle(name).owner
