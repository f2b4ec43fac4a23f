"""The engine thread: drain commands -> step -> publish."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

from engine import queries
from engine.api.client import QueueClient
from engine.api.commands import (
    Cancel,
    Command,
    Continue,
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
    UnloadModel,
    Unpin,
    UnsubscribePool,
)
from engine.api.errors import (
    EngineError,
    ErrorInfo,
    InvalidValueError,
    NoModelError,
    unexpected,
)
from engine.api.events import (
    CommandFailed,
    EngineStatus,
    EngineStatusChanged,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelUnloaded,
)
from engine.context_policy import kept_messages
from engine.model_loader import LoadedEngine, ModelLoader
from engine.pacer import Pacer
from engine.publisher import Publisher
from engine.snapshotter import Snapshotter
from engine.submissions import Submissions

_LOADER_PATIENCE_S = 3.0
_STUCK_WAIT_S = 0.05


def run_worker(client: QueueClient, posted: threading.Event) -> None:
    """Serves one client until it sends Shutdown.

    ``posted`` is set whenever a command was queued.
    """
    Worker(client, posted).run()


class Worker:
    """Everything that happens on the engine thread."""

    def __init__(self, client: QueueClient, posted: threading.Event) -> None:
        self._clients = [client]
        self._posted = posted
        self._pacer = Pacer()
        self._publisher = Publisher()
        self._submissions = Submissions()
        self._engine: LoadedEngine | None = None
        self._snapshotter: Snapshotter | None = None
        self._loader: ModelLoader | None = None
        self._status = EngineStatus.NO_MODEL
        self._checked = True
        self._focus = ""
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
            SetFocus: self._set_focus,
            PauseEngine: self._pause,
            ResumeEngine: self._resume,
            StepEngine: self._grant_steps,
            SetRate: self._set_rate,
            SubscribePool: self._subscribe,
            UnsubscribePool: self._unsubscribe,
            Shutdown: self._shutdown,
        }

    def run(self) -> None:
        """Until Shutdown. A failure of the loop itself is reported and ends the thread."""
        try:
            self._set_status(EngineStatus.NO_MODEL)
            while not self._stopping:
                self._posted.clear()
                self._take_commands()
                self._take_load_outcomes()
                self._posted.wait(self._work())
        except Exception as error:
            info = unexpected(error).info()
            self._submissions.refuse_held(info)
            try:
                self._drop_engine()
            finally:
                # Whatever else is broken, the window has to know.
                self._set_status(EngineStatus.FAILED, info)
            raise
        self._close()

    # --- the loop ---

    def _work(self) -> float | None:
        """Runs a step if one may run. Returns how long to sleep, None until a command comes."""
        engine = self._engine
        if engine is None or self._stopping:
            return 0.0 if self._stopping else None
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
                if engine.core.is_stuck:
                    # Requests wait for blocks that only a command can free: look again now and
                    # then.
                    wait = _STUCK_WAIT_S
        elif not self._checked:
            self._settle(now)
        self._publisher.deliver(now)
        return _sooner(wait, self._publisher.wait_s(now))

    def _settle(self, now: float) -> None:
        """Nothing to compute: time to check the invariants and show the last numbers."""
        assert self._snapshotter is not None
        self._snapshotter.check()
        self._checked = True
        self._publisher.stats(self._clients, now, force=True)

    def _take_commands(self) -> None:
        for client in self._clients:
            for command in client.take_commands():
                self._handle(client, command)

    def _handle(self, client: QueueClient, command: Command) -> None:
        try:
            handler = self._handlers.get(type(command))
            if handler is not None:
                handler(client, command)
            else:
                client.post(queries.answer(self._engine, command))
        except EngineError as error:
            self._refuse(client, command, error)
        except Exception as error:
            # One bad command must not end the conversations of all others.
            self._refuse(client, command, unexpected(error))

    @staticmethod
    def _refuse(client: QueueClient, command: Command, error: EngineError) -> None:
        client.post(CommandFailed(command.command_id, type(command).__name__, error.info()))

    # --- models ---

    def _load_model(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, LoadModel)
        self._stop_loader()
        self._drop_engine()
        self._set_status(EngineStatus.LOADING)
        self._loader = ModelLoader(command, self._posted.set)

    def _unload_model(self, client: QueueClient, command: Command) -> None:
        self._stop_loader()
        self._drop_engine()
        self._set_status(EngineStatus.NO_MODEL)
        client.post(ModelUnloaded(command.command_id))

    def _take_load_outcomes(self) -> None:
        loader = self._loader
        while loader is not None and loader.outcomes:
            outcome = loader.outcomes.popleft()
            if isinstance(outcome, ModelLoading):
                for client in self._clients:
                    client.post(outcome)
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
        for client in self._clients:
            client.post(ModelLoaded(command_id, engine.info, engine.load_s))
        self._publisher.stats(self._clients, now, force=True)
        self._submissions.release_held(engine)

    def _load_failed(self, command_id: str, error: ErrorInfo) -> None:
        self._set_status(EngineStatus.NO_MODEL)
        self._submissions.refuse_held(error)
        for client in self._clients:
            client.post(ModelLoadFailed(command_id, error))

    def _stop_loader(self) -> None:
        if self._loader is not None:
            self._loader.cancel()
            self._loader = None

    def _drop_engine(self) -> None:
        if self._engine is None:
            return
        self._submissions.cancel_all(self._engine)
        self._publisher.detach()
        self._engine = self._snapshotter = None
        # Weights and pool are large and may sit in reference cycles.
        gc.collect()

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

    def _pin(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Pin)
        engine = self._loaded()
        messages = kept_messages(command.messages, command.context)
        engine.core.pins.pin(command.conversation_id, engine.encoder.encode(messages).token_ids)

    def _unpin(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Unpin)
        self._loaded().core.pins.unpin(command.conversation_id)

    def _loaded(self) -> LoadedEngine:
        if self._engine is None:
            raise NoModelError("No model is loaded.")
        return self._engine

    def _set_focus(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, SetFocus)
        self._focus = command.conversation_id
        if self._engine is not None:
            self._engine.core.scheduler.focus = command.conversation_id

    # --- pace ---

    def _pause(self, client: QueueClient, command: Command) -> None:
        self._pacer.pause()
        self._set_status(self._status)

    def _resume(self, client: QueueClient, command: Command) -> None:
        self._pacer.resume()
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

    def _shutdown(self, client: QueueClient, command: Command) -> None:
        self._stopping = True

    def _close(self) -> None:
        loader, self._loader = self._loader, None
        self._drop_engine()
        if loader is not None:
            loader.cancel()
            loader.join(_LOADER_PATIENCE_S)
        self._set_status(EngineStatus.STOPPED)

    def _set_status(self, status: EngineStatus, error: ErrorInfo | None = None) -> None:
        self._status = status
        event = EngineStatusChanged(status, self._pacer.paused, self._pacer.steps_per_s, error)
        for client in self._clients:
            client.post(event)


def _sooner(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
