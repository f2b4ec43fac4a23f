"""Text to token ids beside the engine thread, so that a long prompt holds no stream up.

Short texts are encoded where they are asked for: handing them over would cost more than it saves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.api.client import QueueClient
from engine.api.commands import Command, CountTokens
from engine.api.errors import EngineError, ErrorInfo, unexpected
from engine.limits import device_lost
from engine.model_loader import LoadedEngine, TextSide
from engine.side_jobs import SideJobs

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
        text: what the other thread encodes with, until it has.
    """

    client: QueueClient
    command: Command
    encode: Encode
    finish: Callable[[Any], None]
    refuse: Callable[[ErrorInfo], None]
    outcome: Any = None
    error: ErrorInfo | None = None
    dropped: bool = False
    text: TextSide | None = None

    @property
    def order_key(self) -> tuple[int, str]:
        """Jobs with one key end in the order in which they came."""
        return id(self.client), getattr(self.command, "conversation_id", "")

    def run(self, text: TextSide) -> None:
        """The first half."""
        try:
            self.outcome = self.encode(text, self.command)
        except BaseException as error:
            # A library in Rust that gives up tells it with something that is no Exception.
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


def _info(error: BaseException) -> ErrorInfo:
    return (error if isinstance(error, EngineError) else unexpected(error)).info()


class Encodings(SideJobs[EncodingJob]):
    """All encoding of one engine thread: at once, or in one other thread in order of arrival."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__(ENCODER_THREAD_NAME, _encode, changed)

    def start(self, engine: LoadedEngine, job: EncodingJob) -> None:
        """Encodes at once if the text is short and nothing of its conversation is on its way."""
        if num_chars(job.command) <= INLINE_CHARS and not self._must_wait(job):
            job.run(engine)
            job.conclude()
            return
        job.text = engine.text_beside()
        self.add(job)

    def _must_wait(self, job: EncodingJob) -> bool:
        return any(other.order_key == job.order_key for other in self)


def _encode(job: EncodingJob) -> None:
    # What has been unloaded must not live on in a job that waits for its end.
    text, job.text = job.text, None
    assert text is not None
    job.run(text)


def num_chars(command: Command) -> int:
    """Characters that a command would have encoded."""
    if isinstance(command, CountTokens):
        return len(command.text)
    return sum(len(message.content) for message in getattr(command, "messages", ()))
