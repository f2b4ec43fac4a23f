"""Writes what the pool does to a file, in a thread of its own."""

from __future__ import annotations

import errno
import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QObject, Qt, Signal, Slot
from shiboken6 import isValid

from app.bridge import Bridge
from app.i18n import tr
from engine.api.errors import TraceError
from engine.api.events import BlockEvents, PoolEvent
from engine.api.snapshot import Snapshot
from engine.api.trace import TraceWriter

_LOG = logging.getLogger(__name__)
END_TIMEOUT_S = 5.0
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


class Recorder(QObject):
    """Records from ``start`` to ``stop``, also while the panel is hidden.

    Signals:
        changed: recording has begun or ended. ``trouble`` says why if it ended by itself, in
            words for the user; ``num_events`` were written to ``path``.
    """

    changed = Signal()
    _ended = Signal(object)

    def __init__(self, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.path: Path | None = None
        self.trouble = ""
        self.num_events = 0
        self._bridge = bridge
        self._writer: _Writer | None = None
        self._ended.connect(self._on_ended, Qt.ConnectionType.QueuedConnection)
        app = QCoreApplication.instance()
        if app is not None:
            app.aboutToQuit.connect(self.stop)

    @property
    def is_recording(self) -> bool:
        return self._writer is not None

    def start(self, path: Path, snapshot: Snapshot) -> None:
        """Begins a new file with ``snapshot``, the newest of a subscription that goes on.

        What cannot be written is told by ``trouble``.
        """
        self.stop()
        self.path, self.trouble, self.num_events = path, "", 0
        writer = _Writer(path, snapshot)
        writer.on_failed = self._tell_failed
        self._writer = writer
        self.destroyed.connect(writer.end)
        self._bridge.block_events_received.connect(self._on_bridge_block_events_received)
        self._bridge.subscribe_pool()
        writer.start()
        self.changed.emit()

    @Slot()
    def stop(self) -> None:
        """Ends the recording and waits until everything is written. Does nothing without one."""
        writer = self._writer
        if writer is None:
            return
        writer.end()
        writer.join(END_TIMEOUT_S)
        self._finish(writer)

    def _tell_failed(self, writer: _Writer) -> None:
        """Called in the writer's thread, which may outlive this object."""
        if isValid(self):
            self._ended.emit(writer)

    def _finish(self, writer: _Writer) -> None:
        self._writer = None
        self.num_events = writer.num_events
        if writer.error is not None:
            self.trouble = _words(writer)
            _LOG.warning("recording ended: %r", writer.error)
        if isValid(self._bridge):
            self._bridge.block_events_received.disconnect(self._on_bridge_block_events_received)
            self._bridge.unsubscribe_pool()
        self.changed.emit()

    @Slot(object)
    def _on_bridge_block_events_received(self, batch: BlockEvents) -> None:
        if self._writer is not None and batch.events:
            self._writer.put(batch.events)

    @Slot(object)
    def _on_ended(self, writer: _Writer) -> None:
        if writer is self._writer:
            self._finish(writer)


class _Writer(threading.Thread):
    """``error`` is what ended it early; ``num_events`` reached the file."""

    def __init__(self, path: Path, snapshot: Snapshot) -> None:
        # A daemon: a file system that hangs must not keep the process alive.
        super().__init__(name="quire-recorder", daemon=True)
        self.path = path
        self.error: OSError | TraceError | None = None
        self.num_events = 0
        self.on_failed: Callable[[_Writer], None] | None = None
        self._snapshot = snapshot
        self._batches: queue.SimpleQueue[tuple[PoolEvent, ...] | None] = queue.SimpleQueue()

    def put(self, events: tuple[PoolEvent, ...]) -> None:
        self._batches.put(events)

    def end(self) -> None:
        self._batches.put(None)

    def run(self) -> None:
        try:
            self._write_all()
        except (OSError, TraceError) as error:
            self.error = error
            if self.on_failed is not None:
                self.on_failed(self)

    def _write_all(self) -> None:
        with self.path.open("w", encoding="utf-8", newline="\n") as file:
            trace = TraceWriter(file, self._snapshot)
            file.flush()
            while (events := self._batches.get()) is not None:
                trace.write(events)
                # So that a crash loses one delivery at most.
                file.flush()
                self.num_events += sum(e.seq > self._snapshot.last_seq for e in events)


def _words(writer: _Writer) -> str:
    error, name = writer.error, writer.path.name
    if isinstance(error, TraceError):
        return tr(
            "The recording {name} ended after {n} events: the stream has a gap. "
            "What was written can be opened; record again.",
            name=name,
            n=f"{writer.num_events:,}",
        )
    if isinstance(error, OSError) and error.errno in _FULL:
        return tr(
            "The disk is full: the recording {name} ended after {n} events. "
            "Make room, or record to another disk. What was written can be opened.",
            name=name,
            n=f"{writer.num_events:,}",
        )
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return tr(
        "The recording {name} cannot be written: {reason}. Choose another folder.",
        name=name,
        reason=reason,
    )
