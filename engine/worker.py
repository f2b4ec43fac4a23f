"""The engine thread: drain commands -> step -> publish."""

from __future__ import annotations

import threading
import time

from engine.api.client import Arrivals, QueueClient
from engine.api.commands import (
    CancelQuery,
    Command,
    Continue,
    DescribeModel,
    Disconnect,
    Shutdown,
    SubscribePool,
    UnsubscribePool,
)
from engine.api.errors import (
    EngineError,
    ErrorInfo,
    InterruptedQueryError,
    UnknownIdError,
    unexpected,
)
from engine.api.events import (
    EngineStatus,
    EngineStatusChanged,
    ModelLoaded,
    ModelLoadFailed,
)
from engine.core import EngineCore
from engine.describer import Describer
from engine.encoding import Encodings
from engine.held_memory import held_by
from engine.holds import least_spare
from engine.inspections import ALONE_S, BESIDE_ANSWERS_S, Inspections
from engine.limits import device_lost
from engine.model_commands import ModelCommands
from engine.model_loader import LoadedEngine
from engine.pace_commands import PaceCommands
from engine.pacer import Pacer
from engine.publisher import Publisher
from engine.questions import Questions
from engine.request_commands import Handler, RequestCommands
from engine.roster import GONE, Roster, check_allowed, refuse
from engine.slot import Slot
from engine.standing import Standing
from engine.submissions import Submissions

_LOADER_PATIENCE_S = 3.0
_ENCODER_PATIENCE_S = 1.0
_STUCK_WAIT_S = 0.05
_REST_S = 0.002
"""Between two parts of what an idle engine does for itself: the window, which has an answer to show
just then, asks for the interpreter at nearly every call of Qt."""
_STOPPED = ErrorInfo("engine_stopped", "The engine has been shut down.")
_CROWDED = InterruptedQueryError(
    "The cache is full: its blocks are needed for answers.", action="Ask again when fewer run."
).info()
_SHORT_OF_MEMORY = InterruptedQueryError(
    "Memory ran out: what there is is needed for answers.", action="Ask again when fewer run."
).info()


def run_worker(arrivals: Arrivals, posted: threading.Event) -> None:
    """Serves all clients until the owner sends Shutdown.

    ``posted`` is set whenever a command was queued or a client came.
    """
    Worker(arrivals, posted).run()


class Worker:
    """Everything that happens on the engine thread."""

    def __init__(self, arrivals: Arrivals, posted: threading.Event) -> None:
        self._posted = posted
        self._roster = Roster(arrivals)
        self._pacer = Pacer()
        self._standing = Standing(self._roster, self._pacer)
        self._publisher = Publisher()
        self._encodings = Encodings(posted.set)
        self._inspections = Inspections()
        self._describer = Describer(posted.set)
        self._questions = Questions(self._encodings, self._inspections)
        self._submissions = Submissions(self._encodings, self._handle)
        self._slot = Slot()
        self._requests = RequestCommands(
            self._slot, self._submissions, self._encodings, self._questions
        )
        self._models = ModelCommands(
            self._slot,
            self._standing,
            self._roster,
            self._publisher,
            self._submissions,
            self._requests,
            self._questions,
            self._inspections,
            posted.set,
        )
        pace = PaceCommands(self._pacer, self._slot, self._standing, self._submissions)
        self._stopping = False
        self._landed = True
        self._handlers: dict[type[Command], Handler] = {
            **self._requests.handlers,
            **self._models.handlers,
            **pace.handlers,
            CancelQuery: self._cancel_query,
            DescribeModel: self._describe_model,
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
                for client, command in self._roster.take_commands():
                    self._handle(client, command)
                self._conclude_encodings()
                self._describer.conclude()
                self._models.take_load_outcomes()
                self._posted.wait(self._work())
            self._close()
        except BaseException as error:
            info = (device_lost(error) or unexpected(error)).info()
            end = EngineStatusChanged(EngineStatus.FAILED, error=info)
            self._give_up(info)
            raise
        finally:
            # Whatever else is broken, the clients have to know.
            self._roster.end(end)

    # --- the loop ---

    def _work(self) -> float | None:
        """Runs a step if one may run. Returns how long to sleep, None until a command comes."""
        engine = self._slot.engine
        if engine is None or self._stopping:
            return 0.0 if self._stopping else None
        if self._pacer.paused:
            engine.core.note_pause(True)
            self._submissions.post(engine.core.take_events())
        if self._inspections.are_waiting and _are_short(engine.core):
            self._inspections.drop(_CROWDED)
        now = time.perf_counter()
        wait: float | None = None
        if engine.core.has_work:
            wait = self._pacer.wait_s(now)
            if wait == 0.0:
                wait = self._step(engine)
            elif not self._landed:
                self._land(engine)
                # How long to wait is worked out again, now that some time has passed.
                wait = 0.0
        elif not self._inspections.are_waiting:
            wait = self._use_leisure(engine, now)
        if self._inspections.are_waiting:
            self._inspections.advance(BESIDE_ANSWERS_S if wait == 0.0 else ALONE_S)
            self._recheck()
            wait = 0.0 if self._inspections.are_waiting else wait
        now = time.perf_counter()
        self._publisher.deliver(now)
        if wait is None:
            self._publisher.settle(self._roster.clients, now)
        return _sooner(wait, self._publisher.wait_s(now))

    def _conclude_encodings(self) -> None:
        """Ends what was encoded meanwhile: that may admit requests and pin blocks."""
        num_pending = len(self._encodings)
        self._encodings.conclude()
        if len(self._encodings) != num_pending:
            self._recheck()

    def _recheck(self) -> None:
        """The pool has changed: a recount that has begun would mix before and after."""
        self._slot.checked = False
        if self._slot.snapshotter is not None:
            self._slot.snapshotter.begin_check()

    def _step(self, engine: LoadedEngine) -> float:
        guard = engine.core.scheduler.guard
        before = guard.num_shortages
        self._submissions.post(engine.core.step())
        if guard.num_shortages != before:
            # Questions hold much while they are worked on. Answers never suffer for those.
            self._inspections.drop(_SHORT_OF_MEMORY)
        now = time.perf_counter()
        self._pacer.stepped(now)
        self._slot.ready = self._landed = False
        self._recheck()
        self._publisher.stats(self._roster.clients, now)
        # Stuck requests wait for blocks that only a command can free: look again now and then.
        return _STUCK_WAIT_S if engine.core.is_stuck else 0.0

    def _land(self, engine: LoadedEngine) -> None:
        """Commits what is in flight before the pace makes the next step wait: the wait would count
        as time that the step computed, and what it brought would be told as late.
        """
        self._landed = True
        scheduler = engine.core.scheduler
        scheduler.held = True
        self._submissions.post(engine.core.step())
        scheduler.held = False
        self._recheck()

    def _use_leisure(self, engine: LoadedEngine, now: float) -> float | None:
        """Nothing to compute: time to check the invariants, to show the last numbers, and to make
        ready for steps to come. A little at a time: a command may come.
        """
        slot = self._slot
        assert slot.snapshotter is not None
        if not slot.checked:
            slot.checked = slot.snapshotter.check_some()
            if slot.checked:
                self._publisher.stats(self._roster.clients, now, force=True)
            return _REST_S
        if slot.ready or engine.prepare is None:
            return None
        try:
            slot.ready = not engine.prepare(self._posted.is_set)
        except Exception as error:
            if device_lost(error) is not None:
                raise
            # It cannot be made ready: steps find their own way.
            engine.prepare = None
        return _REST_S

    def _welcome(self) -> None:
        """Tells clients that have come how things stand."""
        engine = self._slot.engine
        for client in self._roster.take_arrivals():
            client.post(self._standing.event())
            if engine is not None:
                client.post(ModelLoaded("", engine.info, engine.load_s))

    def _handle(self, client: QueueClient, command: Command) -> None:
        if self._slot.snapshotter is not None:
            self._slot.snapshotter.begin_check()
        try:
            check_allowed(client, command)
            self._check_within_reach(client, command)
            if self._submissions.defer(client, command):
                return
            handler = self._handlers.get(type(command))
            if handler is not None:
                handler(client, command)
            else:
                self._questions.ask(self._slot.engine, client, command)
        except Exception as error:
            self._tell_committed()
            lost = device_lost(error)
            # One bad command must not end the conversations of all others.
            known = error if isinstance(error, EngineError) else unexpected(error)
            refuse(client, command, (lost or known).info())
            if lost is not None:
                raise lost from error

    def _tell_committed(self) -> None:
        """A command may fail after it has committed what was in flight. If that ended the last
        answer, no step is to come, and nobody else would tell.
        """
        if self._slot.engine is not None:
            self._submissions.post(self._slot.engine.core.take_events())
            self._recheck()

    def _check_within_reach(self, client: QueueClient, command: Command) -> None:
        request_id = getattr(command, "request_id", "")
        if isinstance(command, Continue) or self._submissions.may_touch(client, request_id):
            return
        raise UnknownIdError(f"There is no request {request_id}.", request_id=request_id)

    # --- clients ---

    def _subscribe(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, SubscribePool)
        self._publisher.subscribe(client, command.max_rate_hz, time.perf_counter())

    def _unsubscribe(self, client: QueueClient, command: Command) -> None:
        self._publisher.unsubscribe(client)

    def _cancel_query(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, CancelQuery)
        self._questions.cancel(client, command.query_id)
        self._describer.cancel(client, command.query_id)

    def _describe_model(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, DescribeModel)
        self._describer.ask(client, command, held_by(self._slot.engine))

    def _disconnect(self, client: QueueClient, command: Command) -> None:
        """A client departs; what it has asked for goes with it."""
        self._requests.depart(client)
        self._questions.drop_of(client, GONE)
        self._describer.drop_of(client, GONE)
        self._publisher.unsubscribe(client)
        self._roster.dismiss(client)

    def _shutdown(self, client: QueueClient, command: Command) -> None:
        self._stopping = True

    def _close(self) -> None:
        self._models.stop_loader()
        self._submissions.cancel_held()
        self._models.drop_engine()
        self._encodings.close(_ENCODER_PATIENCE_S)
        self._describer.close(_STOPPED, _ENCODER_PATIENCE_S)
        self._models.join_loader(_LOADER_PATIENCE_S)

    def _give_up(self, error: ErrorInfo) -> None:
        """The loop itself failed: everything ends, as well as it still can."""
        slot = self._slot
        self._submissions.fail_all(slot.engine, error)
        self._questions.abandon(error)
        if slot.loader is not None:
            slot.loader.cancel()
            self._roster.tell_all(ModelLoadFailed(slot.loader.command.command_id, error))
        self._publisher.detach()
        slot.engine = slot.snapshotter = slot.loader = None
        self._encodings.close(_ENCODER_PATIENCE_S)
        self._describer.close(error, _ENCODER_PATIENCE_S)


def _are_short(core: EngineCore) -> bool:
    """Whether requests need the blocks that questions hold: answers never suffer for those."""
    return core.holds.num_blocks > 0 and core.pool.num_available < least_spare(core.scheduler)


def _sooner(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
