"""Paths of the engine that only a GPU takes: graphs over their lives, and keys in parts."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from engine.api.events import FinishReason
from engine.api.params import SamplingParams
from engine.step_graphs import StepGraphs
from tests.engine.test_on_gpu import answers, on_gpu, prompts_of
from tests.helpers.reference import reference_greedy
from tests.helpers.tiny_model import tiny_model
from tests.helpers.torch_engine import TorchEngine, torch_engine

pytestmark = pytest.mark.gpu

NEW_TOKENS = 24


def graphs_of(engine: TorchEngine) -> StepGraphs:
    steps = engine.runner._device_steps
    assert steps is not None
    assert steps.graphs is not None
    return steps.graphs


def penalised(engine: TorchEngine, count: int, turn: str) -> list[list[int]]:
    """Answers drawn with penalties, all at once, and none of them ended by an error."""
    for index, prompt in enumerate(prompts_of(count)):
        params = SamplingParams(
            temperature=0.8,
            max_tokens=NEW_TOKENS,
            seed=index,
            ignore_eos=True,
            repetition_penalty=1.3,
            presence_penalty=0.4,
        )
        engine.core.add_request(f"{turn}{index}", prompt, params)
    engine.run()
    for index in range(count):
        assert engine.finished(f"{turn}{index}").reason is FinishReason.LENGTH
    return [engine.output(f"{turn}{index}") for index in range(count)]


def test_graphs_are_captured_anew_where_tables_and_counts_have_grown() -> None:
    """More requests with penalties, and then more at all, than there was room for."""
    model = tiny_model("Qwen3ForCausalLM", seed=3, head_dim=32)
    engine = on_gpu(model, num_blocks=192, max_running_requests=80)
    graphs = graphs_of(engine)
    answers(engine, prompts_of(3))
    assert graphs._graphs
    plain = torch_engine(model, "paged_reference", num_blocks=192, max_running_requests=80)
    for turn, count in (("a", 3), ("b", 6), ("c", 11)):
        before = graphs._generation
        assert penalised(engine, count, turn) == penalised(plain, count, turn)
        assert graphs._generation != before
        assert graphs.failure == ""
        assert any(kind.counted for _, kind in graphs._graphs)
    before = graphs._generation
    for each in (engine, plain):
        for index in range(70):
            each.add(f"crowd {index}", [5 + index, 7, 9 + index // 2], 8)
        each.run()
    assert graphs._generation != before
    assert graphs.failure == ""
    assert graphs._graphs
    for index in range(70):
        assert engine.output(f"crowd {index}") == plain.output(f"crowd {index}")


def test_a_capture_without_memory_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("LlamaForCausalLM", seed=3, head_dim=16)
    expected = [reference_greedy(model.reference, prompt, 40) for prompt in prompts_of(4)]
    engine = on_gpu(model, num_blocks=96)
    graphs = graphs_of(engine)
    compute = graphs._compute

    def short(*args: Any) -> Any:
        drawn = compute(*args)
        if torch.cuda.is_current_stream_capturing():
            torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
        return drawn

    monkeypatch.setattr(graphs, "_compute", short)
    assert answers(engine, prompts_of(4)) == expected
    assert "out of memory" in graphs.failure.lower()
    assert not graphs._graphs
    monkeypatch.undo()
    graphs.failure = ""
    for index, prompt in enumerate(prompts_of(4)):
        engine.add(f"again {index}", prompt, 40)
    engine.run()
    assert [engine.output(f"again {index}") for index in range(4)] == expected
    assert graphs._graphs
    assert graphs.failure == ""


def test_once_all_is_prepared_no_answer_waits_for_the_compiler() -> None:
    from triton import knobs

    model = tiny_model("LlamaForCausalLM", seed=5, head_dim=16, hidden_size=96)
    engine = on_gpu(model, num_blocks=192, token_budget=64)
    while engine.runner.prepare():
        """All sizes that will come up."""
    assert graphs_of(engine).failure == ""
    compiled: list[str] = []
    hook = knobs.runtime.jit_post_compile_hook

    def note(**facts: Any) -> None:
        compiled.append(str(facts.get("repr")))

    knobs.runtime.jit_post_compile_hook = note
    try:
        answers(engine, prompts_of(7))
        for index, prompt in enumerate(prompts_of(5)):
            params = SamplingParams(
                temperature=0.7, top_p=0.9, max_tokens=NEW_TOKENS, seed=index, ignore_eos=True
            )
            engine.core.add_request(f"drawn {index}", prompt, params)
            engine.step(3)
        engine.run()
    finally:
        knobs.runtime.jit_post_compile_hook = hook
    assert compiled == []


@pytest.mark.parametrize("window", [None, 700], ids=["whole", "window"])
@pytest.mark.parametrize("token_budget", [16, 96, 400])
def test_keys_of_long_contexts_in_parts(
    token_budget: int, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few tokens behind many: several programs share the keys. Alone, and beside decodes."""
    from engine.attention import paged_triton

    sizes: dict[str, Any] = {"max_position_embeddings": 4096}
    if window is not None:
        sizes["sliding_window"] = window
    model = tiny_model("MistralForCausalLM", seed=3, **sizes)
    long = [3 + (7 * place + place // 11) % 300 for place in range(2100)]
    wanted = {"long": reference_greedy(model.reference, long, 8)}
    wanted["short"] = reference_greedy(model.reference, long[:50], 40)
    parts: list[int] = []
    tile_list = paged_triton.tile_list

    def seen(*args: Any) -> Any:
        tiles = tile_list(*args)
        parts.append(int((tiles[:, 7] % 64).max()))
        return tiles

    monkeypatch.setattr(paged_triton, "tile_list", seen)
    engine = on_gpu(
        model, num_blocks=400, token_budget=token_budget, least_prefill_tokens=token_budget
    )
    engine.add("short", long[:50], 40)
    engine.step(3)
    engine.add("long", long, 8)
    engine.run()
    assert {name: engine.output(name) for name in wanted} == wanted
    assert max(parts) > 1
    assert graphs_of(engine).failure == ""


def test_what_is_broken_off_between_two_kernels_changes_no_answer() -> None:
    model = tiny_model("Qwen3ForCausalLM", seed=3, head_dim=32)
    expected = [reference_greedy(model.reference, prompt, NEW_TOKENS) for prompt in prompts_of(4)]
    engine, draw = on_gpu(model, num_blocks=96), random.Random(2)
    asked = num_interrupted = turns = 0

    def interrupted() -> bool:
        nonlocal asked, num_interrupted
        asked += 1
        found = draw.random() < 0.04
        num_interrupted += found
        return found

    def check() -> None:
        nonlocal turns
        turns += 1
        for index, prompt in enumerate(prompts_of(4)):
            engine.add(f"{turns} {index}", prompt, NEW_TOKENS)
        engine.run()
        assert [engine.output(f"{turns} {index}") for index in range(4)] == expected

    while engine.runner.prepare(interrupted):
        if num_interrupted % 25 == 1 and turns < 6:
            check()
    assert num_interrupted > 20
    assert asked > 10 * num_interrupted
    assert turns > 1
    assert graphs_of(engine).failure == ""
    assert graphs_of(engine).count > 40
    check()


def test_a_shared_beginning_is_read_once_as_soon_as_there_was_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then each reads it for itself, from the graphs that there are."""
    model = tiny_model("Qwen3ForCausalLM", seed=3, head_dim=32)
    prompts = prompts_of(4, common=200)
    expected = [reference_greedy(model.reference, prompt, NEW_TOKENS) for prompt in prompts]
    engine = on_gpu(model, num_blocks=192)
    steps, graphs = engine.runner._device_steps, graphs_of(engine)
    assert steps is not None
    assert steps._sharing is not None
    steps._sharing._pays = lambda sequences, tokens, _own: sequences > 1 and tokens >= 64

    def say(turn: str) -> list[list[int]]:
        for index, prompt in enumerate(prompts):
            engine.add(f"{turn}{index}", prompt, NEW_TOKENS)
        engine.run()
        return [engine.output(f"{turn}{index}") for index in range(len(prompts))]

    assert say("cold ") == expected
    assert say("plain ") == expected
    assert not any(sizes.groups for sizes, _ in graphs._graphs)
    while engine.runner.prepare():
        """What has come up, and what will."""
    shared = {key: graph for key, graph in graphs._graphs.items() if key[0].groups}
    assert {(sizes.decodes, sizes.width) for sizes, _ in shared} >= {(4, 4)}
    replayed: list[Any] = []
    replay = graphs._replay

    def noted(graph: Any, *step: Any) -> None:
        replayed.append(graph)
        replay(graph, *step)

    monkeypatch.setattr(graphs, "_replay", noted)
    assert say("shared ") == expected
    assert sum(graph in shared.values() for graph in replayed) > NEW_TOKENS // 2
    assert graphs.failure == ""
