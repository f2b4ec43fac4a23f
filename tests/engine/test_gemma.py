"""The whole engine on the real Gemma 3 270M, a base model without a chat template: it answers as
transformers does with the same weights, in float32, on a GPU where there is one; in bfloat16 its
logits are as near as those of transformers.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from app.paths import models_dir
from engine.api.events import TemplateNote, WeightsKept
from engine.api.params import EngineConfig, SamplingParams
from engine.engine_builder import build_engine
from engine.loading.progress import never_cancelled, no_progress
from engine.model_loader import LoadedEngine
from engine.model_runner import build_runner
from engine.text_prefix import Before
from tests.helpers.gemma import gemma_files, gemma_gguf
from tests.helpers.reference import logit_error
from tests.helpers.runner_driver import RunnerDriver

# A quarter of a gigabyte is fetched, and all of it computed in float32.
pytestmark = pytest.mark.slow

NEW_TOKENS = 32
BOS = 2
TEXTS = [
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "从前有一座山，山上有一座",
    # Longer than a window of 512 tokens.
    "One day the river rose. " * 100 + "Then",
]


@pytest.fixture(scope="module")
def engine() -> LoadedEngine:
    config = EngineConfig(dtype="float32", num_blocks=256, max_model_len=2048)
    return build_engine(gemma_gguf(), models_dir(), config, no_progress, never_cancelled)


@pytest.fixture(scope="module")
def reference() -> Any:
    """transformers' model, described by hand, not by our reading of the file."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        vocab_size=262144,
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=18,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        max_position_embeddings=32768,
        sliding_window=512,
        query_pre_attn_scalar=256,
        tie_word_embeddings=True,
    )
    model: Any = Gemma3ForCausalLM(config)
    weights = {name: tensor.float() for name, tensor in gemma_files().weights()}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, assign=True)
    model.eval()
    return model


@pytest.fixture(scope="module")
def prompts(engine: LoadedEngine) -> list[list[int]]:
    return [[BOS, *engine.tokenizer.encode_text(text, Before.CONTROL)] for text in TEXTS]


def greedy(reference: Any, prompt: list[int], answer: list[int]) -> list[int]:
    """What transformers draws after the prompt and each beginning of ``answer``: all of ``answer``
    exactly if its own greedy answer is the same.
    """
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt + answer])).logits[0]
    drawn: list[int] = logits[len(prompt) - 1 : -1].argmax(-1).tolist()
    return drawn


def test_answers_are_those_of_transformers(
    engine: LoadedEngine, reference: Any, prompts: list[list[int]]
) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
    together = [list(o.token_ids) for o in engine.core.generate(prompts, params)]
    again = engine.core.generate(prompts[-1:], params)[0]
    assert len(prompts[-1]) > 512
    assert again.usage.cached_tokens == len(prompts[-1]) // 16 * 16
    assert list(again.token_ids) == together[-1]
    for prompt, answer in zip(prompts, together, strict=True):
        assert answer == greedy(reference, prompt, answer)


def test_it_knows_what_it_was_taught(engine: LoadedEngine) -> None:
    """With wrong weights too it would agree with transformers, which is given the same."""
    ids = [BOS, *engine.tokenizer.encode_text("1, 2, 3, 4,", Before.CONTROL)]
    (answer,) = engine.core.generate([ids], SamplingParams(temperature=0.0, max_tokens=12))
    assert answer.text.startswith(" 5, 6, 7,")


def test_it_says_that_it_has_no_chat_template_and_which_can_be_chosen(engine: LoadedEngine) -> None:
    assert not engine.info.has_chat_template
    assert engine.info.template_note is TemplateNote.ABSENT
    choices = ("gemma", "alpaca", "plain", "completion")
    assert engine.info.chat_template_choices == choices
    assert engine.info.license == "gemma"


@pytest.mark.gpu
@pytest.mark.parametrize("index", range(len(TEXTS)))
def test_logits_in_bfloat16(
    engine: LoadedEngine, reference: Any, prompts: list[list[int]], index: int
) -> None:
    """At most twice as far from float32 as transformers' own bfloat16 model on the same GPU."""
    files = gemma_files()
    params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
    sequence = prompts[index] + list(engine.core.generate([prompts[index]], params)[0].token_ids)
    runner = build_runner(
        files.config, files.weights(), num_blocks=64, device="cuda", dtype="bfloat16"
    )
    ours = logit_error(RunnerDriver(runner, 64, 16), reference, sequence)
    ids = torch.tensor([sequence])
    rounded = copy.deepcopy(reference).to("cuda", torch.bfloat16)
    with torch.inference_mode():
        want = reference(ids).logits[0].double()
        got = rounded(ids.cuda()).logits[0].cpu().double()
    theirs = float((got - want).abs().max())
    print(f"logits of {len(sequence)} tokens: ours {ours:.4f}, transformers' {theirs:.4f}")
    assert theirs > 0
    assert ours <= 2 * theirs, f"{ours} against {theirs}"


@pytest.mark.gpu
def test_packed_weights_on_a_gpu_say_what_expanded_ones_say(
    engine: LoadedEngine, prompts: list[list[int]]
) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
    expected = [list(o.token_ids) for o in engine.core.generate(prompts, params)]
    config = EngineConfig(dtype="float32", num_blocks=256, max_model_len=2048, weights="packed")
    packed = build_engine(gemma_gguf(), models_dir(), config, no_progress, never_cancelled)
    assert packed.info.weights_kept is WeightsKept.PACKED
    assert [list(o.token_ids) for o in packed.core.generate(prompts, params)] == expected
