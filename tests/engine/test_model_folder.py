"""Opening Hugging Face folders: whole, sharded, and wrong in one way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.api.errors import (
    EngineError,
    LoadCancelledError,
    ModelFileError,
    ModelNotFoundError,
    PickledWeightsError,
    UnsupportedModelError,
)
from engine.loading.model_folder import open_model
from engine.models.hf_config import config_from_hf
from tests.helpers.starter import starter_gguf
from tests.helpers.tiny_gguf import TinyGguf

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plain folder as from a hub, without our own source.json."""
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    folder = open_model(path, tmp_path / "models").folder
    (folder / "source.json").unlink()
    return folder


def shard(folder: Path) -> None:
    """Splits the weights over two files with an index, as hubs do with large models."""
    weights = {name: tensor.clone() for name, tensor in open_model(folder, folder).weights()}
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"model-1.safetensors": names[:7], "model-2.safetensors": names[7:]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in parts.items() for name in part}
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def whole_weights(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Copies, so that the files may be replaced."""
    for name, tensor in open_model(folder, folder).weights():
        yield name, tensor.clone()


def write_index(folder: Path, weight_map: dict[str, Any]) -> None:
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def test_a_sharded_folder_gives_the_same_weights(folder: Path) -> None:
    whole = open_model(folder, folder)
    expected = {name: tensor.clone() for name, tensor in whole.weights()}
    shard(folder)
    sharded = open_model(folder, folder)
    found = dict(sharded.weights())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert sharded.num_parameters == whole.num_parameters == sum(t.numel() for t in found.values())


def test_a_missing_shard_is_named(folder: Path) -> None:
    shard(folder)
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match=r"1 of 2 weight files.*model-2\.safetensors"):
        open_model(folder, folder)


@pytest.mark.parametrize(
    "name",
    ["../../secret.safetensors", "/etc/x.safetensors", "..\\x.safetensors", "C:x.safetensors"],
)
def test_an_index_cannot_point_outside_the_folder(name: str, folder: Path) -> None:
    write_index(folder, {"blk.weight": name})
    with pytest.raises(ModelFileError, match=r"tensor blk\.weight is to be in .* outside"):
        open_model(folder, folder)


def test_an_index_that_names_a_tensor_twice_is_damaged(folder: Path) -> None:
    text = '{"weight_map": {"a": "x.safetensors", "b": "x.safetensors", "a": "y.safetensors"}}'
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"index\.json is damaged: a is named twice"):
        open_model(folder, folder)


@pytest.mark.parametrize("name", ["pytorch_model-1.bin", "x.PT", "x.pth", "x.ckpt", "x.pkl"])
def test_an_index_that_names_a_pickled_file_is_refused(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"not to be opened")
    write_index(folder, {"a": name})
    with pytest.raises(PickledWeightsError, match="is a pickled file, which is never opened"):
        open_model(folder, folder)


@pytest.mark.parametrize("name", [5, None, ["x.safetensors"], "x.txt", "x\n.safetensors"])
def test_an_index_that_names_no_file_is_damaged(name: Any, folder: Path) -> None:
    write_index(folder, {"a": name})
    with pytest.raises(ModelFileError, match=r"index\.json is damaged: tensor a is to be in"):
        open_model(folder, folder)


def test_a_tensor_that_the_index_promises_and_no_file_has_is_named(folder: Path) -> None:
    shard(folder)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    index["weight_map"]["model.extra"] = "model-1.safetensors"
    path.write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"model\.extra first, which is to be in model-1\.saf"):
        open_model(folder, folder)


def test_a_tensor_that_lies_in_two_shards_is_named(folder: Path) -> None:
    shard(folder)
    shutil.copy(folder / "model-1.safetensors", folder / "model-2.safetensors")
    with pytest.raises(
        ModelFileError, match=r"Tensor \S+ is in two files, model-1\.saf.* and model-2"
    ):
        open_model(folder, folder)


def test_a_tied_output_layer_in_a_shard_of_its_own_counts_once(folder: Path) -> None:
    whole = open_model(folder, folder)
    assert whole.config.tie_word_embeddings
    shard(folder)
    embedding = dict(whole_weights(folder))["model.embed_tokens.weight"]
    save_file({"lm_head.weight": embedding}, folder / "model-3.safetensors")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    index["weight_map"]["lm_head.weight"] = "model-3.safetensors"
    path.write_text(json.dumps(index), encoding="utf-8")
    tied = open_model(folder, folder)
    assert len(tied.files) == 3
    assert tied.num_parameters == whole.num_parameters


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8, torch.float8_e4m3fn])
def test_weights_of_a_type_that_is_not_computed_with_are_named(
    dtype: torch.dtype, folder: Path
) -> None:
    weights = dict(whole_weights(folder))
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({**weights, name: weights[name].to(dtype)}, folder / "model.safetensors")
    with pytest.raises(
        UnsupportedModelError, match=rf"{name} is of type \w+; .* F64, F32, F16, BF16"
    ):
        open_model(folder, folder)


def test_what_a_family_does_not_need_may_be_of_any_type(folder: Path) -> None:
    weights = dict(whole_weights(folder))
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(3, dtype=torch.int64)}
    save_file({**weights, **extra}, folder / "model.safetensors")
    assert open_model(folder, folder).config.num_layers == 2


def test_an_index_without_a_map_is_damaged(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}', encoding="utf-8")
    with pytest.raises(ModelFileError, match="it has no weight_map"):
        open_model(folder, folder)


def test_weights_that_change_after_they_were_opened_are_named(folder: Path) -> None:
    opened = open_model(folder, folder)
    (folder / "model.safetensors").write_bytes(b"gone")
    with pytest.raises(ModelFileError, match=r"model\.safetensors cannot be read: "):
        list(opened.weights())


def test_truncated_weights_give_both_sizes(folder: Path) -> None:
    path = folder / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 10)
    with pytest.raises(ModelFileError, match="truncated") as caught:
        open_model(folder, folder)
    assert caught.value.numbers == {"expected_bytes": size, "actual_bytes": size - 10}


@pytest.mark.parametrize(
    "data", [b"", b"1234567", b"\xff" * 8 + b"{}", b"\x02" + bytes(7) + b"[]", bytes(100)]
)
def test_foreign_weights_are_named_as_such(data: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelFileError, match=r"model\.safetensors is not a safetensors file"):
        open_model(folder, folder)


def test_pickled_weights_are_not_read(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(PickledWeightsError, match=r"pickled \(pytorch_model\.bin\)") as caught:
        open_model(folder, folder)
    assert "safetensors" in caught.value.action


@pytest.mark.parametrize("name", ["model.bin", "model.pt", "model.PTH", "model.ckpt"])
def test_a_pickled_file_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(PickledWeightsError, match="is a pickled file, which is never opened"):
        open_model(tmp_path / name, tmp_path)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no model at .*absent\.gguf"):
        open_model(tmp_path / "absent.gguf", tmp_path)


def test_a_folder_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        open_model(tmp_path, tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "\x00", '{"architectures": ["LlamaForCausalLM"]}'])
def test_a_damaged_config_says_so(text: str, folder: Path) -> None:
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"config\.json"):
        open_model(folder, folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_config_of_gigabytes_is_not_read(name: str, folder: Path) -> None:
    with (folder / name).open("ab") as file:
        file.truncate(8 << 30)  # a hole
    with pytest.raises(ModelFileError, match=rf"{name} is damaged: it has 8,589,934,592 bytes"):
        open_model(folder, folder)


def test_a_generation_config_names_further_end_tokens(folder: Path) -> None:
    before = open_model(folder, folder).config.eos_token_ids
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 0]}', encoding="utf-8")
    assert set(open_model(folder, folder).config.eos_token_ids) == {*before, 0, 2}
    (folder / "generation_config.json").unlink()
    assert open_model(folder, folder).config.eos_token_ids


def test_stopping_before_it_began(folder: Path) -> None:
    with pytest.raises(LoadCancelledError):
        open_model(folder, folder, cancelled=lambda: True)


def test_the_fingerprint_is_the_weights_not_the_place(folder: Path, tmp_path: Path) -> None:
    first = open_model(folder, folder).fingerprint
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert open_model(copy, copy).fingerprint == first
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    assert open_model(copy, copy).fingerprint != first


def test_the_license_of_a_hub_folder_stands_in_its_readme(folder: Path) -> None:
    assert open_model(folder, folder).license == ""
    (folder / "README.md").write_text("---\nlicense: mit\ntags: [x]\n---\n# Model\nlicense: no\n")
    assert open_model(folder, folder).license == "mit"


@pytest.mark.parametrize(
    "text", ["# Model\nlicense: mit\n", "", "---\ntags: [x]\n---\nlicense: mit"]
)
def test_a_readme_that_names_no_license(text: str, folder: Path) -> None:
    (folder / "README.md").write_text(text, encoding="utf-8")
    assert open_model(folder, folder).license == ""


def test_config_defaults_are_those_of_the_format() -> None:
    config = config_from_hf(LLAMA, default_name="folder")
    assert (config.num_kv_heads, config.head_dim) == (4, 16)
    assert (config.rope_theta, config.rms_norm_eps) == (10000.0, 1e-6)
    assert not config.tie_word_embeddings
    assert config.name == "folder"
    # Where a fine-tune began is not what it is.
    tuned = config_from_hf({**LLAMA, "_name_or_path": "base"}, default_name="folder")
    assert tuned.name == "folder"


def test_both_spellings_of_rope_scaling_mean_the_same() -> None:
    scaling = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0}
    old = {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **scaling}}
    new = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **scaling}}
    expected = (("rope_type", "llama3"), *scaling.items())
    for extra in (old, new):
        config = config_from_hf({**LLAMA, **extra})
        assert (config.rope_theta, config.rope_scaling) == (5e5, expected)


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel; known: LlamaForCausalLM"),
        ({"architectures": None}, "not named"),
        ({"hidden_act": "gelu"}, "activation gelu"),
        ({"sliding_window": 4096}, "sliding-window"),
        ({"quantization_config": {}}, "quantised weights"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "dynamic; known: default"),
    ],
)
def test_what_would_come_out_wrong_is_refused(extra: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        config_from_hf({**LLAMA, **extra})


@pytest.mark.parametrize(
    "extra",
    [
        {"num_hidden_layers": 0},
        {"vocab_size": "100"},
        {"hidden_size": True},
        {"num_key_value_heads": 3},
        {"num_hidden_layers": 10**9},
        {"intermediate_size": None},
        {"rms_norm_eps": "small"},
        {"rope_theta": -1.0},
        {"rope_scaling": "linear"},
    ],
)
def test_sizes_that_make_no_sense_are_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError):
        config_from_hf({**LLAMA, **extra})


def test_an_expanded_model_opens_without_transformers_gguf_or_torch() -> None:
    path = starter_gguf()
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from engine.loading.model_folder import open_model\n"
        "path = Path(sys.argv[1])\n"
        "files = open_model(path, path.parent)\n"
        "assert files.tokenizer().encode_text('hi')\n"
        "assert files.chat_template() is not None\n"
        "print(sorted({'transformers', 'gguf', 'torch'} & set(sys.modules)))\n"
    )
    open_model(path, path.parent)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=root, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="permissions work otherwise there")
def test_a_file_that_cannot_be_read_is_an_engine_error(tmp_path: Path) -> None:
    path = tmp_path / "pipe.gguf"
    path.symlink_to("/proc/self/mem")
    with pytest.raises(EngineError):
        open_model(path, tmp_path / "models")
