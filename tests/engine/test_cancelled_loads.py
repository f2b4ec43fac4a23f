"""A load that is cancelled ends soon, also while weights are converted, and no two run at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from engine import engine_builder
from engine.api.commands import LoadModel, UnloadModel
from engine.api.errors import LoadCancelledError
from engine.api.events import EngineStatus, EngineStatusChanged, ModelLoaded, ModelLoadFailed
from engine.api.params import GREEDY, EngineConfig
from engine.engine_builder import build_engine
from engine.linear import can_pack
from engine.loading import gguf_pieces, gguf_weights
from engine.loading.gguf_tokenizer import build_tokenizer
from engine.loading.model_folder import LoadedFiles, open_model
from engine.loading.progress import no_progress
from engine.model_runner import ModelRunner
from engine.models import weights as weights_module
from engine.models.families import family_of
from engine.models.ops import ReferenceOps
from engine.models.weights import Weights
from engine.quantized import int4_linear
from engine.quantized.int4_linear import Int4Linear, has_packed_product
from tests.helpers.piece_gguf import piece_metadata
from tests.helpers.talk import Talk, talk_with_engine
from tests.helpers.tiny_gguf import TinyGguf

CPU = torch.device("cpu")
CONFIG = EngineConfig(device="cpu", dtype="float32", num_blocks=16)
PACKED = EngineConfig(device="cpu", dtype="bfloat16", num_blocks=16, weights="packed")
needs_product = pytest.mark.skipif(
    not (has_packed_product() and can_pack(CPU, torch.bfloat16)), reason="bfloat16 is slow here"
)


class Enough(Exception):
    """Of a breath."""


def breaths(limit: int = -1) -> tuple[Callable[[], None], list[int]]:
    """Something to breathe with, which raises at the breath of that number; and all breaths."""
    taken: list[int] = []

    def breathe() -> None:
        taken.append(1)
        if len(taken) == limit:
            raise Enough

    return breathe, taken


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return TinyGguf().write(tmp_path / "tiny.gguf")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.mark.parametrize("last", [1, 5, 9])
def test_conversion_ends_before_the_next_product(
    last: int, file: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    make = ReferenceOps.linear

    def count(*args: object) -> object:
        made.append(1)
        return make(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(ReferenceOps, "linear", count)
    with pytest.raises(LoadCancelledError):
        build_engine(file, models, CONFIG, no_progress, lambda: len(made) >= last)
    assert len(made) == last
    build_engine(file, models, CONFIG, no_progress, lambda: False)
    # The output layer, and four products of two layers.
    assert len(made) == last + 9


def test_one_large_weight_is_copied_in_pieces(
    file: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = open_model(file, models)
    monkeypatch.setattr(weights_module, "_PIECE_ELEMENTS", 256 * 8)
    name, tensor = next((n, t) for n, t in files.weights() if t.shape == (512, 256))
    breathe, taken = breaths()
    arguments = (files.config, family_of(files.config), [(name, tensor)])
    found = Weights(*arguments, torch.bfloat16, CPU, ReferenceOps(), breathe)
    assert len(taken) == 512 // 8
    assert torch.equal(found.take(name, 512, 256), tensor.to(torch.bfloat16))
    breathe, taken = breaths(10)
    with pytest.raises(Enough):
        Weights(*arguments, torch.bfloat16, CPU, ReferenceOps(), breathe)


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q2_K], ids=lambda kind: kind.name)
def test_one_large_weight_is_read_from_its_file_in_pieces(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TinyGguf(weight_type=kind).write(tmp_path / "tiny.gguf")
    files = open_model(path, tmp_path / "models", keep_quantized=True)
    whole = dict(files.kept_weights(torch.float32))
    monkeypatch.setattr(gguf_weights, "_PIECE_ELEMENTS", 256 * 8)
    breathe, taken = breaths()
    for name, value in files.kept_weights(torch.float32, breathe):
        other = whole[name]
        assert type(value) is type(other)
        assert torch.equal(values_of(value), values_of(other)), name
    assert len(taken) > 100
    breathe, taken = breaths(20)
    with pytest.raises(Enough):
        list(files.kept_weights(torch.float32, breathe))


def values_of(value: object) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else value.expand(torch.float32)  # type: ignore


@needs_product
def test_one_large_weight_is_packed_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TinyGguf(weight_type=Kind.Q8_0).write(tmp_path / "tiny.gguf")
    files = open_model(path, tmp_path / "models", keep_quantized=True)
    kept = dict(files.kept_weights(torch.bfloat16))
    weight = next(value for value in kept.values() if tuple(value.shape) == (512, 256))
    whole = Int4Linear(weight)  # type: ignore[arg-type]
    monkeypatch.setattr(int4_linear, "_PIECE_ELEMENTS", 64 * 256)
    breathe, taken = breaths()
    pieces = Int4Linear(weight, breathe=breathe)  # type: ignore[arg-type]
    assert len(taken) == 512 // 64
    x = torch.randn(3, 256).to(torch.bfloat16)
    assert torch.equal(whole(x), pieces(x))
    asked: list[int] = []
    built: list[int] = []
    make = int4_linear._pack

    def count(*args: object) -> object:
        built.append(1)
        asked.clear()
        return make(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(int4_linear, "_pack", count)

    def cancelled() -> bool:
        asked.append(1)
        return len(built) == 2 and len(asked) == 2

    with pytest.raises(LoadCancelledError):
        build_engine(path, tmp_path / "models", PACKED, no_progress, cancelled)
    assert len(built) == 2


def test_warming_up_ends_between_two_layers(
    file: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    layers: list[int] = []
    submit, attend = ModelRunner.submit, ReferenceOps.attend

    def watched(runner: ModelRunner, output: object) -> object:
        steps.append("begun")
        done = submit(runner, output)  # type: ignore[arg-type]
        steps.append("done")
        return done

    def layer(ops: ReferenceOps, index: int, *args: object) -> object:
        layers.append(index)
        return attend(ops, index, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ModelRunner, "submit", watched)
    monkeypatch.setattr(ReferenceOps, "attend", layer)
    with pytest.raises(LoadCancelledError):
        build_engine(file, models, CONFIG, no_progress, lambda: len(layers) >= 2)
    assert (steps, layers) == (["begun"], [0, 1])
    steps.clear()
    with pytest.raises(LoadCancelledError):
        build_engine(file, models, CONFIG, no_progress, lambda: steps.count("done") >= 2)
    assert steps == ["begun", "done"] * 2


def test_what_answers_has_no_breath_left_in_it(file: Path, models: Path) -> None:
    is_loaded = False
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return is_loaded

    engine = build_engine(file, models, CONFIG, no_progress, cancelled)
    is_loaded, count = True, len(asked)
    engine.core.generate([[3, 4, 5]], GREEDY)
    assert len(asked) == count


def test_a_vocabulary_is_joined_a_few_pieces_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = piece_metadata()
    monkeypatch.setattr(gguf_pieces, "_PIECES_A_BREATH", 10)
    breathe, taken = breaths()
    build_tokenizer(metadata, breathe)
    assert len(taken) > 10
    breathe, taken = breaths(8)
    with pytest.raises(Enough):
        build_tokenizer(metadata, breathe)


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talk_with_engine(20.0) as made:
        yield made


class SlowProducts:
    """Makes each product slow; ``made``: by which thread, in their order. None is made while
    ``released`` is cleared.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[threading.Thread] = []
        self.begun = threading.Event()
        self.released = threading.Event()
        self.released.set()
        make = ReferenceOps.linear

        def slow(*args: object) -> object:
            self.made.append(threading.current_thread())
            self.begun.set()
            self.released.wait(60.0)
            time.sleep(0.05)
            return make(*args)  # type: ignore[arg-type]

        patch.setattr(ReferenceOps, "linear", slow)

    def runs(self) -> list[int]:
        """How many products were made by one thread after another."""
        counts: list[int] = []
        for n, thread in enumerate(self.made):
            if n and thread is self.made[n - 1]:
                counts[-1] += 1
            else:
                counts.append(1)
        return counts


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowProducts:
    return SlowProducts(monkeypatch)


def load(name: str, file: Path, models: Path) -> LoadModel:
    return LoadModel(str(models), str(file), config=CONFIG, command_id=name)


def test_another_model_is_loaded_when_the_cancelled_one_has_ended(
    talk: Talk, file: Path, models: Path, slow: SlowProducts, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def watched(*args: Any, **kept: Any) -> LoadedFiles:
        opened.append("opened")
        return open_model(*args, **kept)

    monkeypatch.setattr(engine_builder, "open_model", watched)
    slow.released.clear()
    talk.send(load("one", file, models))
    assert slow.begun.wait(60.0)
    for name in ("two", "three"):
        talk.send(load(name, file, models))
    talk.until(ModelLoadFailed, command_id="two")
    # Time enough to begin, if they would.
    time.sleep(0.5)
    assert opened == ["opened"]
    slow.released.set()
    talk.until(ModelLoaded, timeout_s=60.0, command_id="three")
    assert opened == ["opened"] * 2
    assert slow.runs() == [1, 9]
    assert [e.command_id for e in talk.events if isinstance(e, ModelLoaded)] == ["three"]


def test_unloading_ends_the_conversion(
    talk: Talk, file: Path, models: Path, slow: SlowProducts
) -> None:
    talk.send(load("one", file, models))
    assert slow.begun.wait(60.0)
    talk.send(UnloadModel())
    talk.until(EngineStatusChanged, status=EngineStatus.NO_MODEL)
    deadline = time.monotonic() + 30.0
    while any(thread.name == "quire-loader" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(slow.made) < 9


def test_the_end_of_the_engine_waits_for_a_cancelled_load(
    file: Path, models: Path, slow: SlowProducts
) -> None:
    with talk_with_engine(20.0) as talk:
        talk.send(load("one", file, models))
        assert slow.begun.wait(60.0)
        talk.send(UnloadModel())
        talk.until(EngineStatusChanged, status=EngineStatus.NO_MODEL)
    assert not any(thread.name == "quire-loader" for thread in threading.enumerate())
