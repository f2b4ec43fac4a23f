"""Backends without a pool give the tokens of the paged one, whatever the scheduler does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from engine.api.errors import DeviceError, NotSupportedYetError
from engine.api.params import EngineConfig
from engine.attention.contiguous import ContiguousBackend
from engine.attention.dense import attend_causally
from engine.batch import PrefillSpan, StepBatch
from engine.devices import BACKENDS, choose_backend
from engine.engine_builder import build_engine
from engine.model_runner import ModelRunner
from tests.helpers.paged import dense_attention
from tests.helpers.tiny_gguf import TinyGguf
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine

pytestmark = pytest.mark.usefixtures("one_thread")

NEW = 20
LENGTHS = (1, 7, 8, 9, 30)
POOL_FREE = ["dense", "contiguous"]


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama()


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    draw = random.Random(11)
    return [[draw.randrange(3, 320) for _ in range(length)] for length in LENGTHS]


@pytest.fixture(scope="module")
def expected(tiny: TinyModel, prompts: list[list[int]]) -> list[list[int]]:
    """Each alone through the paged reference, nothing cached."""
    outputs = []
    for prompt in prompts:
        engine = torch_engine(tiny, "paged_reference", prefix_caching=False)
        engine.add("r", prompt, NEW)
        engine.run()
        outputs.append(engine.output("r"))
    assert len({tuple(output) for output in outputs}) == len(outputs)
    return outputs


def outputs_of(engine: TorchEngine, prompts: list[list[int]]) -> list[list[int]]:
    for index, prompt in enumerate(prompts):
        engine.add(str(index), prompt, NEW)
    engine.run()
    return [engine.output(str(index)) for index in range(len(prompts))]


def held_buffers(engine: TorchEngine) -> int:
    attention = engine.runner.attention
    return attention.num_requests if isinstance(attention, ContiguousBackend) else 0


# --- the same tokens ---


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("backend", POOL_FREE)
def test_alone(
    tiny: TinyModel, prompts: list[list[int]], expected: list[list[int]], backend: str, lag: int
) -> None:
    engine = torch_engine(tiny, backend, lag=lag)
    for index, (prompt, want) in enumerate(zip(prompts, expected, strict=True)):
        engine.add(str(index), prompt, NEW)
        engine.run()
        assert engine.output(str(index)) == want
    assert held_buffers(engine) == 0


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("budget", [6, 13, 2048])
@pytest.mark.parametrize("backend", POOL_FREE)
def test_batched_and_chunked(
    tiny: TinyModel,
    prompts: list[list[int]],
    expected: list[list[int]],
    backend: str,
    budget: int,
    lag: int,
) -> None:
    engine = torch_engine(tiny, backend, token_budget=budget, lag=lag)
    assert outputs_of(engine, prompts) == expected
    assert held_buffers(engine) == 0


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("backend", [*POOL_FREE, "paged_reference"])
def test_after_preemption(
    tiny: TinyModel, prompts: list[list[int]], expected: list[list[int]], backend: str, lag: int
) -> None:
    engine = torch_engine(tiny, backend, num_blocks=11, lag=lag)
    assert outputs_of(engine, prompts) == expected
    assert engine.core.metrics.num_preemptions > 0
    assert held_buffers(engine) == 0


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("backend", [*POOL_FREE, "paged_reference"])
def test_fork_in_the_middle_of_a_block(
    tiny: TinyModel, prompts: list[list[int]], expected: list[list[int]], backend: str, lag: int
) -> None:
    """Copy-on-write pairs do not reach a backend without a pool; the child is right all the same.

    The parent and a third request, which decode beside it, do not notice.
    """
    engine = torch_engine(tiny, backend, lag=lag)
    engine.add("parent", prompts[4], NEW)
    engine.add("other", prompts[1], NEW)
    engine.step(5)
    parent = engine.core.requests["parent"]
    assert parent.num_computed_tokens % 8 != 0
    engine.core.fork("parent", "child", "c2", seed=0)
    so_far = parent.num_output_tokens
    assert 0 < so_far < NEW
    engine.run()
    assert engine.output("parent") == engine.output("parent")[:so_far] + engine.output("child")
    assert engine.output("parent") == expected[4]
    assert engine.output("other") == expected[1]
    assert held_buffers(engine) == 0


@pytest.mark.parametrize("backend", POOL_FREE)
def test_several_answers_of_one_prompt(
    tiny: TinyModel, prompts: list[list[int]], expected: list[list[int]], backend: str
) -> None:
    engine = torch_engine(tiny, backend)
    engine.add("first", prompts[4], NEW)
    engine.add("second", prompts[4], NEW, sibling="first", output_index=1)
    engine.run()
    assert engine.output("first") == engine.output("second") == expected[4]


@pytest.mark.parametrize("backend", POOL_FREE)
def test_tokens_that_the_scheduler_skips_are_computed_all_the_same(
    tiny: TinyModel, prompts: list[list[int]], expected: list[list[int]], backend: str
) -> None:
    """Prefix hits, were they ever to come: the blocks hold nothing for these backends."""
    engine = torch_engine(tiny, backend, prefix_caching=True)
    for name in ("cold", "warm"):
        engine.add(name, prompts[4], NEW)
        engine.run()
    assert engine.finished("warm").usage.cached_tokens == 24
    assert engine.output("cold") == engine.output("warm") == expected[4]


@pytest.mark.parametrize("backend", POOL_FREE)
def test_step_that_breaks_off_in_a_layer_is_computed_again(
    tiny: TinyModel,
    prompts: list[list[int]],
    expected: list[list[int]],
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of the broken step are in some layers and not in others: none of them is trusted."""
    engine = torch_engine(tiny, backend)
    for index in (3, 4):
        engine.add(str(index), prompts[index], NEW)
    engine.step(6)
    begin = engine.runner.attention.begin_step

    def begin_broken(batch):
        attend = begin(batch)

        def broken(layer, query, key, value):
            if layer == 1:
                raise RuntimeError("out of memory")
            # What it wrote before it broke is wrong too.
            return attend(layer, query, key + 1.0, value)

        return broken

    monkeypatch.setattr(engine.runner.attention, "begin_step", begin_broken)
    engine.step()
    monkeypatch.undo()
    engine.run()
    assert [engine.output("3"), engine.output("4")] == [expected[3], expected[4]]


@pytest.mark.parametrize("backend", POOL_FREE)
def test_request_id_used_again_starts_anew(
    tiny: TinyModel, prompts: list[list[int]], expected: list[list[int]], backend: str
) -> None:
    engine = torch_engine(tiny, backend)
    engine.add("r", prompts[3], NEW)
    engine.step(4)
    engine.core.cancel("r")
    engine.events.clear()
    engine.core.take_events()
    engine.add("r", prompts[4], NEW)
    engine.run()
    assert engine.output("r") == expected[4]


# --- their parts ---


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("count", [1, 4, 300])
def test_attention_written_out(start: int, count: int) -> None:
    """Over tiles of rows too; against a second formulation in float64."""
    random_numbers = torch.Generator().manual_seed(3)
    query = torch.randn(count, 6, 16, generator=random_numbers, dtype=torch.float64)
    key, value = torch.randn(2, start + count, 2, 16, generator=random_numbers, dtype=torch.float64)
    out = attend_causally(query, key.flatten(1), value.flatten(1), start, 0.25)
    want = dense_attention(query, key, value, start, 0.25)
    assert torch.allclose(out, want, rtol=0.0, atol=1e-12)


def test_half_precision_is_computed_in_float32() -> None:
    random_numbers = torch.Generator().manual_seed(4)
    query = torch.randn(9, 6, 16, generator=random_numbers).bfloat16()
    key, value = torch.randn(2, 9, 2, 16, generator=random_numbers).bfloat16()
    out = attend_causally(query, key.flatten(1), value.flatten(1), 0, 0.25)
    assert out.dtype == torch.bfloat16
    exact = dense_attention(query, key, value, 0, 0.25)
    # Nothing but the rounding of the result.
    assert torch.equal(out, exact.float().bfloat16())


def test_buffer_holds_only_what_every_layer_has(tiny: TinyModel, prompts: list[list[int]]) -> None:
    engine = torch_engine(tiny, "contiguous")
    engine.add("r", prompts[4], NEW)
    engine.step()
    attention = engine.runner.attention
    assert attention.first_missing("r", 30) == 30
    assert attention.first_missing("r", 31) == 30
    assert attention.first_missing("r", 12) == 12
    assert attention.first_missing("stranger", 30) == 0
    attention.forget("r")
    attention.forget("r")
    assert attention.first_missing("r", 30) == 0


def test_buffer_that_outgrows_its_memory(tiny: TinyModel, prompts: list[list[int]]) -> None:
    """Several times: from 64 rows on it doubles."""
    count = 120
    outputs = []
    for backend in ("paged_reference", "contiguous"):
        engine = torch_engine(tiny, backend)
        engine.add("r", prompts[4], count)
        engine.run()
        outputs.append(engine.output("r"))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == count


@torch.inference_mode()
def test_rows_of_a_broken_step_are_not_held(tiny: TinyModel, prompts: list[list[int]]) -> None:
    """Until the last layer has them, and those that it was writing over are not either."""
    engine = torch_engine(tiny, "contiguous")
    engine.add("r", prompts[4], NEW)
    engine.step()
    attention, config = engine.runner.attention, tiny.config
    query = torch.zeros(10, config.num_heads, config.head_dim)
    key = torch.zeros(10, config.num_kv_heads * config.head_dim)
    attend = attention.begin_step(step_of_span(PrefillSpan(0, 10, 12, torch.zeros(0), "r")))
    held = []
    for layer in range(config.num_layers):
        held.append(attention.first_missing("r", 99))
        attend(layer, query, key, key)
    assert held == [12] * config.num_layers
    assert attention.first_missing("r", 99) == 22


def step_of_span(span: PrefillSpan) -> StepBatch:
    nothing = torch.zeros(0, dtype=torch.int64)
    return StepBatch(
        input_ids=nothing,
        positions=nothing,
        slot_mapping=nothing,
        num_decodes=0,
        decode_block_tables=torch.zeros(0, 1),
        decode_lengths=nothing,
        max_decode_length=0,
        prefills=(span,),
        sample_rows=nothing,
        sampled=(),
        sample_ends=(),
    )


# --- choosing ---


def test_backends_by_name() -> None:
    cpu = torch.device("cpu")
    for name in ("dense", "contiguous", "paged_reference"):
        assert choose_backend(name, cpu) == (name, "as the settings ask")
    assert choose_backend("auto", cpu) == ("paged_reference", "there is no CUDA device")
    with pytest.raises(DeviceError):
        choose_backend("paged_triton", cpu)
    with pytest.raises(NotSupportedYetError):
        choose_backend("warp", cpu)
    assert set(POOL_FREE) < set(BACKENDS)


@pytest.mark.parametrize("backend", [*POOL_FREE, "paged_reference"])
def test_prefix_cache_is_off_where_there_is_no_pool(tmp_path: Path, backend: str) -> None:
    """The whole engine from a file: a second turn is right although its prefix would be cached."""
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    config = EngineConfig(backend=backend, dtype="float32", device="cpu", num_blocks=16)
    loaded = build_engine(path, tmp_path, config, lambda *a: None, lambda: False)
    assert loaded.info.backend == backend
    core = loaded.core
    assert core.config.prefix_caching == (backend == "paged_reference")
    engine = TorchEngine(core, runner_of(core))
    prompt = list(range(5, 45))
    engine.add("cold", prompt, 4)
    engine.run()
    engine.add("warm", prompt, 4)
    engine.run()
    assert engine.output("warm") == engine.output("cold")
    cached = engine.finished("warm").usage.cached_tokens
    assert cached == (32 if backend == "paged_reference" else 0)


def runner_of(core) -> ModelRunner:
    runner = core._runner
    assert isinstance(runner, ModelRunner)
    return runner
