"""The requests of the scripted engine: a word is a token, whole blocks of a prompt are cached."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from engine.api.commands import Forecast, Submit
from engine.api.errors import EngineError, ErrorInfo, PromptTooLongError
from engine.api.events import (
    CommandFailed,
    Event,
    FinishReason,
    ForecastReady,
    ModelInfo,
    PrefillProgress,
    RequestFinished,
    RequestQueued,
    RequestUsage,
    TokensGenerated,
)
from engine.api.params import TurnTokens
from engine.context_policy import fit_prompt
from tests.helpers.fake_pool import BLOCK_SIZE, FakePool, Running
from tests.helpers.word_encoder import WordEncoder, words_of

Script = Callable[[Submit], str]


class FakeRequests:
    """Prompts, and a word of each answer a step. ``post`` takes the events.

    ``info``: the model's facts; its context limit is kept as the real engine keeps it.
    ``has_ended``: a request has, and nobody has taken note of it yet.
    """

    def __init__(self, post: Callable[[Event], None], info: ModelInfo) -> None:
        self.encoder = WordEncoder()
        self.info = info
        self.running: list[Running] = []
        self.pool = FakePool()
        self.step = 0
        self.has_ended = False
        self._post = post

    def submit(self, submit: Submit, script: Script, given: str = "") -> None:
        """``given``: what there is of the answer already."""
        conversation_id = submit.conversation_id
        try:
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
            self.refuse(submit, refused.info())
            return
        output = [self.encoder.token(word) for word in words_of(given)]
        history = fitted.prompt.history_end
        for index, request_id in enumerate(submit.request_ids):
            prompt = [*fitted.prompt.token_ids, *output]
            words = words_of(script(replace(submit, request_ids=(request_id,))))[len(output) :]
            if submit.params.max_tokens is not None:
                words = words[: submit.params.max_tokens]
            words = words[: self.info.context_length - len(prompt)]
            cached = self.pool.cached(prompt)
            running = Running(submit, prompt, cached, words, time.monotonic(), history)
            running.index, running.chars = index, len(given)
            running.given, running.output = len(output), list(output)
            self._post(
                RequestQueued(
                    request_id, conversation_id, len(prompt), 0, submit.params, cut=fitted.cut
                )
            )
            progress = PrefillProgress(
                request_id, conversation_id, len(prompt), len(prompt), cached
            )
            self._post(progress)
            self.pool.compute(prompt)
            self.running.append(running)

    def refuse(self, submit: Submit, error: ErrorInfo) -> None:
        for request_id in submit.request_ids:
            self._post(
                RequestFinished(
                    request_id,
                    submit.conversation_id,
                    FinishReason.ERROR,
                    "",
                    RequestUsage(),
                    None,
                    0,
                    error=error,
                )
            )

    def forecast(self, command: Forecast) -> None:
        try:
            fitted = fit_prompt(
                self, command.messages, command.context, max_tokens=command.max_tokens
            )
        except EngineError as error:
            self._post(CommandFailed(command.command_id, "Forecast", error.info()))
            return
        prompt = fitted.prompt.token_ids
        cached = self.pool.cached(prompt)
        self._post(
            ForecastReady(
                command.command_id,
                prompt_tokens=len(prompt),
                cached_tokens=cached,
                blocks_needed=-(-(len(prompt) + 1) // BLOCK_SIZE),
                blocks_shared=cached // BLOCK_SIZE,
                blocks_evicted=0,
                blocks_short=0,
                context_length=self.info.context_length,
                cut=fitted.cut,
                recomputed_tokens=max(0, fitted.prompt.history_end - cached),
            )
        )

    def one_step(self) -> None:
        """One more word of every answer, or its end."""
        self.step += 1
        for running in list(self.running):
            position = len(running.output) - running.given
            if position >= len(running.words):
                self.finish(running, FinishReason.STOP)
                continue
            word = running.words[position]
            running.first_s = running.first_s or time.monotonic()
            running.output.append(self.encoder.token(word))
            running.chars += len(word)
            self._post(
                TokensGenerated(
                    running.request_id,
                    running.submit.conversation_id,
                    (running.output[-1],),
                    word,
                )
            )

    def finish(
        self, running: Running, reason: FinishReason, error: ErrorInfo | None = None
    ) -> None:
        self.running.remove(running)
        self.has_ended = True
        limit = ""
        if reason is FinishReason.STOP and len(running.words) == running.submit.params.max_tokens:
            reason, limit = FinishReason.LENGTH, "max_tokens"
        num_output = len(running.output) - running.given
        is_full = len(running.prompt) + num_output >= self.info.context_length
        if reason is FinishReason.STOP and is_full:
            reason, limit = FinishReason.LENGTH, "context"
        prompt = running.prompt[: len(running.prompt) - running.given]
        ids = prompt + running.output
        self.pool.compute(ids[:-1])
        now = time.monotonic()
        seconds = max(now - running.started_s, 1e-6)
        usage = RequestUsage(
            prompt_tokens=len(running.prompt),
            cached_tokens=running.cached,
            computed_tokens=len(running.prompt) - running.cached,
            output_tokens=num_output,
            ttft_s=(running.first_s or now) - running.started_s,
            total_s=seconds,
            tokens_per_s=num_output / seconds,
        )
        turn = TurnTokens(
            tuple(prompt[running.history :]),
            tuple(running.output),
            running.chars,
            self.info.fingerprint,
        )
        seed = running.submit.params.seed or 7
        self._post(
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
