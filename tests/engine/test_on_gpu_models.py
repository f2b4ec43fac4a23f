"""Models from files on a GPU: quantised weights, other settings, and what models leave behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("gguf")

from gguf.constants import GGMLQuantizationType as Kind

from engine.api.events import FinishReason, WeightsKept
from engine.api.params import EngineConfig, SamplingParams
from engine.engine_builder import build_engine
from engine.held_memory import give_back
from engine.loading.progress import never_cancelled, no_progress
from engine.model_loader import LoadedEngine
from tests.engine.test_on_gpu import Twice, answers, on_gpu, prompts_of
from tests.engine.test_on_gpu_paths import graphs_of
from tests.helpers.family_gguf import VOCAB_SIZE, write_gguf
from tests.helpers.grouped_model import GroupedModel
from tests.helpers.tiny_gguf import TinyGguf
from tests.helpers.tiny_model import tiny_model
from tests.helpers.torch_engine import torch_engine

pytestmark = pytest.mark.gpu

MIB = 1 << 20
NEW_TOKENS = 24
GREEDY = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
KINDS_OF_32 = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


@pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS_OF_32), KINDS_OF_32], ids="+".join)
def test_packed_weights_say_what_the_same_weights_expanded_say(kinds: tuple[str, ...]) -> None:
    model = GroupedModel(
        tiny_model("Qwen3ForCausalLM", seed=3, head_dim=32, hidden_size=64, intermediate_size=96),
        kinds,
    )
    expected = answers(torch_engine(model.plain(), "paged_reference", num_blocks=96), prompts_of(5))  # type: ignore[arg-type]
    engine = on_gpu(model, num_blocks=96, token_budget=40)  # type: ignore[arg-type]
    assert answers(engine, prompts_of(5)) == expected
    assert graphs_of(engine)._graphs
    assert graphs_of(engine).failure == ""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_packed_weights_replayed_are_those_launched(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = Twice(monkeypatch)
    model = GroupedModel(
        tiny_model("Qwen3ForCausalLM", seed=3, head_dim=32, hidden_size=64, intermediate_size=96),
        KINDS_OF_32,
    )
    engine = on_gpu(model, num_blocks=96, dtype=dtype, token_budget=40)  # type: ignore[arg-type]
    twice.watch(engine)
    for _ in range(2):
        answers(engine, prompts_of(6))
        for request_id in range(6):
            assert engine.finished(str(request_id)).reason is FinishReason.LENGTH
        engine.events.clear()
    assert twice.num_compared > 20
    assert twice.num_prompts > 2


# --- whole models: loading, settings, what they leave ---


def load(path: Path, folder: Path, **settings: Any) -> LoadedEngine:
    config = EngineConfig.from_mapping({"dtype": "float32", "num_blocks": 128, **settings})
    return build_engine(path, folder / "models", config, no_progress, never_cancelled)


def said(engine: LoadedEngine) -> list[tuple[int, ...]]:
    prompts = [[3 + (7 * place + row) % 200 for place in range(20 + 9 * row)] for row in range(4)]
    return [tuple(out.token_ids) for out in engine.core.generate(prompts, GREEDY)]


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_a_packed_file_says_on_the_gpu_what_it_says_expanded_on_the_cpu(
    kind: str, tmp_path: Path
) -> None:
    path = TinyGguf(weight_type=Kind[kind]).write(tmp_path / "tiny.gguf")
    packed = load(path, tmp_path, device="cuda", weights="packed")
    assert packed.info.weights_kept is WeightsKept.PACKED
    assert said(packed) == said(load(path, tmp_path, device="cpu", weights="expanded"))


def test_a_card_without_bfloat16_computes_gemma_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers are too large for float16; the others' are not."""
    monkeypatch.setattr("engine.devices._gpu_has_bfloat16", lambda _device: False)
    model = tiny_model("Gemma3ForCausalLM", vocab_size=VOCAB_SIZE, sliding_window=9)
    gemma = write_gguf(model, "gemma3", tmp_path / "gemma.gguf", attention__sliding_window=9)
    found = load(gemma, tmp_path, device="cuda", dtype="auto")
    assert (found.info.backend, found.info.dtype) == ("paged_triton", "float32")
    assert said(found) == said(load(gemma, tmp_path, device="cpu"))
    other = TinyGguf().write(tmp_path / "tiny.gguf")
    assert load(other, tmp_path, device="cuda", dtype="auto").info.dtype == "float16"


def test_another_backend_and_back_while_answers_run(tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    expected = said(load(path, tmp_path, device="cpu"))
    engine = load(path, tmp_path, device="cuda")
    assert engine.info.backend == "paged_triton"
    assert said(engine) == expected
    configurer = engine.reconfigurer
    assert configurer is not None
    first = configurer.config
    for change in (
        {"backend": "paged_reference"},
        {"backend": "paged_triton"},
        {"max_running_requests": 200, "token_budget": 64},
        {"cache_salt": "other"},
    ):
        configurer.configure(replace(first, **change))
        assert said(engine) == expected
    core = engine.core
    request = core.add_request("goes on", [5, 6, 7, 8], GREEDY)
    for backend in ("paged_reference", "paged_triton", "paged_reference"):
        for _ in range(4):
            core.step()
        configurer.configure(replace(first, backend=backend))
    alone = load(path, tmp_path, device="cpu").core.generate([[5, 6, 7, 8]], GREEDY)[0]
    while core.has_work:
        core.step()
    assert request.token_ids[4:] == list(alone.token_ids)


def _in_use() -> tuple[float, float]:
    """MiB. Without what cuBLAS keeps for each stream it has been used on, once and for all: when
    that is depends on how fast a machine captures."""
    torch._C._cuda_clearCublasWorkspaces()
    give_back()
    return torch.cuda.memory_allocated() / MIB, torch.cuda.memory_reserved() / MIB


def test_models_that_follow_each_other_leave_no_memory_behind(
    tmp_path: Path, no_cycles_found: None
) -> None:
    """Nobody looks for cycles: that is the window's task, seldom and later."""
    path = TinyGguf().write(tmp_path / "tiny.gguf")

    def once() -> None:
        engine = load(path, tmp_path, device="cuda", num_blocks=4096, dtype="bfloat16")
        said(engine)
        assert engine.prepare is not None
        for _ in range(8):
            engine.prepare(never_cancelled)

    once()
    first = _in_use()
    for _ in range(3):
        once()
    later = _in_use()
    assert later[0] <= first[0] + 1
    assert later[1] <= first[1] + 4


def test_another_backend_leaves_no_graphs_behind(tmp_path: Path, no_cycles_found: None) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    engine = load(path, tmp_path, device="cuda")
    configurer = engine.reconfigurer
    assert configurer is not None
    first, allocated = configurer.config, []
    for _ in range(3):
        for backend in ("paged_triton", "paged_reference"):
            configurer.configure(replace(first, backend=backend))
            said(engine)
        allocated.append(_in_use()[0])
    assert allocated[-1] <= allocated[0] + 1


def test_what_is_measured_for_a_step_is_what_a_step_takes(tmp_path: Path) -> None:
    """Within 5 %, beside the weights and the pool; graphs have a workspace of their own."""
    from engine.pool_sizing import workspace_bytes

    longer = TinyGguf(extra={"llama.context_length": 1024})
    path = longer.write(tmp_path / "tiny.gguf")
    engine = load(path, tmp_path, device="cuda", num_blocks=256, token_budget=512)
    runner: Any = engine.core._runner
    config = EngineConfig(token_budget=512, block_size=engine.info.block_size)
    foreseen = workspace_bytes(runner.decoder, "paged_triton", config)
    runner._device_steps.graphs = None
    give_back()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    engine.core.generate([[3] * 511], replace(GREEDY, max_tokens=1))
    taken = torch.cuda.max_memory_allocated() - before
    assert taken <= foreseen * 1.05 + 2 * MIB
