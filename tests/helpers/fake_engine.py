"""An engine with a scripted model behind the real interface: for tests of the window only.

It has a real thread and streams in real time. A word is a token. Whole blocks of a prompt that
were computed before count as cached, and its snapshots show such blocks as shared, so that the
window's figures mean what they mean with the real engine. Its context limit is the real one too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from engine.api.client import ENGINE_THREAD_NAME, QueueClient
from engine.api.commands import (
    Cancel,
    Command,
    CountTokens,
    Forecast,
    LoadModel,
    SetFocus,
    Shutdown,
    Submit,
    SubscribePool,
    UnloadModel,
    UnsubscribePool,
)
from engine.api.errors import EngineError, ErrorInfo, NotSupportedYetError, PromptTooLongError
from engine.api.events import (
    CommandFailed,
    EngineStatus,
    EngineStatusChanged,
    FinishReason,
    ForecastReady,
    ModelInfo,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelUnloaded,
    PrefillProgress,
    RequestFinished,
    RequestQueued,
    RequestUsage,
    TokensCounted,
    TokensGenerated,
)
from engine.api.params import TurnTokens
from engine.context_policy import fit_prompt
from tests.helpers.fake_pool import BLOCK_SIZE, NUM_BLOCKS, FakePool, Running
from tests.helpers.word_encoder import WordEncoder, words_of

Script = Callable[[Submit], str]
Refusal = Callable[[Submit], EngineError | None]


def repeat_question(submit: Submit) -> str:
    """The ordinary script: some words about the question."""
    question = submit.messages[-1].content
    return f"You asked: {question} Here is what I know. " + "It is a long story. " * 12


class FakeEngine(QueueClient):
    """Give it to ``Bridge`` as ``lambda: engine``; ``commands`` lists what it was sent.

    ``tokens_per_s`` is for each request. ``load_error`` or ``refusal`` make it fail; ``hold_load``
    set keeps it loading until it is cleared.
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
        self.encoder = WordEncoder()
        self.info = replace(MODEL, context_length=context_length)
        self.commands: list[Command] = []
        self.hold_load = threading.Event()
        self.load_error = load_error
        self.refusal = refusal
        self.script = script
        self._step_s = 1.0 / tokens_per_s
        self._load_s = load_s
        self._posted = threading.Event()
        self._running: list[Running] = []
        self._loaded = False
        self._ending = False
        self._death: ErrorInfo | None = None
        self._subscribed = False
        self._pool = FakePool()
        self._step = 0
        self._last_stats_s = 0.0
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
            self._posted.wait(self._step_s if self._running else None)
            self._posted.clear()
            if self._death is not None:
                break
            for command in self.take_commands():
                self.commands.append(command)
                self._serve(command)
            if self._running:
                self._one_step()
        if self._death is None:
            self.post(EngineStatusChanged(EngineStatus.STOPPED))
            return
        for running in list(self._running):
            self._finish(running, FinishReason.ERROR, self._death)
        self.end(self._death)
        self.post(EngineStatusChanged(EngineStatus.FAILED, error=self._death))

    def _serve(self, command: Command) -> None:
        match command:
            case LoadModel():
                self._load(command)
            case UnloadModel():
                self._loaded = False
                self.post(ModelUnloaded(command.command_id))
            case Submit():
                self._submit(command)
            case Cancel(request_id=request_id):
                for running in [r for r in self._running if r.request_id == request_id]:
                    self._finish(running, FinishReason.CANCELLED)
            case SubscribePool():
                self._subscribed = True
                self.publish(
                    self._pool.snapshot(self._running, self._step, self.info.context_length)
                )
            case UnsubscribePool():
                self._subscribed = False
            case Forecast():
                self._forecast(command)
            case CountTokens(text=text, command_id=command_id):
                self.post(TokensCounted(command_id, len(words_of(text))))
            case SetFocus():
                pass
            case Shutdown():
                self._ending = True
            case _:
                error = NotSupportedYetError("The fake engine cannot do this.").info()
                self.post(CommandFailed(command.command_id, type(command).__name__, error))

    def _load(self, command: LoadModel) -> None:
        for fraction in (0.0, 0.5, 1.0):
            self.post(ModelLoading("weights", fraction))
            time.sleep(self._load_s / 3)
        while self.hold_load.is_set():
            time.sleep(0.005)
        if self.load_error is not None:
            self.post(ModelLoadFailed(command.command_id, self.load_error.info()))
            return
        self._loaded = True
        self.post(ModelLoaded(command.command_id, self.info, self._load_s))
        self.post(EngineStatusChanged(EngineStatus.READY))

    def _submit(self, submit: Submit) -> None:
        request_id, conversation_id = submit.request_ids[0], submit.conversation_id
        try:
            refusal = self.refusal(submit)
            if refusal is not None:
                raise refusal
            fitted = fit_prompt(
                self, submit.messages, submit.context, max_tokens=submit.params.max_tokens
            )
            if len(fitted.prompt.token_ids) >= self.info.context_length:
                raise PromptTooLongError(
                    "too long",
                    prompt_tokens=len(fitted.prompt.token_ids),
                    context_length=self.info.context_length,
                )
        except EngineError as refused:
            self.post(
                RequestFinished(
                    request_id,
                    conversation_id,
                    FinishReason.ERROR,
                    "",
                    RequestUsage(),
                    None,
                    0,
                    error=refused.info(),
                )
            )
            return
        prompt = fitted.prompt.token_ids
        words = words_of(self.script(submit))
        if submit.params.max_tokens is not None:
            words = words[: submit.params.max_tokens]
        cached = self._pool.cached(prompt)
        history = fitted.prompt.history_end
        running = Running(submit, prompt, cached, words, time.monotonic(), history)
        self.post(
            RequestQueued(
                request_id, conversation_id, len(prompt), 0, submit.params, cut=fitted.cut
            )
        )
        self.post(PrefillProgress(request_id, conversation_id, len(prompt), len(prompt), cached))
        self._pool.compute(prompt)
        self._running.append(running)

    def _forecast(self, command: Forecast) -> None:
        try:
            fitted = fit_prompt(
                self, command.messages, command.context, max_tokens=command.max_tokens
            )
        except EngineError as error:
            self.post(CommandFailed(command.command_id, "Forecast", error.info()))
            return
        prompt = fitted.prompt.token_ids
        cached = self._pool.cached(prompt)
        self.post(
            ForecastReady(
                command.command_id,
                prompt_tokens=len(prompt),
                cached_tokens=cached,
                blocks_needed=0,
                blocks_shared=cached // BLOCK_SIZE,
                blocks_evicted=0,
                blocks_short=0,
                context_length=self.info.context_length,
                cut=fitted.cut,
                recomputed_tokens=max(0, fitted.prompt.history_end - cached),
            )
        )

    def _one_step(self) -> None:
        self._step += 1
        for running in list(self._running):
            position = len(running.output)
            if position >= len(running.words):
                self._finish(running, FinishReason.STOP)
                continue
            word = running.words[position]
            running.first_s = running.first_s or time.monotonic()
            running.output.append(self.encoder.token(word))
            running.chars += len(word)
            self.post(
                TokensGenerated(
                    running.request_id,
                    running.submit.conversation_id,
                    (running.output[-1],),
                    word,
                )
            )
        if self._subscribed:
            self._show_pool()
        now = time.monotonic()
        if now - self._last_stats_s > 0.2:
            self._last_stats_s = now
            self.post(self._pool.stats(self._running, self._step))

    def _show_pool(self) -> None:
        context = self.info.context_length
        self.publish(self._pool.snapshot(self._running, self._step, context))

    def _finish(
        self, running: Running, reason: FinishReason, error: ErrorInfo | None = None
    ) -> None:
        self._running.remove(running)
        limit = ""
        if reason is FinishReason.STOP and len(running.words) == running.submit.params.max_tokens:
            reason, limit = FinishReason.LENGTH, "max_tokens"
        ids = running.prompt + running.output
        self._pool.compute(ids[:-1])
        now = time.monotonic()
        seconds = max(now - running.started_s, 1e-6)
        usage = RequestUsage(
            prompt_tokens=len(running.prompt),
            cached_tokens=running.cached,
            computed_tokens=len(running.prompt) - running.cached,
            output_tokens=len(running.output),
            ttft_s=(running.first_s or now) - running.started_s,
            total_s=seconds,
            tokens_per_s=len(running.output) / seconds,
        )
        turn = TurnTokens(
            tuple(running.prompt[running.history :]),
            tuple(running.output),
            running.chars,
            MODEL.fingerprint,
        )
        seed = running.submit.params.seed or 7
        self.post(
            RequestFinished(
                running.request_id,
                running.submit.conversation_id,
                reason,
                "",
                usage,
                turn,
                seed,
                limit=limit,
                error=error,
            )
        )


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
