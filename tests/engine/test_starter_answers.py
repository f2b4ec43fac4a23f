"""The whole engine on the real starter model answers as transformers does, token for token.

Cold and from the cache, alone and together, in chunks and after preemption; in float32. On a GPU,
where there is one, through Triton kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from app.paths import models_dir
from engine.api.params import ChatMessage, EngineConfig, SamplingParams
from engine.engine_builder import build_engine
from engine.loading.progress import never_cancelled, no_progress
from engine.model_loader import LoadedEngine
from engine.model_runner import build_runner
from engine.offline import GenerationOutput
from tests.helpers.reference import logit_error
from tests.helpers.runner_driver import RunnerDriver
from tests.helpers.starter import starter_files, starter_gguf

NEW_TOKENS = 64
PARAMS = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
SYSTEM = "You answer in plain English, briefly and kindly, and you never make things up. " * 2
QUESTIONS = [
    "What is the capital of France?",
    "Name three colours of the rainbow.",
    "Why is the sky blue during the day?",
    "Write a haiku about the sea.",
    "Explain what a page table is.",
]


def load(**config: object) -> LoadedEngine:
    settings = EngineConfig.from_mapping({"dtype": "float32", **config})
    return build_engine(starter_gguf(), models_dir(), settings, no_progress, never_cancelled)


@pytest.fixture(scope="module")
def engine() -> LoadedEngine:
    return load(num_blocks=256)


@pytest.fixture(scope="module")
def prompts(engine: LoadedEngine) -> list[list[int]]:
    return [
        engine.encoder.encode((ChatMessage("system", SYSTEM), ChatMessage("user", text))).token_ids
        for text in QUESTIONS
    ]


@pytest.fixture(scope="module")
def expected(prompts: list[list[int]]) -> list[list[int]]:
    """Greedy continuations of transformers' own model."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(starter_files().folder, dtype=torch.float32)
    answers = []
    for prompt in prompts:
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        answers.append(out[0, len(prompt) :].tolist())
    return answers


def ids(outputs: Sequence[GenerationOutput]) -> list[list[int]]:
    return [list(output.token_ids) for output in outputs]


def test_together_cold_the_system_prompt_is_computed_once(engine, prompts, expected):
    outputs = engine.core.generate(prompts, PARAMS)
    assert ids(outputs) == expected
    first, second = prompts[:2]
    common = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    shared = common // 16 * 16
    assert shared >= 32
    assert [o.usage.cached_tokens for o in outputs] == [0, *[shared] * 4]
    assert engine.core.violations() == []


def test_again_from_the_cache_one_at_a_time(engine, prompts, expected):
    engine.core.generate(prompts[:2], SamplingParams(temperature=0.0, max_tokens=1))
    for prompt, answer in zip(prompts[:2], expected, strict=False):
        (output,) = engine.core.generate([prompt], PARAMS)
        assert list(output.token_ids) == answer
        assert output.usage.cached_tokens == (len(prompt) - 1) // 16 * 16


def test_next_turn_on_kept_ids_equals_the_whole_history_computed_cold(engine, prompts):
    question = (ChatMessage("system", SYSTEM), ChatMessage("user", QUESTIONS[0]))
    core = engine.core
    core.pool.drop_cached("test")
    core.add_request("turn", prompts[0], SamplingParams(temperature=0.0, max_tokens=20))
    finished = None
    text = ""
    while core.has_work:
        for event in core.step():
            text += getattr(event, "text", "")
            finished = event
    turn = finished.turn
    answer = ChatMessage("assistant", text, turn)
    follow_up = (*question, answer, ChatMessage("user", "And of Spain?"))
    encoded = engine.encoder.encode(follow_up)
    history = [*turn.prompt_ids, *turn.output_ids]
    assert encoded.token_ids[: len(history)] == history
    assert encoded.reencoded_tokens == 0
    (warm,) = core.generate([encoded.token_ids], PARAMS)
    assert warm.usage.cached_tokens == (len(history) - 1) // 16 * 16
    core.pool.drop_cached("test")
    (cold,) = core.generate([encoded.token_ids], PARAMS)
    assert cold.usage.cached_tokens == 0
    assert warm.token_ids == cold.token_ids


def test_chunked_and_preempted(prompts, expected):
    # Each request needs 8 or 9 blocks, of which 3 are shared: 20 are too few for five.
    engine = load(num_blocks=20, token_budget=24, watermark=0.0)
    outputs = engine.core.generate(prompts, PARAMS)
    assert engine.core.metrics.num_preemptions > 0
    assert ids(outputs) == expected


@pytest.mark.gpu
def test_logits_in_bfloat16(prompts, expected):
    """At most twice as far from float32 as transformers' own bfloat16 model on the same GPU."""
    from transformers import AutoModelForCausalLM

    files = starter_files()
    sequence = prompts[0] + expected[0]
    runner = build_runner(
        files.config, files.weights(), num_blocks=32, device="cuda", dtype="bfloat16"
    )
    exact: Any = AutoModelForCausalLM.from_pretrained(files.folder, dtype=torch.float32)
    rounded: Any = AutoModelForCausalLM.from_pretrained(files.folder, dtype=torch.bfloat16)
    ours = logit_error(RunnerDriver(runner, 32, 16), exact, sequence)
    ids = torch.tensor([sequence])
    with torch.inference_mode():
        want = exact(ids).logits[0].double()
        got = rounded.cuda()(ids.cuda()).logits[0].cpu().double()
    theirs = float((got - want).abs().max())
    assert ours <= 2 * theirs, f"{ours} against {theirs}"
