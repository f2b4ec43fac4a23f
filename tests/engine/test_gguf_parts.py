"""A GGUF in several parts is the model that it was in one, or a clear error."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from engine.api.errors import ModelFileError, ModelNotFoundError, ModelPartsMissingError
from engine.api.params import GREEDY, EngineConfig
from engine.engine_builder import build_engine
from engine.loading import gguf_metadata, gguf_parts, gguf_window
from engine.loading.describe import describe
from engine.loading.gguf_metadata import full_metadata
from engine.loading.gguf_parts import read_gguf
from engine.loading.model_folder import open_model
from engine.loading.progress import never_cancelled, no_progress
from tests.helpers.split_gguf import split_gguf
from tests.helpers.starter import starter_gguf
from tests.helpers.tiny_gguf import TinyGguf

Values = dict[str, torch.Tensor]


def weights(path: Path, models: Path) -> Values:
    found = {name: tensor.clone() for name, tensor in open_model(path, models).weights()}
    shutil.rmtree(models)
    return found


def assert_same(ours: Values, theirs: Values) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A model in one file."""
    return TinyGguf(weight_type=Kind.Q8_0).write(tmp_path / "whole.gguf")


@pytest.fixture
def parts(whole: Path, tmp_path: Path) -> list[Path]:
    """The same in three, as gguf-split cuts it."""
    (tmp_path / "in parts").mkdir()
    return split_gguf(whole, tmp_path / "in parts" / "big.gguf", (6, 13))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_any_part_opens_the_model(which: int, parts: list[Path], whole: Path) -> None:
    models = whole.parent / "models"
    assert_same(weights(parts[which], models), weights(whole, models))
    one, all_of_it = describe(parts[which]), describe(whole)
    assert one.name == "big"
    assert one.tensors == all_of_it.tensors
    assert (one.num_parameters, one.quantization) == (all_of_it.num_parameters, "Q8_0")
    assert one.identity.file_bytes == sum(path.stat().st_size for path in parts)


@pytest.mark.parametrize("bare_first", [False, True])
def test_what_the_gguf_package_writes_in_parts_is_read(bare_first: bool, tmp_path: Path) -> None:
    made = TinyGguf(part_tensors=7, bare_first=bare_first)
    first = made.write(tmp_path / "tiny.gguf")
    assert first.name == f"tiny-00001-of-0000{3 + bare_first}.gguf"
    tensors = [len(gguf.GGUFReader(path).tensors) for path in sorted(tmp_path.glob("*.gguf"))]
    assert tensors == [0, 7, 7, 6][not bare_first :]
    models = tmp_path / "models"
    other = TinyGguf().write(tmp_path / "other.gguf")
    assert_same(weights(first, models), weights(other, models))


def test_the_weights_stay_in_the_parts_where_they_are_kept_packed(
    parts: list[Path], whole: Path, tmp_path: Path
) -> None:
    files = open_model(parts[0], tmp_path / "models", keep_quantized=True)
    one = open_model(whole, tmp_path / "models", keep_quantized=True)
    assert files.files == tuple(parts)
    assert not (files.folder / "model.safetensors").exists()
    kept, theirs = dict(files.kept_weights(torch.float32)), dict(one.kept_weights(torch.float32))
    assert kept.keys() == theirs.keys()
    for name, value in kept.items():
        other = theirs[name]
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, other)
        else:
            assert torch.equal(value.expand(torch.float32), other.expand(torch.float32))


def test_the_engine_answers_from_parts_as_from_one_file(
    parts: list[Path], whole: Path, tmp_path: Path
) -> None:
    answers = []
    for path in (parts[1], whole):
        config = EngineConfig(num_blocks=8, device="cpu", dtype="float32")
        engine = build_engine(path, tmp_path / "models", config, no_progress, never_cancelled)
        (answer,) = engine.core.generate([[3, 4, 5]], GREEDY)
        answers.append(answer.token_ids)
    assert answers[0] == answers[1]
    assert len(answers[0]) > 8


def test_the_starter_model_in_parts_is_the_starter_model(tmp_path: Path) -> None:
    made = split_gguf(starter_gguf(), tmp_path / "starter.gguf", (100, 200))
    theirs, ours = describe(starter_gguf()), describe(made[0])
    assert (ours.name, ours.num_parameters) == ("starter", theirs.num_parameters)
    assert ours.tensors == theirs.tensors


@pytest.mark.parametrize("which", [0, 1, 2])
def test_another_part_is_another_model_to_the_caches(
    which: int, parts: list[Path], tmp_path: Path
) -> None:
    first = open_model(parts[0], tmp_path / "models")
    kept = open_model(parts[0], tmp_path / "models", keep_quantized=True)
    assert open_model(parts[2], tmp_path / "models").folder == first.folder
    data = bytearray(parts[which].read_bytes())
    data[-200] ^= 1
    parts[which].write_bytes(data)
    again = open_model(parts[0], tmp_path / "models")
    assert again.fingerprint != first.fingerprint
    other = open_model(parts[0], tmp_path / "models", keep_quantized=True)
    assert other.fingerprint != kept.fingerprint


def test_a_part_with_another_time_is_looked_at_again_and_found_the_same(
    parts: list[Path], tmp_path: Path
) -> None:
    first = open_model(parts[0], tmp_path / "models")
    os.utime(parts[2], ns=(1, 1))
    stages: list[str] = []
    again = open_model(parts[0], tmp_path / "models", lambda stage, *_: stages.append(stage))
    assert again.folder == first.folder
    assert set(stages) == {"read"}


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ((0,), r"^Part 1 of 3 is missing: big-00001-of-00003\.gguf is not beside the others"),
        ((1,), r"^Part 2 of 3 is missing: big-00002-of-00003\.gguf"),
        ((0, 2), r"^Parts 1, 3 of 3 are missing: big-00001-of-00003\.gguf"),
    ],
)
def test_missing_parts_are_named(
    gone: tuple[int, ...], said: str, parts: list[Path], tmp_path: Path
) -> None:
    for index in gone:
        parts[index].unlink()
    left = next(path for path in parts if path.exists())
    for look in (describe, lambda path: open_model(path, tmp_path / "models")):
        with pytest.raises(ModelPartsMissingError, match=said) as caught:
            look(left)  # type: ignore[operator]
        assert caught.value.numbers["count"] == 3
        assert caught.value.numbers["missing"] == len(gone)
    assert not (tmp_path / "models").exists()


def test_a_missing_part_is_told_although_the_model_was_expanded_before(
    parts: list[Path], tmp_path: Path
) -> None:
    open_model(parts[0], tmp_path / "models")
    parts[1].unlink()
    with pytest.raises(ModelPartsMissingError):
        open_model(parts[0], tmp_path / "models")


def test_a_part_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        describe(tmp_path / "big-00001-of-00003.gguf")


Wrong = Callable[[Path, Path], object]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({1: {"split.count": 4}}, r"big-00002-of-00003\.gguf is not the part .* split\.count is 4"),
        ({0: {"split.count": None}}, r"big-00001-of-00003\.gguf is not .* split\.count is missing"),
        ({2: {"split.no": 1}}, r"big-00003-of-00003\.gguf is not .* split\.no is 1, .* number 3"),
        ({2: {"split.no": None}}, r"big-00003-of-00003\.gguf is not .* split\.no is missing"),
        ({0: {"split.tensors.count": None}}, r"big-00001.* entry split\.tensors\.count is missing"),
        ({0: {"split.tensors.count": -1}}, r"big-00001.* entry split\.tensors\.count is -1"),
        (
            {1: {"split.tensors.count": 19}},
            r"big-00002-of-00003\.gguf is damaged: the entry split\.tensors\.count is 19; that of "
            r"big-00001-of-00003\.gguf is 20",
        ),
        (
            {n: {"split.tensors.count": 21} for n in range(3)},
            r"hold 20 tensors; by the entry split\.tensors\.count all 3 parts hold 21",
        ),
        (
            {n: {"split.tensors.count": 10} for n in range(3)},
            r"up to big-00002-of-00003\.gguf hold 13 tensors; .* hold 10",
        ),
    ],
    ids=str,
)
def test_entries_that_do_not_fit_are_told_with_the_part(
    changes: dict[int, dict[str, int | None]], said: str, whole: Path, tmp_path: Path
) -> None:
    made = split_gguf(whole, tmp_path / "big.gguf", (6, 13), changes)
    for look in (read_gguf, describe, lambda path: open_model(path, tmp_path / "models")):
        with pytest.raises(ModelFileError, match=said):
            look(made[0])  # type: ignore[operator]


def test_two_parts_that_were_exchanged_are_told(parts: list[Path]) -> None:
    first, second = parts[1].read_bytes(), parts[2].read_bytes()
    parts[1].write_bytes(second)
    parts[2].write_bytes(first)
    with pytest.raises(ModelFileError, match=r"big-00002-of-00003\.gguf is not the part"):
        describe(parts[0])


def test_a_tensor_in_two_parts_is_told_with_both(whole: Path, tmp_path: Path) -> None:
    made = split_gguf(whole, tmp_path / "big.gguf", (6, 13))
    other = split_gguf(whole, tmp_path / "other.gguf", (5, 13))
    shutil.copy(other[1], made[1])
    said = r"big-00002-of-00003\.gguf is damaged: tensor \S+ is in big-00001-of-00003\.gguf already"
    with pytest.raises(ModelFileError, match=said):
        describe(made[0])


def test_a_truncated_part_is_told_by_its_name(parts: list[Path]) -> None:
    parts[2].write_bytes(parts[2].read_bytes()[:-64])
    with pytest.raises(ModelFileError, match=r"big-00003-of-00003\.gguf is truncated"):
        describe(parts[0])


def test_a_part_that_is_no_gguf_is_told_by_its_name(parts: list[Path]) -> None:
    parts[1].write_bytes(b"<html>Not found</html>" * 100)
    with pytest.raises(ModelFileError, match=r"big-00002-of-00003\.gguf is not a GGUF file"):
        describe(parts[0])


def test_a_part_under_another_name_is_told(parts: list[Path], tmp_path: Path) -> None:
    renamed = shutil.copy(parts[1], tmp_path / "model.gguf")
    with pytest.raises(ModelFileError, match=r"model\.gguf is part 2 of 3 of a model"):
        describe(Path(renamed))


@pytest.mark.parametrize("told", [None, 0, 1])
def test_a_single_part_is_a_whole_file(told: int | None, whole: Path, tmp_path: Path) -> None:
    changes = {0: {"split.count": told}}
    (path,) = split_gguf(whole, tmp_path / "big.gguf", (), changes)
    assert path.name == "big-00001-of-00001.gguf"
    facts = describe(path)
    assert (facts.name, facts.num_parameters) == ("big", describe(whole).num_parameters)
    assert open_model(path, tmp_path / "models").config.name == "big"


def test_every_header_of_a_model_in_parts_can_be_left(parts: list[Path]) -> None:
    class Enough(Exception):
        pass

    breaths = 0

    def breathe() -> None:
        nonlocal breaths
        breaths += 1
        if breaths == limit:
            raise Enough

    limit = -1
    read_gguf(parts[0], breathe)
    total, breaths = breaths, 0
    limit = total - 2
    with pytest.raises(Enough):
        read_gguf(parts[0], breathe)


@pytest.mark.parametrize("is_starter", [False, True])
def test_all_entries_are_those_that_the_gguf_package_reads(
    is_starter: bool, tmp_path: Path
) -> None:
    long = {"x.long": "ß" * 5000, "x.floats": [0.1] * 5000, "x.whole": [-1] * 5000}
    path = starter_gguf() if is_starter else TinyGguf(extra=long).write(tmp_path / "tiny.gguf")
    theirs = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    ours = full_metadata(path, read_gguf(path).header)
    assert ours == {name: value for name, value in theirs.items() if not name.startswith("GGUF.")}


@pytest.mark.parametrize("chunk", [8, 9, 64, 1000])
def test_texts_are_whole_wherever_what_is_held_ends(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(chunk)
    texts = ["é" * chance.choice((0, 1, 3, 4, 27, 28, 100, 700)) for _ in range(400)]
    path = TinyGguf(extra={"x.texts": texts}).write(tmp_path / "tiny.gguf")
    monkeypatch.setattr(gguf_window, "_CHUNK_BYTES", chunk)
    monkeypatch.setattr(gguf_window, "_TEXTS_A_BREATH", 7)
    assert full_metadata(path, read_gguf(path).header)["x.texts"] == texts


def test_a_token_that_is_no_text_is_told_with_its_entry(tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    data = path.read_bytes()
    assert data.count(b"<|im_start|>") > 1
    path.write_bytes(data.replace(b"<|im_start|>", b"<|im_\xffxxxx|>", 1))
    with pytest.raises(ModelFileError, match=r"the entry tokenizer\.ggml\.tokens has a text"):
        open_model(path, tmp_path / "models")


def test_an_endless_template_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_metadata, "_MAX_TEXT_BYTES", 10_000)
    path = TinyGguf(extra={"tokenizer.chat_template": "x" * 10_001}).write(tmp_path / "a.gguf")
    with pytest.raises(ModelFileError, match=r"tokenizer\.chat_template is a text of 10,001 bytes"):
        open_model(path, tmp_path / "models")


def test_many_missing_parts_are_not_all_named(whole: Path) -> None:
    first = whole.rename(whole.with_name("big-00001-of-99999.gguf"))
    with pytest.raises(ModelPartsMissingError, match=r"Parts 2, 3, 4, 5, 6, 7, 8, 9, … of 99999 a"):
        gguf_parts.gguf_files(first)
