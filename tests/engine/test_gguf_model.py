"""Expansion of GGUF files: exact values, and one clear error for each kind of bad file."""

from __future__ import annotations

import errno
import shutil
import struct
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from engine.api.errors import (
    LoadCancelledError,
    ModelFetchError,
    ModelFileError,
    UnsupportedModelError,
)
from engine.loading import gguf_model, safetensors_file
from engine.loading.model_folder import open_model
from tests.helpers.starter import starter_files, starter_gguf
from tests.helpers.tiny_gguf import TinyGguf

KINDS = [
    Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1,
    Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K,
]  # fmt: skip


def transformers_weights(gguf_path: Path) -> dict[str, torch.Tensor]:
    """The same file read by transformers, in float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        gguf_path.parent, gguf_file=gguf_path.name, dtype=torch.float32
    )
    return dict(model.state_dict())


def assert_same_weights(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    tied = theirs.keys() - ours.keys()
    assert tied <= {"lm_head.weight"}
    assert ours.keys() <= theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, theirs[name]), name


def nothing_left(models_dir: Path) -> bool:
    return not models_dir.exists() or list(models_dir.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_weight_equals_transformers_own_reading(kind: Kind, tmp_path: Path) -> None:
    path = TinyGguf(weight_type=kind, tied=kind is not Kind.F16).write(tmp_path / "tiny.gguf")
    ours = dict(open_model(path, tmp_path / "models").weights())
    assert_same_weights(ours, transformers_weights(path))


@pytest.mark.slow
def test_the_starter_models_weights_equal_transformers_own_reading() -> None:
    assert_same_weights(dict(starter_files().weights()), transformers_weights(starter_gguf()))


def test_config_of_the_starter_model() -> None:
    config = starter_files().config
    assert (config.num_layers, config.hidden_size, config.intermediate_size) == (30, 576, 1536)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (9, 3, 64)
    assert (config.vocab_size, config.context_length) == (49152, 8192)
    assert (config.rope_theta, config.rms_norm_eps) == (100000.0, 1e-5)
    assert config.tie_word_embeddings
    assert config.eos_token_ids == (2,)
    assert starter_files().num_parameters == 134_515_008
    assert starter_files().license == "apache-2.0"


def test_the_second_time_the_expanded_folder_is_used_as_it_is(tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    first = open_model(path, tmp_path / "models")
    before = (first.folder / "model.safetensors").stat().st_mtime_ns
    stages: list[str] = []
    second = open_model(path, tmp_path / "models", lambda stage, *_: stages.append(stage))
    assert second.folder == first.folder
    assert second.fingerprint == first.fingerprint
    assert (first.folder / "model.safetensors").stat().st_mtime_ns == before
    assert stages == []


def test_a_copy_with_another_time_uses_the_same_folder(tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    first = open_model(path, tmp_path / "models")
    path.touch()
    assert open_model(path, tmp_path / "models").folder == first.folder


def test_another_file_of_the_same_name_is_expanded_anew(tmp_path: Path) -> None:
    path = TinyGguf(seed=1).write(tmp_path / "tiny.gguf")
    first = open_model(path, tmp_path / "models")
    first_weights = {name: tensor.clone() for name, tensor in first.weights()}
    TinyGguf(seed=2).write(path)
    second = open_model(path, tmp_path / "models")
    assert second.fingerprint != first.fingerprint
    changed = dict(second.weights())["model.norm.weight"]
    assert not torch.equal(changed, first_weights["model.norm.weight"])


def test_a_change_in_the_middle_of_the_file_is_noticed(tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    first = open_model(path, tmp_path / "models")
    size = path.stat().st_size
    assert size > 2 << 20, "the file is larger than its sampled ends"
    old = {name: tensor.clone() for name, tensor in first.weights()}
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(bytes(64))
    again = dict(open_model(path, tmp_path / "models").weights())
    reference = dict(open_model(path, tmp_path / "reference").weights())
    assert all(torch.equal(again[name], reference[name]) for name in reference)
    assert [name for name in old if not torch.equal(old[name], again[name])] != []


def test_an_incomplete_expanded_folder_is_made_anew(tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    first = open_model(path, tmp_path / "models")
    (first.folder / "model.safetensors").unlink()
    second = open_model(path, tmp_path / "models")
    assert second.folder == first.folder
    assert len(dict(second.weights())) == 20
    assert [entry.name for entry in (tmp_path / "models").iterdir()] == [first.folder.name]


def test_a_foreign_file_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "photo.gguf"
    path.write_bytes(b"\x89PNG\r\n" + bytes(100))
    with pytest.raises(ModelFileError, match=r"photo\.gguf is not a GGUF file.*106 bytes"):
        open_model(path, tmp_path / "models")
    assert nothing_left(tmp_path / "models")


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    path = tmp_path / "nothing.gguf"
    path.touch()
    with pytest.raises(ModelFileError, match=r"nothing\.gguf is not a GGUF file: it is empty"):
        open_model(path, tmp_path / "models")


def test_an_empty_file_is_a_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.touch()
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        open_model(path, tmp_path / "models")


@pytest.mark.parametrize("missing", [1, 1000, 500_000])
def test_a_truncated_file_gives_both_sizes(missing: int, tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    # The last tensor is padded to the alignment, so the padding has to go as well.
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - missing)
    with pytest.raises(ModelFileError, match="truncated") as caught:
        open_model(path, tmp_path / "models")
    assert caught.value.numbers["actual_bytes"] == size - missing
    assert int(caught.value.numbers["expected_bytes"]) <= size
    assert nothing_left(tmp_path / "models")


@pytest.mark.parametrize("kept", [4, 8, 23, 24, 100, 2000, 9000])
def test_a_file_cut_within_its_header_is_truncated(kept: int, tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelFileError, match="truncated"):
        open_model(path, tmp_path / "models")


def test_a_huge_count_is_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    data = bytearray(path.read_bytes())
    at = data.index(b"tokenizer.ggml.tokens") + len("tokenizer.ggml.tokens") + 8
    data[at : at + 8] = struct.pack("<Q", 1 << 60)
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="damaged: a list of 1,152,921,504,606,846,976"):
        open_model(path, tmp_path / "models")


def test_an_unknown_architecture_is_named_beside_the_known(tmp_path: Path) -> None:
    path = TinyGguf(architecture="mamba").write(tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedModelError, match="mamba; known: llama") as caught:
        open_model(path, tmp_path / "models")
    assert caught.value.numbers["architecture"] == "mamba"
    assert nothing_left(tmp_path / "models")


@pytest.mark.parametrize(
    ("kind", "pre"), [("rwkv", "default"), ("gpt2", "never-heard-of"), ("bert", "smollm")]
)
def test_an_unknown_tokenizer_is_named_beside_the_known(
    kind: str, pre: str, tmp_path: Path
) -> None:
    path = TinyGguf(tokenizer_model=kind, pre_tokenizer=pre).write(tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedModelError, match=f"{kind}, {pre}.*smollm"):
        open_model(path, tmp_path / "models")
    assert nothing_left(tmp_path / "models")


@pytest.mark.parametrize(
    ("extra", "variant"),
    [
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.rope.scaling.type": "longrope"}, "rotation scaled as longrope"),
        ({"llama.rope.scaling.attn_factor": 0.5}, "attn_factor"),
        ({"llama.final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"llama.attention.value_length": 32}, "value_length"),
        ({"llama.rope.dimension_count": 32}, "rotation of a part"),
    ],
)
def test_a_variant_that_would_come_out_wrong_is_refused(
    extra: dict[str, Any], variant: str, tmp_path: Path
) -> None:
    path = TinyGguf(extra=extra).write(tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedModelError, match=variant):
        open_model(path, tmp_path / "models")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    path = TinyGguf(left_out="blk.1.ffn_up.weight").write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelFileError, match=r"lacks 1 of its 20.*layers\.1\.mlp\.up_proj"):
        open_model(path, tmp_path / "models")


def test_a_missing_entry_is_named(tmp_path: Path) -> None:
    path = TinyGguf(extra={"llama.block_count": None}).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelFileError, match=r"None for llama\.block_count"):
        open_model(path, tmp_path / "models")


def test_merges_that_do_not_fit_the_tokens_are_an_error(tmp_path: Path) -> None:
    extra = {"tokenizer.ggml.merges": ["qu ux"]}
    path = TinyGguf(extra=extra).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelFileError, match="merges do not fit"):
        open_model(path, tmp_path / "models")


def test_a_full_disk_is_noticed_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(ModelFetchError, match="1 MB are free") as caught:
        open_model(path, tmp_path / "models")
    assert caught.value.numbers["free_bytes"] == 1_000_000
    assert nothing_left(tmp_path / "models")


def test_a_disk_that_becomes_full_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(safetensors_file.os, "fsync", full)
    with pytest.raises(ModelFetchError, match="disk became full while expanding"):
        open_model(path, tmp_path / "models")
    assert nothing_left(tmp_path / "models")


def test_stopping_leaves_nothing(tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    asked = iter([False] * 5 + [True] * 100)
    with pytest.raises(LoadCancelledError):
        open_model(path, tmp_path / "models", cancelled=lambda: next(asked))
    assert nothing_left(tmp_path / "models")


def test_progress_rises_to_one(tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    seen: list[tuple[str, float]] = []
    open_model(path, tmp_path / "models", lambda stage, done, _: seen.append((stage, done)))
    fractions = [done for stage, done in seen if stage == "expand"]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert {stage for stage, _ in seen} == {"read", "tokenizer", "expand"}


def test_a_tensor_of_another_model_is_named(tmp_path: Path) -> None:
    # Tied weights have no output tensor; a file of three layers has more than the metadata say.
    path = TinyGguf(extra={"llama.block_count": 1}).write(tmp_path / "tiny.gguf")
    with pytest.raises(
        UnsupportedModelError, match=r"tensor blk\.1\.\w+.*of the architecture llama"
    ):
        open_model(path, tmp_path)


def test_a_tensor_of_another_shape_gives_both(tmp_path: Path) -> None:
    path = TinyGguf(extra={"llama.feed_forward_length": 256}).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelFileError, match=r"shape \(512, 256\); .* ask for \(256, 256\)"):
        open_model(path, tmp_path)


def test_a_quantisation_that_cannot_be_expanded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TinyGguf(Kind.Q8_0).write(tmp_path / "tiny.gguf")

    def dequantize(rows: Any, kind: Kind) -> Any:
        raise NotImplementedError

    monkeypatch.setattr(gguf, "dequantize", dequantize)
    with pytest.raises(UnsupportedModelError, match="quantised as Q8_0") as caught:
        open_model(path, tmp_path / "models")
    assert caught.value.numbers == {"tensor_type": "Q8_0"}
    assert nothing_left(tmp_path / "models")


def test_of_two_that_expand_at_once_the_first_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    publish = gguf_model._publish
    others: list[Path] = []

    def publish_after_another(partial: Path, folder: Path, source: Any, weights: bool) -> None:
        shutil.copytree(partial, folder)
        (folder / "first").touch()
        others.append(folder)
        publish(partial, folder, source, weights)

    monkeypatch.setattr(gguf_model, "_publish", publish_after_another)
    opened = open_model(path, tmp_path / "models")
    assert others == [opened.folder]
    assert (opened.folder / "first").is_file()
    assert list((tmp_path / "models").iterdir()) == [opened.folder]
