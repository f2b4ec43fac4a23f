"""From a Submit to requests in the core, and from the core's events back to the right client."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

from engine.api.client import QueueClient
from engine.api.commands import Command, Continue, Fork, Submit
from engine.api.errors import (
    DuplicateIdError,
    EmptyMessageError,
    EngineError,
    ErrorInfo,
    NoModelError,
)
from engine.api.events import (
    FinishReason,
    RequestEvent,
    RequestFinished,
    RequestQueued,
    RequestUsage,
)
from engine.api.refusal import ids_of
from engine.context_policy import FittedPrompt, fit_prompt
from engine.encoding import EncodingJob, Encodings
from engine.limits import raise_if_lost
from engine.model_loader import LoadedEngine, TextSide
from engine.pending import Pending, PendingRequests


@dataclass(frozen=True, slots=True)
class _Running:
    client: QueueClient
    conversation_id: str


class Submissions:
    """Knows which client made which request, and holds requests back while a model loads.

    ``handle`` serves a command again that came too early.
    """

    def __init__(
        self, encodings: Encodings, handle: Callable[[QueueClient, Command], None]
    ) -> None:
        self._encodings = encodings
        self._pending = PendingRequests(encodings, handle)
        self._running: dict[str, _Running] = {}

    # --- from the command to the core ---

    def hold(self, client: QueueClient, command: Submit | Continue, now_s: float) -> None:
        """Keeps a request until the model is there.

        Raises:
            DuplicateIdError: a request id is in use.
        """
        self._pending.hold(self._pending.begin(client, command, now_s, self._running))

    def release_held(self, engine: LoadedEngine) -> None:
        """The model is there: submits what was held, in order."""
        for pending in self._pending.take_held():
            self._encode(engine, pending)

    def refuse_held(self, error: ErrorInfo) -> None:
        """The model did not come: every held request ends with the reason."""
        for pending in self._pending.take_held():
            self._refuse(pending, error)

    def submit(
        self,
        engine: LoadedEngine | None,
        client: QueueClient,
        command: Submit | Continue,
        now_s: float,
    ) -> None:
        """Encodes the prompt, at once or soon, and queues one request for each answer wanted.

        Raises:
            DuplicateIdError: a request id is in use; the request that has it goes on.
        """
        pending = self._pending.begin(client, command, now_s, self._running)
        if engine is None:
            self._refuse(pending, NoModelError("No model is loaded.").info())
        else:
            self._encode(engine, pending)

    def defer(self, client: QueueClient, command: Command) -> bool:
        """Keeps a command about a request that the core does not know yet. False: it is no such."""
        return self._pending.defer(client, command)

    def _encode(self, engine: LoadedEngine, pending: Pending) -> None:
        pending.job = EncodingJob(
            pending.client,
            pending.command,
            encode=_fit,
            finish=lambda fitted: self._enter(engine, pending, fitted),
            refuse=lambda error: self._refuse(pending, error),
        )
        self._encodings.start(engine, pending.job)

    def _enter(self, engine: LoadedEngine, pending: Pending, fitted: FittedPrompt) -> None:
        self._add(engine, pending, fitted)
        self._pending.settle(pending)

    def _add(self, engine: LoadedEngine, pending: Pending, fitted: FittedPrompt) -> None:
        command, client, prompt = pending.command, pending.client, fitted.prompt
        continues = isinstance(command, Continue)
        _make_room(engine, command.conversation_id, fitted)
        seed = secrets.randbits(64) if command.params.seed is None else command.params.seed
        first = next(iter(pending.waiting))
        for index, request_id in enumerate(ids_of(command)):
            if request_id not in pending.waiting:
                continue
            params = replace(command.params, seed=answer_seed(seed, index))
            request = engine.core.add_request(
                request_id,
                prompt.token_ids,
                params,
                conversation_id=command.conversation_id,
                turn_start=prompt.turn_start,
                answer_start=prompt.answer_start if continues else None,
                answer_chars=prompt.answer_chars,
                output_index=index,
                sibling="" if request_id == first else first,
                arrival_s=pending.arrival_s,
            )
            self._pending.entered(pending, request_id)
            self._running[request_id] = _Running(client, command.conversation_id)
            client.post(
                RequestQueued(
                    request_id,
                    command.conversation_id,
                    prompt_tokens=request.num_tokens,
                    reencoded_tokens=prompt.reencoded_tokens,
                    params=params,
                    cut=fitted.cut,
                )
            )

    def _refuse(self, pending: Pending, error: ErrorInfo) -> None:
        """Those that have not got into the core end with the error."""
        self._pending.end(pending, FinishReason.ERROR, error)

    # --- one request, one client ---

    def may_touch(self, client: QueueClient, request_id: str) -> bool:
        """Whether the request is the client's; everything is the owner's."""
        found = self._running.get(request_id) or self._pending.find(request_id)
        return client.is_owner or found is None or found.client is client

    def fork(self, engine: LoadedEngine, client: QueueClient, command: Fork) -> None:
        """Splits a running request; the child's events go to the client that asked.

        Raises:
            UnknownIdError: there is no such request.
            DuplicateIdError: the child's id is in use.
        """
        child_id = command.new_request_id
        if self._pending.find(child_id) is not None:
            raise DuplicateIdError(f"request {child_id} exists already", request_id=child_id)
        try:
            engine.core.fork(
                command.request_id, child_id, command.new_conversation_id, command.seed
            )
            self._running[child_id] = _Running(client, command.new_conversation_id)
        except EngineError:
            raise
        except Exception:
            # It broke off in the middle: a child that nobody hears of must not be computed.
            engine.core.cancel(child_id)
            raise
        finally:
            # What was in flight has been committed, whether or not the parent was still there.
            self.post(engine.core.take_events())

    def cancel(self, engine: LoadedEngine | None, request_id: str) -> None:
        """Ends a request wherever it is; unknown ids are ignored."""
        if not self._pending.cancel(request_id) and engine is not None:
            engine.core.cancel(request_id)
            self.post(engine.core.take_events())

    def depart(self, engine: LoadedEngine | None, client: QueueClient) -> None:
        """Ends all requests of a client."""
        self._pending.end_of(client)
        if engine is not None:
            running = self._running.items()
            self._cancel_each(engine, [name for name, run in running if run.client is client])

    # --- all requests ---

    def cancel_all(self, engine: LoadedEngine) -> None:
        """Ends every request of an engine that is going away; those that are held stay."""
        self._pending.end_unheld()
        self._cancel_each(engine, list(engine.core.requests))

    def _cancel_each(self, engine: LoadedEngine, request_ids: list[str]) -> None:
        """Ends these, also if the books break over one.

        Raises:
            DeviceLostError: the device died.
        """
        for request_id in request_ids:
            try:
                engine.core.cancel(request_id)
            except Exception as error:
                # The books broke over it and were set up anew, which counts as a fault. It has
                # ended; whoever departs, or the model that goes, must not stay for that.
                raise_if_lost(error)
        self.post(engine.core.take_events())

    def cancel_held(self) -> None:
        """Ends every request that waits for a model: none will come."""
        self._pending.end_held()

    def fail_all(self, engine: LoadedEngine | None, error: ErrorInfo) -> None:
        """Ends every request with an error, whatever state the engine is in.

        What it has said so far is told first, and its ids if they can still be had.
        """
        self._pending.fail_all(error)
        for request_id, running in list(self._running.items()):
            if engine is not None:
                # What broke the engine may break this too; then the bare end must do.
                with suppress(Exception):
                    engine.core.fail(request_id, error)
                self.post(engine.core.take_events())
            if request_id in self._running:
                self.post([_bare_end(request_id, running.conversation_id, error)])

    def post(self, events: list[RequestEvent]) -> None:
        """Each event goes to the client that made the request."""
        for event in events:
            running = self._running.get(event.request_id)
            if running is None:
                continue
            running.client.post(event)
            if isinstance(event, RequestFinished):
                del self._running[event.request_id]


def _make_room(engine: LoadedEngine, conversation_id: str, fitted: FittedPrompt) -> None:
    """Lets go of pins of the conversation itself that no longer serve it, where they may be in the
    way.

    A cut leaves blocks pinned that the shorter prompt does not begin with. They count as taken for
    everybody else; the conversation they were pinned for must not be refused, or its answer cut
    short, because of them.
    """
    core, token_ids = engine.core, fitted.prompt.token_ids
    if fitted.cut.num_messages or not core.manager.can_ever_fit(token_ids):
        core.pins.trim(conversation_id, token_ids)


def _fit(text: TextSide, command: Submit | Continue) -> FittedPrompt:
    continues = isinstance(command, Continue)
    last = command.messages[-1] if command.messages else None
    if last is None or (not continues and not last.content.strip()):
        raise EmptyMessageError("There is nothing to answer: the last message is empty.")
    return fit_prompt(
        text,
        command.messages,
        command.context,
        max_tokens=command.params.max_tokens,
        continue_answer=continues,
    )


def answer_seed(seed: int, index: int) -> int:
    """The seed of answer ``index`` of several: the first keeps the request's own, so that one
    answer alone and the first of n agree.
    """
    if index == 0:
        return seed
    digest = sha256(seed.to_bytes(8, "little") + index.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "little")


def _bare_end(request_id: str, conversation_id: str, error: ErrorInfo) -> RequestFinished:
    return RequestFinished(
        request_id,
        conversation_id,
        reason=FinishReason.ERROR,
        text="",
        usage=RequestUsage(),
        turn=None,
        seed=0,
        error=error,
    )
