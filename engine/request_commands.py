"""Commands about requests and conversations."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.api.client import QueueClient
from engine.api.commands import (
    Cancel,
    Command,
    Continue,
    Fork,
    Pause,
    Pin,
    Resume,
    SetFocus,
    Submit,
    Truncate,
    Unpin,
)
from engine.context_policy import kept_messages
from engine.encoding import Encodings
from engine.model_loader import TextSide
from engine.questions import Questions
from engine.slot import Slot
from engine.submissions import Submissions

Handler = Callable[[QueueClient, Command], None]


class RequestCommands:
    """``handlers``: what serves each kind of command."""

    def __init__(
        self, slot: Slot, submissions: Submissions, encodings: Encodings, questions: Questions
    ) -> None:
        self._slot = slot
        self._submissions = submissions
        self._encodings = encodings
        self._questions = questions
        self._pinned_by: dict[str, QueueClient] = {}
        self._focused_by: QueueClient | None = None
        self.handlers: dict[type[Command], Handler] = {
            Submit: self._submit,
            Continue: self._submit,
            Cancel: self._cancel,
            Fork: self._fork,
            Pause: self._pause,
            Resume: self._resume,
            Truncate: self._truncate,
            Pin: self._pin,
            Unpin: self._unpin,
            SetFocus: self._set_focus,
        }

    def depart(self, client: QueueClient) -> None:
        """Ends and lets go what the client has asked for."""
        self._submissions.depart(self._slot.engine, client)
        for conversation_id in [name for name, by in self._pinned_by.items() if by is client]:
            del self._pinned_by[conversation_id]
            if self._slot.engine is not None:
                self._slot.engine.core.pins.unpin(conversation_id)
        if self._focused_by is client:
            self._set_focus(client, SetFocus(""))
        self._slot.checked = False

    def forget_pins(self) -> None:
        """The engine goes away, and its pins with it."""
        self._pinned_by.clear()

    def _submit(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Submit | Continue)
        now, slot = time.perf_counter(), self._slot
        if slot.engine is None and slot.loader is not None:
            self._submissions.hold(client, command, now)
        else:
            self._submissions.submit(slot.engine, client, command, now)

    def _cancel(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Cancel)
        self._submissions.cancel(self._slot.engine, command.request_id)
        self._slot.checked = False

    def _fork(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Fork)
        self._submissions.fork(self._slot.loaded(), client, command)

    def _pause(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Pause)
        core = self._slot.loaded().core
        core.pause(command.request_id)
        self._submissions.post(core.take_events())

    def _resume(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Resume)
        core = self._slot.loaded().core
        core.resume(command.request_id)
        self._submissions.post(core.take_events())

    def _truncate(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Truncate)
        core = self._slot.loaded().core
        core.truncate(command.request_id, command.num_tokens)
        self._submissions.post(core.take_events())

    def _pin(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Pin)
        engine, conversation_id = self._slot.loaded(), command.conversation_id

        def finish(token_ids: list[int]) -> None:
            engine.core.pins.pin(conversation_id, token_ids)
            self._pinned_by[conversation_id] = client

        self._questions.encode(engine, client, command, _encode_pinned, finish)

    def _unpin(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Unpin)
        engine, conversation_id = self._slot.loaded(), command.conversation_id
        self._encodings.drop(
            lambda job: (
                isinstance(job.command, Pin) and job.command.conversation_id == conversation_id
            )
        )
        self._pinned_by.pop(conversation_id, None)
        engine.core.pins.unpin(conversation_id)

    def _set_focus(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, SetFocus)
        self._slot.focus = command.conversation_id
        self._focused_by = client
        if self._slot.engine is not None:
            self._slot.engine.core.scheduler.focus = command.conversation_id


def _encode_pinned(text: TextSide, command: Pin) -> list[int]:
    messages = kept_messages(command.messages, command.context)
    # One that ends with an answer is pinned as far as that answer goes.
    is_answered = bool(messages) and messages[-1].role == "assistant"
    return text.encoder.encode(messages, continue_answer=is_answered).token_ids
