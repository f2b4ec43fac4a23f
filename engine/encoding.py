"""Text to token ids beside the engine thread, so that a long prompt holds no stream up.

Short texts are encoded where they are asked for: handing them over would cost more than it saves.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.api.client import QueueClient
from engine.api.commands import Command, CountTokens
from engine.api.errors import EngineError, ErrorInfo, unexpected
from engine.limits import device_lost
from engine.model_loader import LoadedEngine, TextSide

INLINE_CHARS = 4_000
"""About 3 ms of encoding: less than one step of a small model."""

ENCODER_THREAD_NAME = "quire-encoder"

Encode = Callable[[TextSide, Any], Any]
"""Makes of a command what its second half needs; it may run in another thread."""


@dataclass(slots=True, eq=False)
class EncodingJob:
    """A command whose first half is encoding.

    Args:
        client: who asked.
        command: what for.
        encode: the first half.
        finish: the second half, on the engine thread, with what ``encode`` gave.
        refuse: instead of ``finish`` when encoding or ``finish`` failed.
    """

    client: QueueClient
    command: Command
    encode: Encode
    finish: Callable[[Any], None]
    refuse: Callable[[ErrorInfo], None]
    outcome: Any = None
    error: ErrorInfo | None = None
    dropped: bool = False

    @property
    def order_key(self) -> tuple[int, str]:
        """Jobs with one key end in the order in which they came."""
        return id(self.client), getattr(self.command, "conversation_id", "")

    def run(self, text: TextSide) -> None:
        """The first half."""
        try:
            self.outcome = self.encode(text, self.command)
        except Exception as error:
            self.error = _info(error)

    def conclude(self) -> None:
        """The second half, on the engine thread.

        Raises:
            DeviceLostError: the device died.
        """
        if self.error is not None:
            self.refuse(self.error)
            return
        try:
            self.finish(self.outcome)
        except Exception as error:
            lost = device_lost(error)
            self.refuse(lost.info() if lost is not None else _info(error))
            if lost is not None:
                raise lost from error


def _info(error: Exception) -> ErrorInfo:
    return (error if isinstance(error, EngineError) else unexpected(error)).info()


class Encodings:
    """All encoding of one engine thread: at once, or in one other thread in order of arrival.

    ``changed`` is called from that thread whenever a job is done.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._pending: dict[EncodingJob, None] = {}
        self._todo: deque[tuple[EncodingJob, TextSide]] = deque()
        self._done: deque[EncodingJob] = deque()
        self._work = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being encoded."""
        return not self._pending

    def start(self, engine: LoadedEngine, job: EncodingJob) -> None:
        """Encodes at once if the text is short and nothing of its conversation is on its way."""
        if num_chars(job.command) <= INLINE_CHARS and not self._must_wait(job):
            job.run(engine)
            job.conclude()
            return
        self._pending[job] = None
        self._todo.append((job, engine.text_beside()))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=ENCODER_THREAD_NAME, daemon=True)
            self._thread.start()
        self._work.set()

    def conclude(self) -> None:
        """Ends what has been encoded since the last call. Engine thread."""
        while self._done:
            job = self._done.popleft()
            if not job.dropped:
                del self._pending[job]
                job.conclude()

    def drop(self, which: Callable[[EncodingJob], bool] = lambda _job: True) -> list[EncodingJob]:
        """Forgets jobs, also the one that runs; neither of their ends will be called."""
        dropped = [job for job in self._pending if which(job)]
        for job in dropped:
            job.dropped = True
            del self._pending[job]
        return dropped

    def close(self, timeout_s: float) -> bool:
        """Ends the thread after the job that runs; False if that took longer."""
        self.drop()
        self._closing = True
        self._work.set()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _must_wait(self, job: EncodingJob) -> bool:
        return any(other.order_key == job.order_key for other in self._pending)

    def _run(self) -> None:
        while not self._closing:
            self._work.wait()
            self._work.clear()
            while self._todo and not self._closing:
                job, text = self._todo.popleft()
                if not job.dropped:
                    job.run(text)
                    self._done.append(job)
                    self._changed()
                # What has been unloaded must not live on here.
                del job, text


def num_chars(command: Command) -> int:
    """Characters that a command would have encoded."""
    if isinstance(command, CountTokens):
        return len(command.text)
    return sum(len(message.content) for message in getattr(command, "messages", ()))
