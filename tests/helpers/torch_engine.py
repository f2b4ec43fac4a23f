"""A whole EngineCore over a real (tiny) decoder, with the pool's invariants checked each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.api.events import RequestEvent, RequestFinished, TokensGenerated
from engine.api.params import EngineConfig, SamplingParams
from engine.block_hash import root_hash
from engine.core import EngineCore
from engine.limits import ModelLimits
from engine.model_runner import ModelRunner, build_runner
from engine.request import Request
from tests.helpers.engine_cases import NEVER_ENDS, FakeClock, NumberStream
from tests.helpers.tiny_model import TinyModel


@dataclass
class TorchEngine:
    """``core`` over ``runner``, and the events so far."""

    core: EngineCore
    runner: ModelRunner
    events: list[RequestEvent] = field(default_factory=list)

    def add(self, name: str, prompt: Sequence[int], max_tokens: int = 8, **kw: object) -> Request:
        """A greedy request."""
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, seed=0)
        return self.core.add_request(name, prompt, params, **kw)  # type: ignore[arg-type]

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.events.extend(self.core.step())
            assert self.core.violations() == []

    def run(self, max_steps: int = 2000) -> None:
        for _ in range(max_steps):
            if not self.core.has_work:
                return
            self.step()
        raise AssertionError(f"still busy after {max_steps} steps")

    def output(self, name: str) -> list[int]:
        return [
            token
            for event in self.events
            if isinstance(event, TokensGenerated) and event.request_id == name
            for token in event.token_ids
        ]

    def finished(self, name: str) -> RequestFinished:
        (event,) = [
            event
            for event in self.events
            if isinstance(event, RequestFinished) and event.request_id == name
        ]
        return event


def torch_engine(
    model: TinyModel,
    backend: str,
    *,
    num_blocks: int = 64,
    block_size: int = 8,
    dtype: str = "float32",
    device: str = "cpu",
    deterministic: bool = False,
    **config: object,
) -> TorchEngine:
    """An engine over ``model``; prefix caching is off where the backend has no pool."""
    runner = build_runner(
        model.config,
        model.weights(),
        num_blocks=num_blocks,
        block_size=block_size,
        device=device,
        dtype=dtype,
        backend=backend,
        deterministic=deterministic,
    )
    values: dict[str, object] = {"block_size": block_size, "watermark": 0.0, **config}
    values.setdefault("prefix_caching", runner.attention.cache is not None)
    settings = EngineConfig.from_mapping(values)
    limits = ModelLimits(model.config.context_length, NEVER_ENDS, root_hash("tiny", dtype))
    core = EngineCore(
        runner, limits, settings, num_blocks, lambda stop: NumberStream(), FakeClock()
    )
    return TorchEngine(core, runner)
