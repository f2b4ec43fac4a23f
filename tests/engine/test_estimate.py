"""What is said of a model before it is loaded, held against what is there once it is."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from app.paths import models_dir
from engine.api.params import EngineConfig
from engine.attention.make import make_backend
from engine.batch import PrefillSpan, StepBatch
from engine.engine_builder import build_engine
from engine.held_memory import NOTHING_HELD, Held, give_back
from engine.kv_cache import KVCache
from engine.loading import estimate as estimate_module
from engine.loading.describe import ModelFacts, describe
from engine.loading.estimate import LoadEstimate, estimate, step_bytes
from engine.loading.model_folder import open_model
from engine.loading.progress import never_cancelled, no_progress
from engine.memory import DESKTOP_MARGIN_BYTES, host_num_blocks
from engine.models.decoder import Decoder
from engine.pool_sizing import GRAPH_WORKSPACES
from tests.helpers.live_bytes import live_bytes
from tests.helpers.starter import starter_files, starter_gguf
from tests.helpers.tiny_model import tiny_model

MIB, GIB = 1 << 20, 1 << 30
CPU = torch.device("cpu")
WITHIN = 0.05
TINY = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "vocab_size": 1000,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {"tie_word_embeddings": False}),
    "llama tied": ("LlamaForCausalLM", {"tie_word_embeddings": True}),
    "llama narrow": ("LlamaForCausalLM", {"intermediate_size": 128}),
    "llama, many words": ("LlamaForCausalLM", {"vocab_size": 40_000}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 64}),
    "mistral": ("MistralForCausalLM", {"sliding_window": 256}),
    "smollm3": ("SmolLM3ForCausalLM", {}),
    "gemma3": ("Gemma3ForCausalLM", {"head_dim": 64, "sliding_window": 512}),
    "phi3": ("Phi3ForCausalLM", {}),
}


@pytest.fixture(params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model of each family, as a hub would have it."""
    architecture, entries = MODELS[request.param]
    return save(tmp_path, architecture, **entries)


def save(folder: Path, architecture: str, **entries: Any) -> Path:
    model = tiny_model(architecture, **{**TINY, **entries})
    model.reference.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == [architecture]
    return folder


def settings(dtype: str, **values: Any) -> EngineConfig:
    return EngineConfig(device="cpu", dtype=dtype, **values)


def make_decoder(folder: Path, dtype: torch.dtype) -> Decoder:
    files = open_model(folder, folder)
    context = files.config.context_length
    return Decoder(files.config, files.weights(), dtype, CPU, context)


def whole_step(decoder: Decoder, num_tokens: int) -> object:
    """A prefill of so many tokens and the logits of its last rows, in a pool of its own."""
    positions = torch.arange(num_tokens)
    blocks = torch.arange(-(-num_tokens // 16))
    config = decoder.config
    backend = make_backend("paged_reference", config, len(blocks), 16, decoder.dtype, CPU)
    rows = positions[-256:]
    none = positions[:0]
    batch = StepBatch(
        input_ids=torch.zeros_like(positions),
        positions=positions,
        slot_mapping=positions,
        num_decodes=0,
        decode_block_tables=none.view(0, 1),
        decode_lengths=none,
        max_decode_length=0,
        prefills=(PrefillSpan(0, num_tokens, 0, blocks, request_id="r"),),
        sample_rows=rows,
        sampled=(),
        sample_ends=(),
    )

    def work() -> object:
        with torch.inference_mode():
            logits = decoder.forward(batch.input_ids, positions, backend.begin_step(batch), rows)
            return logits.float()

    return work


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_familys_weights_and_pool_are_as_foreseen(folder: Path, dtype: str) -> None:
    foreseen = estimate(describe(folder), settings(dtype))
    kind = getattr(torch, dtype)
    loaded = live_bytes(lambda: make_decoder(folder, kind))
    decoder: Decoder = loaded.made
    assert foreseen.weights_bytes == pytest.approx(decoder.weights_bytes, rel=WITHIN)
    # The rotary tables count as workspace: there is nothing else that stays.
    tables = foreseen.workspace_bytes - step_bytes(decoder.config, 1024, kind)
    assert foreseen.weights_bytes + tables == pytest.approx(loaded.left, rel=WITHIN)
    cache = KVCache(decoder.config, 2, 16, kind, CPU)
    assert foreseen.block_bytes == cache.block_bytes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_full_step_of_every_family_takes_what_was_foreseen(folder: Path, dtype: str) -> None:
    kind = getattr(torch, dtype)
    decoder = make_decoder(folder, kind)
    work = whole_step(decoder, 1024)
    work()  # type: ignore[operator]
    peak = live_bytes(work).peak  # type: ignore[arg-type]
    foreseen = estimate(describe(folder), settings(dtype))
    assert step_bytes(decoder.config, 1024, kind) == pytest.approx(peak, rel=0.1)
    # What a user is told is the sum, with the smallest useful cache.
    cache = 64 * foreseen.block_bytes
    whole = foreseen.weights_bytes + cache + step_bytes(decoder.config, 1024, kind)
    assert whole == pytest.approx(decoder.weights_bytes + cache + peak, rel=WITHIN)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("weights", ["auto", "packed", "expanded", "folder"])
def test_the_starter_model_takes_what_was_foreseen(dtype: str, weights: str) -> None:
    """As a GGUF file with its weights kept in each way, and as the folder that is made of it."""
    is_folder = weights == "folder"
    path = starter_files().folder if is_folder else starter_gguf()
    how = "auto" if is_folder else weights
    config = settings(dtype, kv_cache_bytes=64 * MIB, weights=how)
    foreseen = estimate(describe(path), config)
    info = build_engine(path, models_dir(), config, no_progress, never_cancelled).info
    assert foreseen.fits
    assert foreseen.weights_bytes == pytest.approx(info.weights_bytes, rel=WITHIN)
    assert foreseen.num_blocks == pytest.approx(info.num_blocks, rel=WITHIN)
    assert foreseen.block_bytes == info.kv_bytes_per_token * info.block_size
    assert foreseen.context_length == info.context_length
    assert (str(foreseen.device), str(foreseen.dtype)) == (info.device, f"torch.{info.dtype}")
    facts = describe(path)
    assert (facts.name, facts.config.architecture) == (info.name, info.architecture)
    assert (facts.num_parameters, facts.license) == (info.num_parameters, info.license)
    assert facts.has_chat_template == info.has_chat_template


# --- what fits, in memories that are made up ---


@pytest.fixture
def facts(tmp_path: Path) -> ModelFacts:
    return describe(save(tmp_path, "LlamaForCausalLM"))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch):
    """Sets how much of the host's memory is free."""

    def set_free(free: int) -> None:
        memory = SimpleNamespace(available=free, total=16 * GIB)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)

    return set_free


def foresee(facts: ModelFacts, held: Held = NOTHING_HELD, **values: Any) -> LoadEstimate:
    return estimate(facts, settings("float32", **values), held)


def test_the_cache_is_a_quarter_of_what_is_free_beside_the_rest(facts: ModelFacts, host) -> None:
    host(400 * MIB)
    found = foresee(facts)
    room = 400 * MIB - found.weights_bytes - found.workspace_bytes
    assert found.num_blocks == room // 4 // found.block_bytes
    assert found.memory.free == 400 * MIB


def test_a_model_that_is_too_large_does_not_fit(facts: ModelFacts, host) -> None:
    host(400 * MIB)
    needed = foresee(facts).weights_bytes
    host(needed - 1)
    found = foresee(facts)
    assert not found.fits
    assert found.num_blocks == 0
    assert found.weights_bytes == needed


def test_what_the_loaded_model_gives_back_makes_room(facts: ModelFacts, host) -> None:
    host(MIB)
    assert not foresee(facts).fits
    assert foresee(facts, Held("cpu", 400 * MIB)).fits
    assert not foresee(facts, Held("cuda:0", 400 * MIB)).fits


def test_a_cache_that_was_asked_for_and_does_not_fit_is_told(facts: ModelFacts, host) -> None:
    host(400 * MIB)
    assert foresee(facts, kv_cache_bytes=100 * MIB).fits
    assert not foresee(facts, kv_cache_bytes=400 * MIB).fits


def test_a_shorter_context_is_what_a_load_gives(facts: ModelFacts, host) -> None:
    host(400 * MIB)
    short, whole = foresee(facts, max_model_len=100), foresee(facts)
    assert (short.context_length, whole.context_length) == (100, 1024)
    assert short.workspace_bytes < whole.workspace_bytes
    assert foresee(facts, max_model_len=10**6).context_length == 1024


def test_pool_and_estimate_agree_on_the_host(facts: ModelFacts, host) -> None:
    host(4 * GIB)
    found = foresee(facts)
    got = host_num_blocks(EngineConfig(), found.block_bytes, found.weights_bytes)
    assert found.num_blocks == pytest.approx(got, rel=WITHIN)


def test_on_a_gpu_the_cache_gets_what_a_load_would_leave(
    facts: ModelFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = torch.device("cuda", 0)
    monkeypatch.setattr(estimate_module, "resolve_device", lambda _name: card)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (5 * GIB, 8 * GIB))
    config = EngineConfig(dtype="float16", gpu_memory_utilization=1.0)
    found = estimate(facts, config, Held("cuda:0", GIB))
    assert (found.memory.free, found.memory.total) == (6 * GIB, 8 * GIB)
    kept = found.weights_bytes + found.workspace_bytes + DESKTOP_MARGIN_BYTES
    assert found.num_blocks == (6 * GIB - kept) // found.block_bytes
    full = estimate(facts, replace(config, gpu_memory_utilization=0.3), Held("cuda:0", GIB))
    assert full.num_blocks < found.num_blocks


def test_on_a_gpu_packed_weights_need_room_to_be_expanded_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A piece of a large matrix, all of a small one; graphs have a workspace of their own."""
    card = torch.device("cuda", 0)
    monkeypatch.setattr(estimate_module, "resolve_device", lambda _name: card)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (5 * GIB, 8 * GIB))
    facts = describe(starter_gguf())
    config = EngineConfig(dtype="float16", weights="packed")
    packed, expanded = (
        estimate(facts, replace(config, weights=weights)) for weights in ("packed", "expanded")
    )
    embedding = 49_152 * 576 * 2
    assert packed.workspace_bytes - expanded.workspace_bytes == GRAPH_WORKSPACES * embedding
    assert packed.weights_bytes < expanded.weights_bytes


@pytest.mark.parametrize(("architecture", "size"), [("Gemma3ForCausalLM", 4), (None, 2)])
def test_a_gpu_without_bfloat16_holds_what_exceeds_float16_in_twice_the_bytes(
    facts: ModelFacts, monkeypatch: pytest.MonkeyPatch, architecture: str | None, size: int
) -> None:
    card = torch.device("cuda", 0)
    monkeypatch.setattr(estimate_module, "resolve_device", lambda _name: card)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 5))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (5 * GIB, 8 * GIB))
    if architecture:
        facts = replace(facts, config=tiny_model(architecture).config)
    found = estimate(facts, EngineConfig())
    assert found.dtype.itemsize == size
    assert found.block_bytes == facts.config.kv_bytes_per_token(size) * EngineConfig().block_size


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["paged_triton", "paged_reference"])
def test_on_a_real_gpu_the_starter_model_takes_what_was_foreseen(backend: str) -> None:
    # What the model before has left would be counted as taken by another program.
    gc.collect()
    give_back()
    config = EngineConfig(device="cuda", dtype="bfloat16", backend=backend)
    foreseen = estimate(describe(starter_gguf()), config)
    info = build_engine(starter_gguf(), models_dir(), config, no_progress, never_cancelled).info
    assert foreseen.weights_bytes == pytest.approx(info.weights_bytes, rel=WITHIN)
    assert foreseen.num_blocks == pytest.approx(info.num_blocks, rel=WITHIN)
