"""From a Submit to requests in the core, and from the core's events back to the right client."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from hashlib import sha256

from engine.api.client import QueueClient
from engine.api.commands import Continue, Fork, Submit
from engine.api.errors import (
    DuplicateIdError,
    EmptyMessageError,
    EngineError,
    ErrorInfo,
    NoModelError,
    unexpected,
)
from engine.api.events import (
    FinishReason,
    RequestEvent,
    RequestFinished,
    RequestQueued,
    RequestUsage,
    RequestWaiting,
    WaitReason,
)
from engine.api.params import SamplingParams
from engine.context_policy import fit_prompt
from engine.model_loader import LoadedEngine


@dataclass(frozen=True, slots=True)
class _Held:
    """A request that came while a model was loading."""

    client: QueueClient
    command: Submit | Continue
    arrival_s: float


class Submissions:
    """Knows which client made which request, and holds requests back while a model loads."""

    def __init__(self) -> None:
        self._client_of: dict[str, QueueClient] = {}
        self._held: list[_Held] = []

    def hold(self, client: QueueClient, command: Submit | Continue, now_s: float) -> None:
        """Keeps a request until the model is there.

        Raises:
            DuplicateIdError: a request id is in use.
        """
        self._require_new(command)
        self._held.append(_Held(client, command, now_s))
        for request_id in ids_of(command):
            client.post(RequestWaiting(request_id, command.conversation_id, WaitReason.LOADING))

    def release_held(self, engine: LoadedEngine) -> None:
        """The model is there: submits what was held, in order."""
        held, self._held = self._held, []
        for item in held:
            self.submit(engine, item.client, item.command, item.arrival_s)

    def refuse_held(self, error: ErrorInfo) -> None:
        """The model did not come: every held request ends with the reason."""
        held, self._held = self._held, []
        for item in held:
            _refuse(item.client, item.command, error)

    def submit(
        self,
        engine: LoadedEngine | None,
        client: QueueClient,
        command: Submit | Continue,
        now_s: float,
    ) -> None:
        """Encodes the prompt and queues one request for each answer wanted.

        Raises:
            DuplicateIdError: a request id is in use; the request that has it goes on.
        """
        self._require_new(command)
        try:
            if engine is None:
                raise NoModelError("No model is loaded.")
            self._add(engine, client, command, now_s)
        except EngineError as error:
            _refuse(client, command, error.info())
        except Exception as error:
            _refuse(client, command, unexpected(error).info())

    def _require_new(self, command: Submit | Continue) -> None:
        held = {request_id for item in self._held for request_id in ids_of(item.command)}
        for request_id in ids_of(command):
            if request_id in self._client_of or request_id in held:
                raise DuplicateIdError(f"request {request_id} exists already")

    def _add(
        self, engine: LoadedEngine, client: QueueClient, command: Submit | Continue, now_s: float
    ) -> None:
        continues = isinstance(command, Continue)
        last = command.messages[-1] if command.messages else None
        if last is None or (not continues and not last.content.strip()):
            raise EmptyMessageError("There is nothing to answer: the last message is empty.")
        fitted = fit_prompt(
            engine,
            command.messages,
            command.context,
            max_tokens=command.params.max_tokens,
            continue_answer=continues,
        )
        prompt = fitted.prompt
        seed = secrets.randbits(64) if command.params.seed is None else command.params.seed
        request_ids = ids_of(command)
        for index, request_id in enumerate(request_ids):
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
                sibling=request_ids[0] if index else "",
                arrival_s=now_s,
            )
            self._client_of[request_id] = client
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

    def fork(self, engine: LoadedEngine, client: QueueClient, command: Fork) -> None:
        """Splits a running request; the child's events go to the client that asked.

        Raises:
            UnknownIdError: there is no such request.
            DuplicateIdError: the child's id is in use.
        """
        engine.core.fork(
            command.request_id,
            command.new_request_id,
            command.new_conversation_id,
            command.seed,
        )
        self._client_of[command.new_request_id] = client
        self.post(engine.core.take_events())

    def cancel(self, engine: LoadedEngine | None, request_id: str) -> None:
        """Ends a request wherever it is; unknown ids are ignored."""
        for item in self._held:
            if request_id in ids_of(item.command):
                self._held.remove(item)
                item.client.post(_unstarted(item.command, request_id, FinishReason.CANCELLED))
                rest = tuple(other for other in ids_of(item.command) if other != request_id)
                if rest:
                    self._held.append(replace(item, command=_with_ids(item.command, rest)))
                return
        if engine is not None:
            engine.core.cancel(request_id)
            self.post(engine.core.take_events())

    def cancel_all(self, engine: LoadedEngine) -> None:
        """Ends every request of an engine that is going away."""
        for request_id in list(engine.core.requests):
            engine.core.cancel(request_id)
        self.post(engine.core.take_events())

    def post(self, events: list[RequestEvent]) -> None:
        """Each event goes to the client that made the request."""
        for event in events:
            client = self._client_of.get(event.request_id)
            if client is None:
                continue
            client.post(event)
            if isinstance(event, RequestFinished):
                del self._client_of[event.request_id]


def ids_of(command: Submit | Continue) -> tuple[str, ...]:
    """The requests that a command makes."""
    return (command.request_id,) if isinstance(command, Continue) else command.request_ids


def answer_seed(seed: int, index: int) -> int:
    """The seed of answer ``index`` of several: the first keeps the request's own, so that one
    answer
    alone and the first of n agree."""
    if index == 0:
        return seed
    digest = sha256(seed.to_bytes(8, "little") + index.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "little")


def _with_ids(command: Submit | Continue, request_ids: tuple[str, ...]) -> Submit | Continue:
    return command if isinstance(command, Continue) else replace(command, request_ids=request_ids)


def _unstarted(
    command: Submit | Continue,
    request_id: str,
    reason: FinishReason,
    error: ErrorInfo | None = None,
) -> RequestFinished:
    params: SamplingParams = command.params
    return RequestFinished(
        request_id,
        command.conversation_id,
        reason=reason,
        text="",
        usage=RequestUsage(),
        turn=None,
        seed=params.seed or 0,
        error=error,
    )


def _refuse(client: QueueClient, command: Submit | Continue, error: ErrorInfo) -> None:
    for request_id in ids_of(command):
        client.post(_unstarted(command, request_id, FinishReason.ERROR, error))
