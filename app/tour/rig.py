"""A second, small engine for the tour; the user's engine and conversations are not touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from app.bridge import Bridge
from app.conversation import SYSTEM, USER, new_id
from app.session_state import ModelState, ModelStatus
from app.tour.talks import Talk, Talks
from engine.api.client import EngineClient
from engine.api.commands import (
    Cancel,
    Configure,
    Fork,
    LoadModel,
    PauseEngine,
    ResumeEngine,
    SetFocus,
    SetRate,
    Submit,
)
from engine.api.errors import ErrorInfo
from engine.api.events import (
    BlockEvents,
    CommandFailed,
    EngineStatus,
    EngineStatusChanged,
    Event,
    FinishReason,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    RequestEvent,
    RequestFinished,
    TokensGenerated,
)
from engine.api.params import ChatMessage, EngineConfig, SamplingParams

NUM_BLOCKS = 40
"""Small enough to be filled by three answers, large enough for two beside each other."""

CONFIG = EngineConfig(num_blocks=NUM_BLOCKS, device="cpu", watermark=0.0)


class Rig(QObject):
    """The engine, its conversations, and what happens to them.

    Signals:
        happened(event): a request event or a pool event, each kind in order.
        talk_changed(conversation_id): a text or a note of it.
        ready(): the model is loaded.
        failed(ErrorInfo): the engine or a request cannot go on.
    """

    happened = Signal(object)
    talk_changed = Signal(str)
    ready = Signal()
    failed = Signal(object)

    def __init__(
        self,
        start_engine: Callable[[], EngineClient],
        models_dir: str,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.bridge = Bridge(start_engine, self)
        self.talks = Talks(self.bridge)
        self._models_dir = models_dir
        self._of_request: dict[str, Talk] = {}
        self._running: dict[str, None] = {}
        self._salts = 0
        self.bridge.engine_event.connect(self._on_bridge_engine_event)
        self.bridge.block_events_received.connect(self._on_bridge_block_events_received)

    # --- the engine ---

    def start(self) -> None:
        """Starts the engine and loads the starter model, if it is there."""
        self.bridge.start()
        self.bridge.subscribe_pool()
        self.load()

    def load(self, *, fetch: bool = False) -> None:
        """Loads the starter model; ``fetch`` gets it over the network if it is absent."""
        self.talks.set_model_state(ModelState(ModelStatus.LOADING))
        self.bridge.send(LoadModel(self._models_dir, fetch_starter=fetch, config=CONFIG))

    def end(self) -> None:
        """Ends the engine; its thread stops by itself after the step in progress."""
        self.bridge.close(0.0)

    # --- what a step of the lesson asks ---

    def begin(self, steps_per_s: float | None, *, anew: bool) -> None:
        """Lets the engine run at this pace. ``anew``: with an empty pool and no conversation."""
        self.quiet()
        if anew:
            self.talks.remove_all()
            self._of_request.clear()
            self._salts += 1
            # Under another salt nothing that is cached fits any more: the cache is emptied.
            self.bridge.send(Configure(replace(CONFIG, cache_salt=f"tour {self._salts}")))
        self.bridge.send(SetFocus(""))
        self.bridge.send(SetRate(steps_per_s))
        self.bridge.send(ResumeEngine())

    def quiet(self) -> None:
        """Stops what runs; its full blocks stay cached."""
        for request_id in self._running:
            self.bridge.send(Cancel(request_id))

    def stop(self, request_id: str) -> None:
        """Stops one answer."""
        self.bridge.send(Cancel(request_id))

    def hold(self) -> None:
        """The engine stands still, so that what has happened can be looked at."""
        self.bridge.send(PauseEngine())

    def go_on(self, steps_per_s: float | None) -> None:
        """The engine runs again, at this pace."""
        self.bridge.send(SetRate(steps_per_s))
        self.bridge.send(ResumeEngine())

    def is_running(self, request_id: str) -> bool:
        """Whether a request has not ended."""
        return request_id in self._running

    def focus(self, talk: Talk) -> None:
        """The user looks at this one: it keeps its blocks longest."""
        self.bridge.send(SetFocus(talk.conversation.conversation_id))

    def ask(
        self,
        title: str,
        system: str,
        question: str,
        *,
        max_tokens: int,
        num_answers: int = 1,
        temperature: float = 0.0,
    ) -> tuple[Talk, tuple[str, ...]]:
        """A new conversation and its question. Returns it, and the ids of its requests."""
        talk = self.talks.add(title, question)
        names = tuple(new_id() for _ in range(num_answers))
        for name in names:
            self._take(name, talk)
        messages = (ChatMessage(SYSTEM, system), ChatMessage(USER, question))
        # An answer must not end before it has shown what it is to show.
        params = SamplingParams(
            temperature=temperature, max_tokens=max_tokens, seed=1, ignore_eos=True
        )
        conversation_id = talk.conversation.conversation_id
        self.bridge.send(Submit(names, conversation_id, messages, params))
        return talk, names

    def fork(self, request_id: str, title: str) -> tuple[Talk, str]:
        """Splits a running answer into a new conversation. Returns it, and its request."""
        source = self._of_request[request_id]
        talk = self.talks.add(title, source.question)
        name = new_id()
        self._take(name, talk)
        talk.answers[name] = source.answers[request_id]
        self.bridge.send(Fork(request_id, name, talk.conversation.conversation_id, seed=2))
        return talk, name

    def _take(self, request_id: str, talk: Talk) -> None:
        talk.answers[request_id] = ""
        self._of_request[request_id] = talk
        self._running[request_id] = None

    def number_of(self, request_id: str) -> int:
        """The number of a request's conversation; 0 for one that is gone."""
        talk = self._of_request.get(request_id)
        return 0 if talk is None else talk.conversation.number

    # --- what the engine tells ---

    @Slot(object)
    def _on_bridge_engine_event(self, event: Event) -> None:
        match event:
            case ModelLoading():
                state = ModelState(ModelStatus.LOADING, event.stage, event.fraction, event.detail)
                self.talks.set_model_state(state)
            case ModelLoaded():
                self.talks.set_model_state(ModelState(ModelStatus.READY, info=event.model))
                self.ready.emit()
            case ModelLoadFailed():
                self._fail(event.error)
            case EngineStatusChanged(status=EngineStatus.FAILED):
                self._fail(event.error or ErrorInfo("engine_died", "The engine stopped."))
            case CommandFailed():
                self.failed.emit(event.error)
            case RequestEvent():
                self._on_request_event(event)

    def _fail(self, error: ErrorInfo) -> None:
        self.talks.set_model_state(ModelState(ModelStatus.FAILED, error=error))
        self.failed.emit(error)

    def _on_request_event(self, event: RequestEvent) -> None:
        if isinstance(event, RequestFinished):
            self._running.pop(event.request_id, None)
        talk = self._of_request.get(event.request_id)
        if talk is None:
            return
        if isinstance(event, TokensGenerated | RequestFinished) and event.text:
            talk.answers[event.request_id] += event.text
            self.talk_changed.emit(talk.conversation.conversation_id)
        self.happened.emit(event)
        if isinstance(event, RequestFinished) and event.reason is FinishReason.ERROR:
            self.failed.emit(event.error or ErrorInfo("internal", "The request failed."))

    @Slot(object)
    def _on_bridge_block_events_received(self, batch: BlockEvents) -> None:
        for event in batch.events:
            self.happened.emit(event)
