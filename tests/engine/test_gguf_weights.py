"""Weights that are read from a GGUF file as they are, and how the engine keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from engine.api.errors import InvalidValueError, LoadCancelledError, ModelFileError
from engine.api.events import WeightsKept
from engine.api.params import GREEDY, EngineConfig
from engine.engine_builder import build_engine
from engine.linear import can_pack
from engine.loading.describe import describe
from engine.loading.model_folder import LoadedFiles, open_model
from engine.loading.progress import never_cancelled, no_progress
from engine.models.decoder import Decoder
from engine.quantized.choice import (
    BOTH_CAP_BYTES,
    PACKED_FROM_BYTES,
    choose_kept,
    kept_bytes,
)
from engine.quantized.gguf_blocks import BLOCK_BYTES
from engine.quantized.grouped import GroupedWeight
from engine.quantized.int4_linear import has_packed_product
from tests.helpers.tiny_gguf import TinyGguf

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
BF16 = torch.bfloat16
KINDS = [
    Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1,
    Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K,
]  # fmt: skip
needs_fast = pytest.mark.skipif(
    not (has_packed_product() and can_pack(CPU, BF16)), reason="bfloat16 is slow here"
)


def opened(path: Path, models_dir: Path) -> LoadedFiles:
    return open_model(path, models_dir, keep_quantized=True)


def plain(value: torch.Tensor | GroupedWeight) -> torch.Tensor:
    return value.expand(torch.float32) if isinstance(value, GroupedWeight) else value.float()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kept_weight_has_the_value_of_the_expanded_one(kind: Kind, tmp_path: Path) -> None:
    path = TinyGguf(weight_type=kind, tied=kind is not Kind.F16).write(tmp_path / "tiny.gguf")
    expanded = dict(open_model(path, tmp_path / "expanded").weights())
    kept = dict(opened(path, tmp_path / "kept").kept_weights(torch.float32))
    assert kept.keys() == expanded.keys()
    for name, value in kept.items():
        quantised = kind.name in BLOCK_BYTES and value.shape != expanded[name].shape[:1]
        assert isinstance(value, GroupedWeight) == quantised, name
        assert torch.equal(plain(value), expanded[name]), name


def test_nothing_is_expanded_on_the_disk(tmp_path: Path) -> None:
    path = TinyGguf(weight_type=Kind.Q4_1).write(tmp_path / "tiny.gguf")
    files = opened(path, tmp_path / "models")
    assert not (files.folder / "model.safetensors").exists()
    assert sum(file.stat().st_size for file in files.folder.iterdir()) < 64 << 10
    assert files.num_parameters == open_model(path, tmp_path / "other").num_parameters


def test_a_folder_without_weights_is_completed_when_they_are_asked_for(tmp_path: Path) -> None:
    path = TinyGguf(weight_type=Kind.Q4_1).write(tmp_path / "tiny.gguf")
    kept = opened(path, tmp_path / "models")
    expanded = open_model(path, tmp_path / "models")
    assert expanded.folder == kept.folder
    assert len(dict(expanded.weights())) == 20
    assert len(dict(opened(path, tmp_path / "models").kept_weights(BF16))) == 20
    assert [entry.name for entry in (tmp_path / "models").iterdir()] == [kept.folder.name]


def test_kept_and_expanded_weights_are_two_models_to_the_prefix_cache(tmp_path: Path) -> None:
    path = TinyGguf(weight_type=Kind.Q4_1).write(tmp_path / "tiny.gguf")
    kept = opened(path, tmp_path / "models").fingerprint
    assert kept != open_model(path, tmp_path / "models").fingerprint
    assert kept == opened(path, tmp_path / "elsewhere").fingerprint
    other = TinyGguf(weight_type=Kind.Q4_1, seed=1).write(tmp_path / "other.gguf")
    assert kept != opened(other, tmp_path / "models").fingerprint


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = TinyGguf(weight_type=Kind.Q8_0).write(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(ModelFileError, match="truncated"):
        opened(path, tmp_path / "models")


def test_reading_can_be_cancelled(tmp_path: Path) -> None:
    path = TinyGguf(weight_type=Kind.Q8_0).write(tmp_path / "tiny.gguf")
    seen: list[str] = []

    def progress(stage: str, done: float, detail: str) -> None:
        seen.append(stage)

    config = EngineConfig(num_blocks=8, device="cpu", weights="packed")
    with pytest.raises(LoadCancelledError):
        build_engine(path, tmp_path / "models", config, progress, lambda: "weights" in seen)


def test_weights_of_a_gguf_file_are_counted_from_its_header(tmp_path: Path) -> None:
    path = TinyGguf(weight_type=Kind.Q4_K).write(tmp_path / "tiny.gguf")
    assert describe(path).num_parameters == opened(path, tmp_path / "models").num_parameters


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q8_0, Kind.Q6_K, Kind.F16], ids=lambda k: k.name)
@pytest.mark.parametrize("weights", ["packed", "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, BF16], ids=str)
def test_bytes_are_foretold(dtype: torch.dtype, weights: str, kind: Kind, tmp_path: Path) -> None:
    path = TinyGguf(weight_type=kind).write(tmp_path / "tiny.gguf")
    name = str(dtype).removeprefix("torch.")
    config = EngineConfig(num_blocks=8, device="cpu", dtype=name, weights=weights)
    engine = build_engine(path, tmp_path / "models", config, no_progress, never_cancelled)
    if engine.info.weights_kept is WeightsKept.EXPANDED:
        assert weights == "auto"
        return
    files = opened(path, tmp_path / "models")
    assert files.kept is not None
    args = (files.kept.stored(), files.config, engine.info.weights_kept, CPU, dtype)
    assert kept_bytes(*args) == engine.info.weights_bytes


def test_packed_answers_in_float32_are_those_of_expanded_weights(tmp_path: Path) -> None:
    path = TinyGguf(weight_type=Kind.Q4_1).write(tmp_path / "tiny.gguf")
    logits = []
    for files in (open_model(path, tmp_path / "models"), opened(path, tmp_path / "models")):
        weights = files.kept_weights(torch.float32)
        decoder = Decoder(files.config, weights, torch.float32, CPU, 32)
        ids = torch.arange(3, 12)
        rows = torch.arange(len(ids))
        seen = decoder.forward(ids, rows, lambda layer, query, *_: query.flatten(1), rows)
        logits.append(seen)
    assert torch.equal(logits[0], logits[1])


@needs_fast
def test_the_engine_packs_small_models_by_itself_and_answers(tmp_path: Path) -> None:
    path = TinyGguf(weight_type=Kind.Q4_1).write(tmp_path / "tiny.gguf")
    answers = {}
    for weights in ("auto", "packed", "expanded"):
        config = EngineConfig(num_blocks=8, device="cpu", dtype="bfloat16", weights=weights)
        engine = build_engine(path, tmp_path / "models", config, no_progress, never_cancelled)
        (answer,) = engine.core.generate([[3, 4, 5]], GREEDY)
        answers[weights] = (engine.info.weights_kept, len(answer.token_ids) > 0)
    assert answers == {
        "auto": (WeightsKept.BOTH, True),
        "packed": (WeightsKept.PACKED, True),
        "expanded": (WeightsKept.EXPANDED, True),
    }


def choose(
    weights: str = "auto",
    *,
    is_gguf: bool = True,
    num_parameters: int = 1 << 20,
    device: torch.device = CPU,
    dtype: torch.dtype = BF16,
    free: int = 8 << 30,
    deterministic: bool = False,
) -> WeightsKept:
    settings = EngineConfig(weights=weights, deterministic=deterministic)
    return choose_kept(settings, is_gguf, num_parameters, device, dtype, free)


def test_what_is_not_quantised_or_wished_otherwise_is_expanded() -> None:
    assert choose("packed", is_gguf=False) is WeightsKept.EXPANDED
    assert choose("expanded") is WeightsKept.EXPANDED
    assert choose(dtype=torch.float32) is WeightsKept.EXPANDED
    assert choose(deterministic=True) is WeightsKept.EXPANDED
    assert choose("packed", dtype=torch.float32) is WeightsKept.PACKED


@needs_fast
def test_expanded_weights_stay_beside_packed_ones_only_where_they_are_small() -> None:
    assert choose() is WeightsKept.BOTH
    assert choose(num_parameters=BOTH_CAP_BYTES // 2) is WeightsKept.BOTH
    assert choose(num_parameters=BOTH_CAP_BYTES // 2 + 1) is WeightsKept.PACKED
    assert choose(num_parameters=1 << 28, free=1 << 30) is WeightsKept.PACKED


def test_a_gpu_packs_large_models_and_what_does_not_fit() -> None:
    large, roomy = PACKED_FROM_BYTES // 2, 24 << 30
    assert choose(device=CUDA, num_parameters=large, free=roomy) is WeightsKept.PACKED
    assert choose(device=CUDA, num_parameters=large - 1, free=roomy) is WeightsKept.EXPANDED
    assert choose(device=CUDA, num_parameters=large - 1, free=4 << 30) is WeightsKept.PACKED


def test_a_gpu_packs_only_what_does_not_fit_where_its_fast_kernels_do_not_serve() -> None:
    for slow in ({"deterministic": True}, {"dtype": torch.float32}):
        model = {"device": CUDA, "num_parameters": 8_000_000_000, **slow}
        assert choose(**model, free=48 << 30) is WeightsKept.EXPANDED
        assert choose(**model, free=12 << 30) is WeightsKept.PACKED


def test_another_way_of_keeping_weights_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="weights = 'tight'"):
        EngineConfig(weights="tight")
