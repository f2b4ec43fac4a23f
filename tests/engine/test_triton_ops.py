"""A decoder of fused Triton kernels computes what the plain operations compute."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import kernels.skinny_linear
from engine.attention.base import AttentionBackend
from engine.attention.paged_reference import PagedReferenceBackend
from engine.attention.paged_triton import PagedTritonBackend
from engine.kv_cache import KVCache
from engine.model_runner import ModelRunner
from engine.models.decoder import Decoder
from engine.models.ops import DecoderOps, ReferenceOps
from engine.models.triton_ops import TritonOps
from kernels.launch_linear import DotLaunch
from tests.helpers.grouped_model import GroupedModel
from tests.helpers.runner_driver import RunnerDriver
from tests.helpers.tiny_model import TinyModel, tiny_model

NUM_BLOCKS, BLOCK_SIZE = 12, 8
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama biased": (
        "LlamaForCausalLM",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 32}),
    "smollm3": ("SmolLM3ForCausalLM", {"head_dim": 16, "no_rope_layer_interval": 2}),
    "gemma3": (
        "Gemma3ForCausalLM",
        {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 5},
    ),
}


class Recorded(ModelRunner):
    """Keeps the logits of every step."""

    def _make_device_steps(self, attention: AttentionBackend) -> None:
        """Step by step: what is captured as a graph cannot be looked at."""

    def compute_logits(self, batch: Any) -> Tensor:
        logits = super().compute_logits(batch)
        self.__dict__.setdefault("seen", []).append(logits.cpu().clone())
        return logits


def steps_of(
    model: TinyModel | GroupedModel, ops: DecoderOps, backend: type[Any]
) -> tuple[list[Tensor], Any]:
    """Logits of a prompt in two chunks, one alone, and decodes of one, two and three rows."""
    decoder = Decoder(model.config, model.weights(), torch.float32, DEVICE, 64, ops)
    cache = KVCache(model.config, NUM_BLOCKS, BLOCK_SIZE, torch.float32, DEVICE)
    runner = Recorded(decoder, backend(cache, model.config), BLOCK_SIZE, 64, 4)
    driver = RunnerDriver(runner, NUM_BLOCKS, BLOCK_SIZE)
    draw = random.Random(5)
    requests = [
        driver.request(str(length), [draw.randrange(3, 60) for _ in range(length)])
        for length in (7, 1, 3)
    ]
    driver.prefill(requests[0], 4)
    driver.decode(requests[:1], 1)
    driver.prefill(requests[1])
    driver.decode(requests[:2], 1)
    driver.prefill(requests[2])
    driver.decode(requests, 1)
    return runner.__dict__["seen"], cache


def model_of(name: str) -> TinyModel:
    architecture, entries = CASES[name]
    shape = {"vocab_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return tiny_model(architecture, seed=3, **{**shape, **entries})


def check(model: TinyModel | GroupedModel, backend: type[Any], ops: DecoderOps) -> None:
    """The same logits and the same pool as with the plain operations."""
    expected, wanted = steps_of(model, ReferenceOps(), PagedReferenceBackend)
    found, cache = steps_of(model, ops, backend)
    assert [part.shape for part in found] == [part.shape for part in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine - theirs).abs().max() <= 1e-4 if len(mine) else True
    for mine, theirs in zip((*cache.k, *cache.v), (*wanted.k, *wanted.v), strict=True):
        assert (mine - theirs).abs().max() <= 1e-4


@pytest.mark.parametrize("name", CASES)
def test_logits_and_pool(name: str) -> None:
    check(model_of(name), PagedTritonBackend, TritonOps(DEVICE))


@pytest.mark.parametrize("name", ["llama biased", "gemma3"])
def test_products_that_are_split(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def split(rows: int, outputs: int, inner: int, gated: bool, joined: bool, *_: Any) -> DotLaunch:
        return DotLaunch(16, 16, 16, 2 if joined else 1, 4, 2, True)

    monkeypatch.setattr(kernels.skinny_linear, "linear_launch", split)
    check(model_of(name), PagedTritonBackend, TritonOps(DEVICE))


def test_a_backend_that_stores_by_itself() -> None:
    check(model_of("qwen3"), PagedReferenceBackend, TritonOps(DEVICE))


@pytest.mark.parametrize("kinds", [("Q4_1", "Q8_0", "Q4_0")], ids=str)
def test_products_with_quantised_weights(kinds: tuple[str, ...]) -> None:
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    entries = {"vocab_size": 64, "num_hidden_layers": 2, "head_dim": 32, **shape}
    model = GroupedModel(tiny_model("Qwen3ForCausalLM", seed=3, **entries), kinds)
    check(model, PagedTritonBackend, TritonOps(DEVICE))


def test_deterministic_rows_do_not_depend_on_how_many_there_are() -> None:
    model = tiny_model("Qwen3ForCausalLM", vocab_size=64, num_hidden_layers=1, head_dim=16)
    decoder = Decoder(
        model.config, model.weights(), torch.float32, DEVICE, 64, TritonOps(DEVICE, True)
    )
    ids = torch.randint(3, 60, (19,), device=DEVICE)

    def logits(rows: slice) -> tuple[Tensor, Tensor]:
        """Without attention: each token sees its own value."""
        seen: list[Tensor] = []

        def step(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            seen.append(query.flatten(1))
            return query.flatten(1)

        positions = torch.arange(19, device=DEVICE)[rows]
        every = torch.arange(len(positions), device=DEVICE)
        return decoder.forward(ids[rows], positions, step, every), seen[0]

    whole, _ = logits(slice(0, 19))
    for first, last in ((0, 1), (4, 6), (3, 19)):
        part, _ = logits(slice(first, last))
        assert torch.equal(part, whole[first:last])


def test_weights_are_counted() -> None:
    model = model_of("llama biased")
    sizes = [
        Decoder(model.config, model.weights(), torch.float32, DEVICE, 64, ops).weights_bytes
        for ops in (ReferenceOps(), TritonOps(DEVICE))
    ]
    assert sizes[0] == sizes[1] > 0
