"""The client's end of the engine: queues and one wake-up, standard library only."""

from __future__ import annotations

import importlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine.api.commands import Command
from engine.api.events import Event
from engine.api.snapshot import Snapshot

ENGINE_THREAD_NAME = "quire-engine"
CAPABILITIES = frozenset(
    {"snapshots", "block_events", "models", "fork", "pause", "continue", "pins"}
)


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
        """Shuts the engine down and waits. False if its thread was still alive after the time."""


class QueueClient:
    """An ``EngineClient`` over two deques; the worker holds the other end."""

    def __init__(self, capabilities: frozenset[str] = CAPABILITIES) -> None:
        self._capabilities = capabilities
        self._commands: deque[Command] = deque()
        self._events: deque[Event] = deque()
        self._snapshot: Snapshot | None = None
        self._wakeup: Callable[[], None] | None = None
        self._wakeup_pending = False
        self._command_posted: Callable[[], None] = lambda: None
        self._closer: Callable[[float], bool] = lambda _timeout_s: True

    @property
    def capabilities(self) -> frozenset[str]:
        return self._capabilities

    def send(self, command: Command) -> None:
        self._commands.append(command)
        self._command_posted()

    def poll_events(self) -> list[Event]:
        # Cleared first: an event posted while we pop asks for another wake-up instead of being
        # missed.
        self._wakeup_pending = False
        events: list[Event] = []
        while self._events:
            events.append(self._events.popleft())
        return events

    def latest_snapshot(self) -> Snapshot | None:
        return self._snapshot

    def set_wakeup(self, wakeup: Callable[[], None] | None) -> None:
        self._wakeup = wakeup
        if wakeup is not None and self._events:
            self._wake()

    def close(self, timeout_s: float = 5.0) -> bool:
        self._wakeup = None
        return self._closer(timeout_s)

    # --- the engine's side ---

    def attach(self, command_posted: Callable[[], None], closer: Callable[[float], bool]) -> None:
        """Called once by the engine's side: how to wake it, and how to end it."""
        self._command_posted = command_posted
        self._closer = closer

    def take_commands(self) -> list[Command]:
        """All commands since the last call, in order."""
        commands: list[Command] = []
        while self._commands:
            commands.append(self._commands.popleft())
        return commands

    def post(self, event: Event) -> None:
        """Hands an event to the client. Called from the engine thread."""
        self._events.append(event)
        if not self._wakeup_pending:
            self._wake()

    def publish(self, snapshot: Snapshot) -> None:
        """Replaces the snapshot that ``latest_snapshot`` returns."""
        self._snapshot = snapshot

    def _wake(self) -> None:
        self._wakeup_pending = True
        wakeup = self._wakeup
        if wakeup is not None:
            wakeup()


def start_engine() -> EngineClient:
    """Starts an engine thread and returns its client at once.

    The engine is imported by its own thread, so that the caller pays for no torch import.
    """
    client = QueueClient()
    stopped = threading.Event()
    posted = threading.Event()

    def run() -> None:
        # Imported by name: the interface must not depend on what it fronts.
        importlib.import_module("engine.worker").run_worker(client, posted)
        stopped.set()

    thread = threading.Thread(target=run, name=ENGINE_THREAD_NAME, daemon=True)

    def close(timeout_s: float) -> bool:
        from engine.api.commands import Shutdown

        client.send(Shutdown())
        thread.join(timeout_s)
        return not thread.is_alive()

    client.attach(posted.set, close)
    thread.start()
    return client
