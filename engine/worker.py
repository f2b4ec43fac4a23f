"""The engine thread: drain commands -> step -> publish."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from engine import queries
from engine.api.client import Arrivals, QueueClient
from engine.api.commands import (
    Cancel,
    Command,
    Configure,
    Continue,
    Disconnect,
    Fork,
    LoadModel,
    Pause,
    PauseEngine,
    Pin,
    Resume,
    ResumeEngine,
    SetFocus,
    SetRate,
    Shutdown,
    StepEngine,
    Submit,
    SubscribePool,
    Truncate,
    UnloadModel,
    Unpin,
    UnsubscribePool,
)
from engine.api.errors import (
    DeviceLostError,
    DuplicateIdError,
    EngineError,
    ErrorInfo,
    InvalidValueError,
    LoadCancelledError,
    NoModelError,
    NotAllowedError,
    NotSupportedYetError,
    UnknownIdError,
    unexpected,
)
from engine.api.events import (
    CommandFailed,
    EngineStatus,
    EngineStatusChanged,
    Event,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelUnloaded,
    Reply,
)
from engine.api.refusal import refusals
from engine.context_policy import kept_messages
from engine.encoding import Encode, EncodingJob, Encodings
from engine.inspections import ALONE_S, BESIDE_ANSWERS_S, Inspections
from engine.limits import device_lost
from engine.model_loader import LoadedEngine, ModelLoader, TextSide
from engine.pacer import Pacer
from engine.publisher import Publisher
from engine.snapshotter import Snapshotter
from engine.submissions import Submissions

_LOADER_PATIENCE_S = 3.0
_ENCODER_PATIENCE_S = 1.0
_STUCK_WAIT_S = 0.05


_NEEDS: dict[type[Command], str] = {
    LoadModel: "models",
    UnloadModel: "models",
    Configure: "models",
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
"""The capability that a client must have for a command."""


def run_worker(arrivals: Arrivals, posted: threading.Event) -> None:
    """Serves all clients until the owner sends Shutdown.

    ``posted`` is set whenever a command was queued or a client came.
    """
    Worker(arrivals, posted).run()


class Worker:
    """Everything that happens on the engine thread."""

    def __init__(self, arrivals: Arrivals, posted: threading.Event) -> None:
        self._arrivals = arrivals
        self._clients: list[QueueClient] = []
        self._inbox: deque[tuple[QueueClient, Command]] = deque()
        self._posted = posted
        self._pacer = Pacer()
        self._publisher = Publisher()
        self._encodings = Encodings(posted.set)
        self._submissions = Submissions(self._encodings, self._handle)
        self._inspections = Inspections()
        self._engine: LoadedEngine | None = None
        self._snapshotter: Snapshotter | None = None
        self._loader: ModelLoader | None = None
        self._status = EngineStatus.NO_MODEL
        self._checked = True
        self._focus = ""
        self._focused_by: QueueClient | None = None
        self._pinned: dict[str, QueueClient] = {}
        self._stopping = False
        self._handlers: dict[type[Command], Callable[[QueueClient, Command], None]] = {
            LoadModel: self._load_model,
            UnloadModel: self._unload_model,
            Submit: self._submit,
            Continue: self._submit,
            Cancel: self._cancel,
            Fork: self._fork,
            Pause: self._pause_request,
            Pin: self._pin,
            Unpin: self._unpin,
            Resume: self._resume_request,
            Truncate: self._truncate,
            Configure: self._configure,
            SetFocus: self._set_focus,
            PauseEngine: self._pause,
            ResumeEngine: self._resume,
            StepEngine: self._grant_steps,
            SetRate: self._set_rate,
            SubscribePool: self._subscribe,
            UnsubscribePool: self._unsubscribe,
            Disconnect: self._disconnect,
            Shutdown: self._shutdown,
        }

    def run(self) -> None:
        """Until Shutdown. A failure of the loop itself is reported and ends the thread."""
        end = EngineStatusChanged(EngineStatus.STOPPED)
        try:
            while not self._stopping:
                self._posted.clear()
                self._welcome()
                self._take_commands()
                self._encodings.conclude()
                self._take_load_outcomes()
                self._posted.wait(self._work())
            self._close()
        except Exception as error:
            lost = device_lost(error)
            info = (lost or unexpected(error)).info()
            end = EngineStatusChanged(EngineStatus.FAILED, error=info)
            self._give_up(info)
            raise
        finally:
            # Whatever else is broken, the clients have to know.
            self._arrivals.finish(end, self._clients)

    # --- the loop ---

    def _work(self) -> float | None:
        """Runs a step if one may run. Returns how long to sleep, None until a command comes."""
        engine = self._engine
        if engine is None or self._stopping:
            return 0.0 if self._stopping else None
        if self._pacer.paused:
            engine.core.note_pause(True)
            self._submissions.post(engine.core.take_events())
        now = time.perf_counter()
        wait: float | None = None
        if engine.core.has_work:
            wait = self._pacer.wait_s(now)
            if wait == 0.0:
                self._submissions.post(engine.core.step())
                now = time.perf_counter()
                self._pacer.stepped(now)
                self._checked = False
                self._publisher.stats(self._clients, now)
                self._inspections.advance(BESIDE_ANSWERS_S)
                if engine.core.is_stuck:
                    # Requests wait for blocks that only a command can free: look again now and
                    # then.
                    wait = _STUCK_WAIT_S
        elif not self._checked:
            self._settle(now)
        if self._inspections.are_waiting and wait != 0.0:
            self._inspections.advance(ALONE_S)
            wait = 0.0 if self._inspections.are_waiting else wait
        self._publisher.deliver(now)
        return _sooner(wait, self._publisher.wait_s(now))

    def _settle(self, now: float) -> None:
        """Nothing to compute: time to check the invariants and show the last numbers."""
        assert self._snapshotter is not None
        self._snapshotter.check()
        self._checked = True
        self._publisher.stats(self._clients, now, force=True)

    def _welcome(self) -> None:
        """Tells clients that have come how things stand."""
        for client in self._arrivals.take():
            self._clients.append(client)
            client.post(self._status_event())
            if self._engine is not None:
                client.post(ModelLoaded("", self._engine.info, self._engine.load_s))

    def _take_commands(self) -> None:
        for client in self._clients:
            self._inbox.extend((client, command) for command in client.take_commands())
        while self._inbox:
            client, command = self._inbox.popleft()
            if client in self._clients:
                self._handle(client, command)
            else:
                # It has departed with this command still behind it.
                self._refuse_all(client, command, _gone())

    def _handle(self, client: QueueClient, command: Command) -> None:
        try:
            self._check_allowed(client, command)
            handler = self._handlers.get(type(command))
            if self._submissions.defer(client, command):
                return
            if handler is not None:
                handler(client, command)
            else:
                self._ask(client, command)
        except Exception as error:
            lost = device_lost(error)
            # One bad command must not end the conversations of all others.
            known = error if isinstance(error, EngineError) else unexpected(error)
            self._refuse(client, command, (lost or known).info())
            if lost is not None:
                raise lost from error

    def _check_allowed(self, client: QueueClient, command: Command) -> None:
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
        request_id = getattr(command, "request_id", "")
        if isinstance(command, Continue) or self._submissions.may_touch(client, request_id):
            return
        raise UnknownIdError(f"There is no request {request_id}.", request_id=request_id)

    def _refuse(self, client: QueueClient, command: Command, error: ErrorInfo) -> None:
        # The ids of a duplicate are others', whose end is not to be told.
        if isinstance(command, Submit | Continue) and error.code != DuplicateIdError.code:
            self._refuse_all(client, command, error)
        elif not isinstance(command, Cancel):
            client.post(CommandFailed(command.command_id, type(command).__name__, error))

    @staticmethod
    def _refuse_all(client: QueueClient, command: Command, error: ErrorInfo) -> None:
        for event in refusals(command, error):
            client.post(event)

    def _ask(self, client: QueueClient, command: Command) -> None:
        query = queries.query_of(command)
        engine = self._loaded()

        def finish(found: object) -> None:
            reply = query.reply(engine, command, found)
            if isinstance(reply, Reply):
                client.post(reply)
            else:
                self._inspections.add(client, command, reply)

        self._encode(engine, client, command, query.encode, finish)

    def _encode(
        self,
        engine: LoadedEngine,
        client: QueueClient,
        command: Command,
        encode: Encode,
        finish: Callable[[Any], None],
    ) -> None:
        job = EncodingJob(
            client,
            command,
            encode,
            finish,
            refuse=lambda error: self._refuse(client, command, error),
        )
        self._encodings.start(engine, job)

    def _tell_all(self, event: Event) -> None:
        for client in self._clients:
            client.post(event)

    # --- models ---

    def _load_model(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, LoadModel)
        self._stop_loader()
        self._drop_engine()
        if "torch" in sys.modules:
            # What an engine that died has left behind sits in reference cycles.
            gc.collect()
        self._set_status(EngineStatus.LOADING)
        self._loader = ModelLoader(command, self._posted.set)

    def _unload_model(self, client: QueueClient, command: Command) -> None:
        self._stop_loader()
        self._submissions.cancel_held()
        self._drop_engine()
        self._set_status(EngineStatus.NO_MODEL)
        self._tell_all(ModelUnloaded(command.command_id))

    def _take_load_outcomes(self) -> None:
        loader = self._loader
        while loader is not None and loader.outcomes:
            outcome = loader.outcomes.popleft()
            if isinstance(outcome, ModelLoading):
                self._tell_all(outcome)
            elif isinstance(outcome, LoadedEngine):
                self._loader = None
                self._install(outcome, loader.command.command_id)
                return
            else:
                self._loader = None
                self._load_failed(loader.command.command_id, outcome)
                return

    def _install(self, engine: LoadedEngine, command_id: str) -> None:
        self._engine = engine
        engine.core.scheduler.focus = self._focus
        self._snapshotter = Snapshotter(engine.core, engine.block_bytes)
        now = time.perf_counter()
        self._publisher.attach(engine.core.log, self._snapshotter, now)
        self._set_status(EngineStatus.READY)
        self._tell_all(ModelLoaded(command_id, engine.info, engine.load_s))
        self._publisher.stats(self._clients, now, force=True)
        self._submissions.release_held(engine)

    def _load_failed(self, command_id: str, error: ErrorInfo) -> None:
        self._set_status(EngineStatus.NO_MODEL)
        self._submissions.refuse_held(error)
        self._tell_all(ModelLoadFailed(command_id, error))
        if error.code == DeviceLostError.code:
            raise DeviceLostError(error.message)

    def _stop_loader(self) -> None:
        if self._loader is not None:
            self._loader.cancel()
            error = LoadCancelledError("Loading was stopped.").info()
            self._tell_all(ModelLoadFailed(self._loader.command.command_id, error))
            self._loader = None

    def _drop_engine(self) -> None:
        if self._engine is None:
            return
        self._submissions.cancel_all(self._engine)
        self._drop_questions(NoModelError("The model was unloaded.").info())
        self._publisher.detach()
        self._pinned.clear()
        self._engine = self._snapshotter = None
        # Weights and pool are large and may sit in reference cycles.
        gc.collect()

    def _drop_questions(self, error: ErrorInfo) -> None:
        """What was to be answered from the engine, but will not be."""
        for job in self._encodings.drop():
            job.refuse(error)
        self._inspections.drop(error)

    # --- requests ---

    def _submit(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Submit | Continue)
        now = time.perf_counter()
        if self._engine is None and self._loader is not None:
            self._submissions.hold(client, command, now)
        else:
            self._submissions.submit(self._engine, client, command, now)

    def _cancel(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Cancel)
        self._submissions.cancel(self._engine, command.request_id)
        self._checked = False

    def _fork(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Fork)
        self._submissions.fork(self._loaded(), client, command)

    def _pause_request(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Pause)
        core = self._loaded().core
        core.pause(command.request_id)
        self._submissions.post(core.take_events())

    def _resume_request(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Resume)
        core = self._loaded().core
        core.resume(command.request_id)
        self._submissions.post(core.take_events())

    def _truncate(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Truncate)
        core = self._loaded().core
        core.truncate(command.request_id, command.num_tokens)
        self._submissions.post(core.take_events())

    def _configure(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Configure)
        engine = self._loaded()
        if engine.reconfigurer is None:
            raise NotSupportedYetError(f"{engine.info.backend} has no settings to change.")
        configured = engine.reconfigurer.configure(command.config, command.command_id)
        engine.info = configured.model
        self._submissions.post(engine.core.take_events())
        for each in self._clients:
            each.post(configured)

    def _pin(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Pin)
        engine, conversation_id = self._loaded(), command.conversation_id

        def finish(token_ids: list[int]) -> None:
            engine.core.pins.pin(conversation_id, token_ids)
            self._pinned[conversation_id] = client

        self._encode(engine, client, command, _encode_pinned, finish)

    def _unpin(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Unpin)
        engine, conversation_id = self._loaded(), command.conversation_id
        self._encodings.drop(
            lambda job: (
                isinstance(job.command, Pin) and job.command.conversation_id == conversation_id
            )
        )
        self._pinned.pop(conversation_id, None)
        engine.core.pins.unpin(conversation_id)

    def _loaded(self) -> LoadedEngine:
        if self._engine is None:
            raise NoModelError("No model is loaded.")
        return self._engine

    def _set_focus(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, SetFocus)
        self._focus = command.conversation_id
        self._focused_by = client
        if self._engine is not None:
            self._engine.core.scheduler.focus = command.conversation_id

    # --- pace ---

    def _pause(self, client: QueueClient, command: Command) -> None:
        self._pacer.pause()
        self._set_status(self._status)

    def _resume(self, client: QueueClient, command: Command) -> None:
        self._pacer.resume()
        if self._engine is not None:
            self._engine.core.note_pause(False)
            self._submissions.post(self._engine.core.take_events())
        self._set_status(self._status)

    def _grant_steps(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, StepEngine)
        if command.steps < 1:
            raise InvalidValueError(f"steps = {command.steps}: 1 or more", name="steps")
        self._pacer.grant(command.steps)

    def _set_rate(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, SetRate)
        rate = command.steps_per_s
        if rate is not None and not 0.0 < rate <= 1000.0:
            raise InvalidValueError(
                f"steps_per_s = {rate}: above 0, at most 1000, or None", name="steps_per_s"
            )
        self._pacer.steps_per_s = rate
        self._set_status(self._status)

    # --- clients ---

    def _subscribe(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, SubscribePool)
        if not 0.0 < command.max_rate_hz <= 1000.0:
            raise InvalidValueError(
                f"max_rate_hz = {command.max_rate_hz}: above 0, at most 1000", name="max_rate_hz"
            )
        self._publisher.subscribe(client, command.max_rate_hz, time.perf_counter())

    def _unsubscribe(self, client: QueueClient, command: Command) -> None:
        self._publisher.unsubscribe(client)

    def _disconnect(self, client: QueueClient, command: Command) -> None:
        """A client departs; what it has asked for goes with it."""
        if client.is_owner:
            raise NotAllowedError("The engine's owner ends it with Shutdown.")
        self._submissions.depart(self._engine, client)
        for job in self._encodings.drop(lambda job: job.client is client):
            job.refuse(_gone())
        self._inspections.drop(_gone(), lambda asker: asker is client)
        self._publisher.unsubscribe(client)
        if self._engine is not None:
            for conversation_id in [name for name, by in self._pinned.items() if by is client]:
                del self._pinned[conversation_id]
                self._engine.core.pins.unpin(conversation_id)
        if self._focused_by is client:
            self._set_focus(client, SetFocus(""))
        self._clients.remove(client)
        client.end(_gone())
        self._checked = False

    def _shutdown(self, client: QueueClient, command: Command) -> None:
        self._stopping = True

    def _close(self) -> None:
        loader = self._loader
        self._stop_loader()
        self._submissions.cancel_held()
        self._drop_engine()
        self._encodings.close(_ENCODER_PATIENCE_S)
        if loader is not None:
            loader.join(_LOADER_PATIENCE_S)

    def _give_up(self, error: ErrorInfo) -> None:
        """The loop itself failed: everything ends, as well as it still can."""
        self._submissions.fail_all(self._engine, error)
        for client, command in self._inbox:
            self._refuse_all(client, command, error)
        for job in self._encodings.drop():
            job.refuse(error)
        if self._loader is not None:
            self._loader.cancel()
            self._tell_all(ModelLoadFailed(self._loader.command.command_id, error))
        self._inspections.abandon(error)
        self._publisher.detach()
        self._engine = self._snapshotter = None
        self._encodings.close(_ENCODER_PATIENCE_S)

    def _status_event(self, error: ErrorInfo | None = None) -> EngineStatusChanged:
        return EngineStatusChanged(self._status, self._pacer.paused, self._pacer.steps_per_s, error)

    def _set_status(self, status: EngineStatus) -> None:
        self._status = status
        self._tell_all(self._status_event())


def _encode_pinned(text: TextSide, command: Pin) -> list[int]:
    return text.encoder.encode(kept_messages(command.messages, command.context)).token_ids


def _gone() -> ErrorInfo:
    return ErrorInfo("disconnected", "This client has disconnected.")


def _sooner(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
