"""Engines for storms: over the integer model, and over a real decoder in float64."""

from __future__ import annotations

import random
from functools import cache, lru_cache

import torch

from engine.api.events import FinishReason
from engine.api.params import SamplingParams
from engine.block_hash import root_hash
from engine.core import EngineCore
from engine.detokenizer import Detokenizer
from engine.limits import ModelLimits
from engine.model_runner import ModelRunner, build_runner
from engine.scheduler_output import SampledTokens, SchedulerOutput, StepHandle, StepResult
from tests.helpers.engine_cases import FakeClock
from tests.helpers.hash_runner import VOCAB, HashRunner, next_token
from tests.helpers.pieces import PieceTokenizer, visible_text
from tests.helpers.storm_setup import END_IDS, Asked, Expected, Setup, Subject
from tests.helpers.tiny_model import TinyModel, tiny_llama

STOPS = ((), (), (), ("ba",), ("c\nb", "aab"), ("é",))


def _core(runner: object, setup: Setup, vocab_size: int) -> EngineCore:
    limits = ModelLimits(setup.context_length, END_IDS, root_hash("storm"), "fingerprint")
    tokenizer = PieceTokenizer(vocab_size)
    return EngineCore(
        runner,
        limits,
        setup.config(),
        setup.num_blocks,
        lambda stop: Detokenizer(tokenizer, stop),
        FakeClock(),
    )


class IntegerSubject(Subject):
    """The integer model: what it must produce is known without any engine."""

    vocab_size = VOCAB

    def __init__(self, setup: Setup) -> None:
        self.runner = HashRunner(setup.num_blocks, setup.block_size)
        self.core = _core(self.runner, setup, VOCAB)
        self._context_length = setup.context_length
        self._known = lru_cache(256)(self._say)

    def params(self, draw: random.Random, max_tokens: int) -> SamplingParams:
        return SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            seed=0,
            stop=draw.choice(STOPS),
            ignore_eos=draw.random() < 0.3,
        )

    def expected(self, asked: Asked) -> Expected:
        return self._known(asked.ids, asked.answer_start, asked.params)

    def _say(self, given: tuple[int, ...], start: int, params: SamplingParams) -> Expected:
        ids = list(given)
        while True:
            ids.append(next_token([(token, position) for position, token in enumerate(ids)]))
            new = tuple(ids[len(given) :])
            if new[-1] in END_IDS and not params.ignore_eos:
                return Expected(new, FinishReason.STOP)
            if visible_text(new, params.stop, given[start:])[1]:
                return Expected(new, FinishReason.STOP)
            if len(new) >= params.max_tokens:
                return Expected(new, FinishReason.LENGTH, "max_tokens")
            if len(ids) >= self._context_length:
                return Expected(new, FinishReason.LENGTH, "context")

    def void_cache(self) -> None:
        self.runner.pool = [None] * len(self.runner.pool)

    def is_idle(self) -> bool:
        return self.runner.num_kept == 0


class FaultyRunner:
    """A real runner whose steps can be made to fail, like those of ``HashRunner``."""

    def __init__(self, runner: ModelRunner) -> None:
        self.inner = runner
        self.fail_next_submit: Exception | None = None
        self.fail_next_result: Exception | None = None
        self.bad_requests: set[str] = set()
        self.breaks = lambda output: None

    def submit(self, output: SchedulerOutput) -> StepHandle:
        failure, self.fail_next_submit = self.fail_next_submit, None
        failure = failure or self.breaks(output)
        if failure is not None:
            raise failure
        result = self.inner.submit(output).result()
        failure, self.fail_next_result = self.fail_next_result, None
        return _Handle([self._spoil(drawn) for drawn in result.samples], failure)

    def _spoil(self, drawn: SampledTokens) -> SampledTokens:
        if drawn.request_id in self.bad_requests:
            return SampledTokens(drawn.request_id, (), error="the logits are not numbers")
        return drawn

    def prompt_size(self, num_tokens: int) -> int:
        return self.inner.prompt_size(num_tokens)

    def forget(self, request_id: str) -> None:
        self.inner.forget(request_id)


class _Handle:
    def __init__(self, samples: list[SampledTokens], failure: Exception | None) -> None:
        self._samples, self._failure = samples, failure

    def result(self) -> StepResult:
        if self._failure is not None:
            raise self._failure
        return StepResult(self._samples)


PALETTE = (
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 1.3},
    {"temperature": 0.0, "presence_penalty": 0.7, "frequency_penalty": 0.4},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.9},
    {"temperature": 1.3, "min_p": 0.02},
    {"temperature": 0.7, "top_p": 0.8, "repetition_penalty": 1.2, "frequency_penalty": 0.3},
)


@cache
def _model() -> TinyModel:
    return tiny_llama(dtype=torch.float64, num_layers=2)


class TinySubject(Subject):
    """A random Llama in float64: a request must give what it gives alone, with nothing cached."""

    vocab_size = 320

    def __init__(self, setup: Setup, backend: str = "paged_reference") -> None:
        if backend != "paged_reference":
            setup = Setup(**{**_fields(setup), "prefix_caching": False})
        self.runner = FaultyRunner(_runner(setup, backend))
        self.core = _core(self.runner, setup, self.vocab_size)
        alone = Setup(32, 16, 512, 1, 0.0, setup.context_length, False, 100.0, 0)
        self._alone = _core(_runner(alone, "paged_reference"), alone, self.vocab_size)
        self._known = lru_cache(256)(self._say)

    def params(self, draw: random.Random, max_tokens: int) -> SamplingParams:
        return SamplingParams(
            max_tokens=max_tokens,
            seed=draw.randrange(2**64),
            stop=draw.choice(STOPS),
            ignore_eos=draw.random() < 0.3,
            **draw.choice(PALETTE),
        )

    def expected(self, asked: Asked) -> Expected:
        return self._known(asked.ids, asked.answer_start, asked.params)

    def _say(self, ids: tuple[int, ...], start: int, params: SamplingParams) -> Expected:
        core = self._alone
        core.add_request("alone", ids, params, answer_start=None if start == len(ids) else start)
        tokens: list[int] = []
        while core.has_work:
            for event in core.step():
                tokens.extend(getattr(event, "token_ids", ()))
        done = event
        return Expected(tuple(tokens), done.reason, done.limit)

    def void_cache(self) -> None:
        cache = self.runner.inner.attention.cache
        for tensor in (*cache.k, *cache.v) if cache is not None else ():
            tensor.fill_(1e3)

    def is_idle(self) -> bool:
        inner = self.runner.inner
        kept = (len(inner._last_tokens), inner._batch.num_rows_used)
        return kept == (0, 0) and not getattr(inner.attention, "num_requests", 0)


def _fields(setup: Setup) -> dict[str, object]:
    return {name: getattr(setup, name) for name in Setup.__dataclass_fields__}


def _runner(setup: Setup, backend: str) -> ModelRunner:
    return build_runner(
        _model().config,
        _model().weights(),
        num_blocks=setup.num_blocks,
        block_size=setup.block_size,
        device="cpu",
        dtype="float64",
        backend=backend,
    )
