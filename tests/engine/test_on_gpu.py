"""The engine on a GPU, through Triton kernels and CUDA graphs, beside transformers and itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from engine.api.errors import EngineError, OutOfMemoryError
from engine.api.events import FinishReason
from engine.api.params import EngineConfig, SamplingParams
from engine.device_batch import HostStep
from engine.device_steps import DeviceSteps
from engine.model_runner import build_runner
from engine.step_graphs import StepGraphs
from engine.step_inputs import Extras, StepInputs
from tests.helpers.reference import logit_error, reference_greedy
from tests.helpers.runner_driver import RunnerDriver
from tests.helpers.tiny_model import TinyModel, tiny_model
from tests.helpers.torch_engine import TorchEngine, torch_engine

pytestmark = pytest.mark.gpu

NEW_TOKENS = 40
SHAPES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {"head_dim": 16},
    "MistralForCausalLM": {"sliding_window": 11},
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {"head_dim": 32},
    "Gemma3ForCausalLM": {"num_hidden_layers": 7, "head_dim": 16, "sliding_window": 13},
    "Phi3ForCausalLM": {"head_dim": 16},
    "SmolLM3ForCausalLM": {"head_dim": 16, "num_hidden_layers": 5, "no_rope_layer_interval": 2},
}


@pytest.fixture(scope="module", params=SHAPES)
def tiny(request: pytest.FixtureRequest) -> TinyModel:
    return tiny_model(request.param, seed=3, **SHAPES[request.param])


def prompts_of(count: int, common: int = 17) -> list[list[int]]:
    draw = random.Random(5)
    system = [draw.randrange(3, 320) for _ in range(common)]
    return [system + [draw.randrange(3, 320) for _ in range(9 * i + 1)] for i in range(count)]


def on_gpu(model: TinyModel, **config: Any) -> TorchEngine:
    return torch_engine(model, "paged_triton", device="cuda", lag=1, **config)


def answers(engine: TorchEngine, prompts: list[list[int]]) -> list[list[int]]:
    for index, prompt in enumerate(prompts):
        engine.add(str(index), prompt, NEW_TOKENS)
        engine.step(1)
    engine.run()
    return [engine.output(str(index)) for index in range(len(prompts))]


def test_together_alone_in_chunks_from_the_cache_and_preempted(tiny: TinyModel) -> None:
    prompts = prompts_of(5)
    expected = [reference_greedy(tiny.reference, prompt, NEW_TOKENS) for prompt in prompts]
    assert answers(on_gpu(tiny, num_blocks=96), prompts) == expected
    assert [answers(on_gpu(tiny), [prompt])[0] for prompt in prompts] == expected
    assert answers(on_gpu(tiny, num_blocks=96, token_budget=13), prompts) == expected
    short = on_gpu(tiny, num_blocks=20, token_budget=13)
    assert answers(short, prompts) == expected
    assert short.core.metrics.num_preemptions > 0
    twice = on_gpu(tiny)
    for name in ("cold", "warm"):
        twice.add(name, prompts[-1], NEW_TOKENS)
        twice.run()
    assert twice.finished("warm").usage.cached_tokens > 0
    assert twice.output("cold") == twice.output("warm") == expected[-1]


class Twice:
    """Does each replayed step again, launch by launch, from the same inputs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num_compared = 0
        self.num_prompts = 0
        self._replay: Callable[..., None] = StepGraphs._replay
        check = self

        def replay(graphs: StepGraphs, graph: Any, step: HostStep, extras: Extras) -> None:
            check.compare(graphs, graph, step, extras)

        monkeypatch.setattr(StepGraphs, "_replay", replay)

    def compare(self, graphs: StepGraphs, graph: Any, step: HostStep, extras: Extras) -> None:
        newest, pool = graphs._batch.newest, self.pool
        before = newest.clone()
        self._replay(graphs, graph, step, extras)
        if step.kind.counted:
            # What a step draws is counted: it cannot be done twice.
            return
        after, drawn = newest.clone(), graph.drawn.tokens.clone()
        written = [tensor.clone() for tensor in pool]
        newest.copy_(before)
        sizes = graph.layout.sizes
        inputs = StepInputs.of(
            torch.split(graphs._inputs[: sizes.words], sizes.parts), sizes.groups
        )
        again = graphs._compute(inputs, sizes, step.kind)
        assert torch.equal(again.tokens, drawn)
        assert torch.equal(newest, after)
        for had, has in zip(written, pool, strict=True):
            assert torch.equal(had.view(torch.uint8), has.view(torch.uint8))
        self.num_compared += 1
        self.num_prompts += sizes.prompt > 0

    def watch(self, engine: TorchEngine) -> None:
        cache = engine.runner.attention.cache
        assert cache is not None
        self.pool = [*cache.k, *cache.v]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_replayed_step_equals_one_that_is_launched(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """To the last bit: tokens, the newest tokens of all rows, and the whole pool."""
    twice = Twice(monkeypatch)
    model = tiny_model("Qwen3ForCausalLM", seed=3, head_dim=32)
    engine = on_gpu(model, dtype=dtype, num_blocks=96, token_budget=40)
    twice.watch(engine)
    draw = random.Random(1)
    kinds: list[dict[str, Any]] = [{}, {"top_k": 20, "top_p": 0.9}, {"repetition_penalty": 1.2}]
    for turn in range(3):
        for index, prompt in enumerate(prompts_of(6)):
            params = SamplingParams(
                temperature=0.8,
                max_tokens=draw.randint(5, 25),
                seed=index,
                **kinds[turn],
            )
            engine.core.add_request(f"{turn}.{index}", prompt, params)
            engine.step(2)
        engine.run()
        for index in range(6):
            assert engine.finished(f"{turn}.{index}").reason is FinishReason.LENGTH
    steps = engine.runner._device_steps
    assert steps is not None
    assert steps.graphs is not None
    # The counts of penalties have grown: all were captured anew.
    assert steps.graphs.failure == ""
    assert any(kind.counted for _, kind in steps.graphs._graphs)
    assert twice.num_compared > 40
    assert twice.num_prompts > 5


def test_a_prepared_engine_says_what_one_that_was_not_says() -> None:
    model = tiny_model("LlamaForCausalLM", seed=3, head_dim=16)
    expected = [reference_greedy(model.reference, prompt, NEW_TOKENS) for prompt in prompts_of(5)]
    engine = on_gpu(model, num_blocks=96, token_budget=48)
    while engine.runner.prepare():
        """All sizes that will come up."""
    assert answers(engine, prompts_of(5)) == expected


@pytest.fixture
def no_other_memory() -> Iterator[None]:
    torch.cuda.empty_cache()
    yield
    torch.cuda.empty_cache()


def test_sampled_answers_do_not_depend_on_the_device() -> None:
    """One definition of the noise: the CPU draws the same tokens of the same logits."""
    model = tiny_model("Qwen2ForCausalLM", seed=3)

    def sampled(engine: TorchEngine) -> list[list[int]]:
        for index, prompt in enumerate(prompts_of(4)):
            params = SamplingParams(
                temperature=0.7, top_p=0.95, max_tokens=NEW_TOKENS, seed=index, ignore_eos=True
            )
            engine.core.add_request(str(index), prompt, params)
        engine.run()
        return [engine.output(str(index)) for index in range(4)]

    on_cpu = sampled(torch_engine(model, "paged_reference"))
    assert sampled(on_gpu(model)) == on_cpu


def test_deterministic_answers_in_bfloat16_do_not_depend_on_neighbours() -> None:
    model = tiny_model("Qwen3ForCausalLM", seed=3, head_dim=32, hidden_size=128)

    def engine() -> TorchEngine:
        return on_gpu(model, dtype="bfloat16", num_blocks=96, deterministic=True)

    together = answers(engine(), prompts_of(5))
    alone = [answers(engine(), [prompt])[0] for prompt in prompts_of(5)]
    assert together == alone


def test_logits_in_bfloat16_are_as_near_as_those_of_transformers(tiny: TinyModel) -> None:
    """At most twice as far from float32 as transformers' own bfloat16 model."""
    prompt = prompts_of(6)[-1]
    runner = build_runner(
        tiny.config,
        tiny.weights(),
        num_blocks=32,
        block_size=8,
        device="cuda",
        dtype="bfloat16",
    )
    ours = logit_error(RunnerDriver(runner, 32, 8), tiny.reference, prompt)
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        exact = tiny.reference(ids).logits[0].double()
        rounded = tiny.reference.to(torch.bfloat16)
        theirs = float((rounded(ids).logits[0].double() - exact).abs().max())
    tiny.reference.to(torch.float32)
    assert ours <= 2 * theirs


def test_a_pool_that_does_not_fit_shrinks(no_other_memory: None) -> None:
    model = tiny_model("LlamaForCausalLM", seed=3, head_dim=16)
    free, _ = torch.cuda.mem_get_info()
    block = model.config.kv_bytes_per_token(4) * 8
    runner = build_runner(
        model.config,
        model.weights(),
        num_blocks=int(free / block * 1.05),
        block_size=8,
        device="cuda",
        dtype="float32",
    )
    assert free / block * 0.5 < runner.num_blocks < free / block
    del runner


def test_a_step_without_memory_ends_one_request_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model("LlamaForCausalLM", seed=3, head_dim=16)
    prompts = prompts_of(4)
    expected = [reference_greedy(model.reference, prompt, NEW_TOKENS) for prompt in prompts]
    engine = on_gpu(model, num_blocks=96)
    calls = {"left": 3}
    submit = DeviceSteps.submit

    def failing(self: DeviceSteps, output: Any) -> Any:
        if len(output.chunks) > 1 and calls["left"]:
            calls["left"] -= 1
            torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
        return submit(self, output)

    monkeypatch.setattr(DeviceSteps, "submit", failing)
    assert answers(engine, prompts) == expected
    assert calls["left"] == 0


def test_a_card_that_is_too_small_is_refused_with_the_numbers(no_other_memory: None) -> None:
    from engine.memory import device_num_blocks

    free, _ = torch.cuda.mem_get_info()
    with pytest.raises(OutOfMemoryError, match="MiB are wanted"):
        device_num_blocks(EngineConfig(), 1 << 20, 1 << 30, int(free), torch.device("cuda", 0))


def test_a_backend_that_cannot_run_is_refused_in_words() -> None:
    with pytest.raises(EngineError, match="cuda:7"):
        build_runner(tiny_model("LlamaForCausalLM").config, [], num_blocks=4, device="cuda:7")
