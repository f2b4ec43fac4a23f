"""An engine with a scripted model behind the real interface: for tests of the window only.

It has a real thread and streams in real time. A word is a token. Whole blocks of a prompt that
were computed before count as cached, and its snapshots show such blocks as shared, so that the
window's figures mean what they mean with the real engine. Its context limit is the real one too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import fields, replace

from engine.api.client import ENGINE_THREAD_NAME, QueueClient
from engine.api.commands import (
    Cancel,
    Command,
    Configure,
    Continue,
    CountTokens,
    DescribeModel,
    Forecast,
    LoadModel,
    Pin,
    SetFocus,
    Shutdown,
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
    LoadCancelledError,
    ModelNotFoundError,
    NotSupportedYetError,
)
from engine.api.events import (
    CommandFailed,
    Configured,
    EngineStatus,
    EngineStatusChanged,
    FinishReason,
    ModelDescribed,
    ModelInfo,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelUnloaded,
    TokensCounted,
)
from engine.api.model_description import ModelDescription
from engine.api.params import EngineConfig
from engine.reconfigure import AT_ONCE
from tests.helpers.fake_pool import BLOCK_SIZE, NUM_BLOCKS
from tests.helpers.fake_requests import FakeRequests, Script
from tests.helpers.word_encoder import words_of

# As the real one: at most 15 snapshots a second.
_POOL_INTERVAL_S = 1.0 / 15.0
# It keeps its pace, unless it was held up for longer than this.
_CATCH_UP_S = 0.05

Refusal = Callable[[Submit], EngineError | None]

MODEL = ModelInfo(
    name="Scripted",
    path="",
    architecture="script",
    num_parameters=1,
    weights_bytes=1,
    kv_bytes_per_token=62,
    context_length=2048,
    vocab_size=1000,
    dtype="none",
    device="cpu",
    backend="scripted",
    backend_reason="tests",
    num_blocks=NUM_BLOCKS,
    block_size=BLOCK_SIZE,
    fingerprint="scripted",
    has_chat_template=True,
)


def repeat_question(submit: Submit) -> str:
    """The ordinary script: some words about the question."""
    question = submit.messages[-1].content
    return f"You asked: {question} Here is what I know. " + "It is a long story. " * 12


class FakeEngine(QueueClient):
    """Give it to ``Bridge`` as ``lambda: engine``; ``commands`` lists what it was sent.

    ``tokens_per_s`` is for each request. ``load_error``, ``load_errors`` (by path) or ``refusal``
    make it fail; ``hold_load`` set keeps it loading until it is cleared, or the load cancelled.
    ``models``: facts of models, ``descriptions``: what is said of them before, by path.
    """

    def __init__(
        self,
        tokens_per_s: float = 200.0,
        load_s: float = 0.02,
        script: Script = repeat_question,
        refusal: Refusal = lambda _submit: None,
        load_error: EngineError | None = None,
        context_length: int = 2048,
    ) -> None:
        super().__init__()
        self.commands: list[Command] = []
        self.config = EngineConfig()
        self.hold_load = threading.Event()
        self.load_error = load_error
        self.load_errors: dict[str, EngineError] = {}
        self.models: dict[str, ModelInfo] = {}
        self.descriptions: dict[str, ModelDescription | EngineError] = {}
        self.refusal = refusal
        self.script = script
        self._step_s = 1.0 / tokens_per_s
        self._load_s = load_s
        self._posted = threading.Event()
        self._requests = FakeRequests(self.post, replace(MODEL, context_length=context_length))
        self._ending = False
        self._death: ErrorInfo | None = None
        self._subscribed = False
        self._last_stats_s = self._last_pool_s = self._next_step_s = 0.0
        self._thread = threading.Thread(target=self._run, name=ENGINE_THREAD_NAME, daemon=True)
        self.attach(self._posted.set, self._end)

    def set_wakeup(self, wakeup: Callable[[], None] | None) -> None:
        """The thread starts when somebody listens, as the real one does when the bridge starts."""
        super().set_wakeup(wakeup)
        if wakeup is not None and self._thread.ident is None:
            self._thread.start()

    def die(self, error: ErrorInfo) -> None:
        """The thread ends, as the real one does when its loop fails."""
        self._death = error
        self._posted.set()

    # --- the engine thread ---

    def _end(self, timeout_s: float) -> bool:
        if self._thread.ident is None:
            return True
        self.send(Shutdown())
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self.post(EngineStatusChanged(EngineStatus.NO_MODEL))
        while not self._ending:
            wait_s = max(0.0, self._next_step_s - time.monotonic())
            self._posted.wait(wait_s if self._requests.running else None)
            self._posted.clear()
            if self._death is not None:
                break
            for command in self.take_commands():
                self.commands.append(command)
                self._serve(command)
            now = time.monotonic()
            if self._requests.running and now >= self._next_step_s:
                self._next_step_s = max(self._next_step_s + self._step_s, now - _CATCH_UP_S)
                self._one_step()
        if self._death is None:
            self.post(EngineStatusChanged(EngineStatus.STOPPED))
            return
        for running in list(self._requests.running):
            self._requests.finish(running, FinishReason.ERROR, self._death)
        self.end(self._death)
        self.post(EngineStatusChanged(EngineStatus.FAILED, error=self._death))

    def _serve(self, command: Command) -> None:
        match command:
            case LoadModel():
                self._load(command)
            case DescribeModel():
                self._describe(command)
            case UnloadModel():
                self._drop_model()
                self.post(ModelUnloaded(command.command_id))
            case Submit():
                self._submit(command)
            case Continue():
                self._submit(_continued(command), command.messages[-1].content)
            case Cancel(request_id=request_id):
                for running in [r for r in self._requests.running if r.request_id == request_id]:
                    self._requests.finish(running, FinishReason.CANCELLED)
            case SubscribePool():
                self._subscribed = True
                self._show_pool()
            case UnsubscribePool():
                self._subscribed = False
            case Configure():
                self._configure(command)
            case Forecast():
                self._requests.forecast(command)
            case CountTokens(text=text, command_id=command_id):
                self.post(TokensCounted(command_id, len(words_of(text))))
            case SetFocus() | Pin() | Unpin():
                pass
            case Shutdown():
                self._ending = True
            case _:
                error = NotSupportedYetError("The fake engine cannot do this.").info()
                self.post(CommandFailed(command.command_id, type(command).__name__, error))

    def _drop_model(self) -> None:
        for running in list(self._requests.running):
            self._requests.finish(running, FinishReason.CANCELLED)

    def _describe(self, command: DescribeModel) -> None:
        said = self.descriptions.get(command.path, ModelNotFoundError(f"No {command.path}."))
        if isinstance(said, EngineError):
            self.post(CommandFailed(command.command_id, "DescribeModel", said.info()))
        else:
            self.post(ModelDescribed(command.command_id, command.path, said))

    def _load(self, command: LoadModel) -> None:
        self._drop_model()
        for stage, fraction in (("weights", 0.0), ("weights", 0.5), ("warm_up", 0.0)):
            self.post(ModelLoading(stage, fraction, command_id=command.command_id))
            time.sleep(self._load_s / 3)
        while self.hold_load.is_set():
            time.sleep(0.005)
            if any(isinstance(waiting, UnloadModel) for waiting in list(self._commands)):
                error = LoadCancelledError("Loading was stopped.").info()
                self.post(ModelLoadFailed(command.command_id, error))
                return
        failure = self.load_errors.get(command.path, self.load_error)
        if failure is not None:
            self.post(ModelLoadFailed(command.command_id, failure.info()))
            return
        self._requests.info = self.models.get(command.path, self._requests.info)
        self.config = command.config
        self.post(ModelLoaded(command.command_id, self._requests.info, self._load_s))
        self.post(EngineStatusChanged(EngineStatus.READY))

    def _submit(self, submit: Submit, given: str = "") -> None:
        refusal = self.refusal(submit)
        if refusal is None:
            self._requests.submit(submit, self.script, given)
        else:
            self._requests.refuse(submit, refusal.info())

    def _configure(self, command: Configure) -> None:
        config = command.config
        if config.backend == "paged_triton":
            error = InvalidValueError("There is no GPU here.", name="backend", value="paged_triton")
            self.post(CommandFailed(command.command_id, "Configure", error.info()))
            return
        names = [field.name for field in fields(config)]
        changed = [name for name in names if getattr(config, name) != getattr(self.config, name)]
        later = tuple(name for name in changed if name not in AT_ONCE)
        kept = {name: getattr(self.config, name) for name in later}
        self.config = replace(config, **kept)
        applied = tuple(name for name in changed if name in AT_ONCE)
        if "backend" in applied:
            self._requests.info = replace(self._requests.info, backend=config.backend)
        self.post(Configured(command.command_id, self.config, self._requests.info, applied, later))

    def _one_step(self) -> None:
        self._requests.one_step()
        now = time.monotonic()
        is_due = self._requests.has_ended or now - self._last_pool_s > _POOL_INTERVAL_S
        if self._subscribed and is_due:
            self._requests.has_ended = False
            self._last_pool_s = now
            self._show_pool()
        if now - self._last_stats_s > 0.2:
            self._last_stats_s = now
            requests = self._requests
            self.post(requests.pool.stats(requests.running, requests.step))

    def _show_pool(self) -> None:
        requests = self._requests
        context = requests.info.context_length
        self.publish(requests.pool.snapshot(requests.running, requests.step, context))


def _continued(command: Continue) -> Submit:
    """The question whose answer goes on."""
    ids, messages = (command.request_id,), command.messages[:-1]
    return Submit(ids, command.conversation_id, messages, command.params, command.context)
