"""A model's facts from its headers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gguf.constants import GGMLQuantizationType as Kind

from engine.api.errors import (
    ModelFileError,
    ModelNotFoundError,
    PickledWeightsError,
    UnsupportedModelError,
)
from engine.api.model_description import DescriptionNote
from engine.loading.describe import describe, family_title
from engine.loading.model_folder import open_model
from engine.models.families import FAMILIES
from tests.helpers.tiny_gguf import TinyGguf
from tests.helpers.tiny_model import tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as from a hub, in bfloat16."""
    import torch

    model = tiny_model("LlamaForCausalLM", dtype=torch.bfloat16)
    folder = tmp_path / "Tiny-1B"
    model.reference.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder


def gguf(folder: Path, **options: object) -> Path:
    return TinyGguf(**options).write(folder / "Tiny-Q.gguf")  # type: ignore[arg-type]


def test_the_facts_of_a_folder(folder: Path) -> None:
    (folder / "README.md").write_text("---\nlicense: 'mit'\n---\n")
    facts = describe(folder)
    files = open_model(folder, folder)
    assert (facts.name, facts.family, facts.format) == ("Tiny-1B", "Llama", "safetensors")
    assert (facts.quantization, facts.license) == ("BF16", "mit")
    assert facts.num_parameters == files.num_parameters
    assert facts.config == files.config
    assert facts.identity.file_bytes == (folder / "model.safetensors").stat().st_size
    assert not facts.has_chat_template
    assert facts.notes == ()


@pytest.mark.parametrize(
    ("file_type", "name"),
    [(15, "Q4_K_M"), (7, "Q8_0"), (999, "Q8_0"), ([15], "Q8_0"), ("15", "Q8_0")],
)
def test_a_mixture_of_types_has_the_name_that_people_look_for(
    file_type: object, name: str, tmp_path: Path
) -> None:
    path = gguf(tmp_path, weight_type=Kind.Q8_0, extra={"general.file_type": file_type})
    assert describe(path).quantization == name


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_K, Kind.Q6_K])
def test_the_facts_of_a_gguf_file_are_those_of_what_is_loaded(kind: Kind, tmp_path: Path) -> None:
    path = gguf(tmp_path, weight_type=kind)
    facts = describe(path)
    files = open_model(path, tmp_path / "models")
    assert (facts.quantization, facts.format) == (kind.name, "gguf")
    assert (facts.num_parameters, facts.license) == (files.num_parameters, files.license)
    assert facts.name == files.config.name == "Tiny-Q"
    assert facts.config.kv_bytes_per_token(2) == files.config.kv_bytes_per_token(2)
    assert {tensor.name for tensor in facts.tensors} == set(files.entries)
    assert all(tensor.shape == files.entries[tensor.name].shape for tensor in facts.tensors)
    assert facts.has_chat_template


def test_the_vocabulary_is_counted_where_the_file_does_not_say_its_size(tmp_path: Path) -> None:
    path = gguf(tmp_path, extra={"llama.vocab_size": None})
    assert describe(path).config.vocab_size == len(TinyGguf().tokens())


def test_code_that_a_model_brings_is_said_to_be_ignored(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_tiny.TinyForCausalLM"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "modeling_tiny.py").write_text("raise SystemExit('this was run')")
    assert describe(folder).notes == (DescriptionNote.REMOTE_CODE,)
    assert open_model(folder, folder).config.architecture == "LlamaForCausalLM"


def test_pickled_files_beside_the_weights_are_said_not_to_be_read(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"not to be opened")
    assert describe(folder).notes == (DescriptionNote.PICKLED,)


def test_a_folder_with_pickled_weights_only_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(PickledWeightsError, match=r"pickled \(pytorch_model\.bin\)"):
        describe(folder)


def test_a_folder_without_a_tokenizer_is_refused_before_it_is_loaded(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"There is no tokenizer\.json in"):
        describe(folder)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    path = gguf(tmp_path, left_out="blk.1.ffn_up.weight")
    with pytest.raises(ModelFileError, match=r"lacks 1 of its \d+ tensors, \S*up_proj\.weight"):
        describe(path)


def test_sizes_that_the_tensors_do_not_have_are_told(tmp_path: Path) -> None:
    path = gguf(tmp_path, extra={"llama.feed_forward_length": 1024})
    with pytest.raises(ModelFileError, match=r"Tensor blk\.\d\.ffn_\w+\.weight has the shape"):
        describe(path)


def test_entries_that_make_no_model_are_told_with_the_file(tmp_path: Path) -> None:
    path = gguf(tmp_path, extra={"llama.block_count": 5000})
    with pytest.raises(ModelFileError, match=r"of Tiny-Q\.gguf, which end at byte [\d,]+, desc"):
        describe(path)


def test_an_architecture_that_is_not_known_is_named_with_those_that_are(tmp_path: Path) -> None:
    path = gguf(tmp_path, architecture="mamba")
    with pytest.raises(UnsupportedModelError, match=r"architecture is mamba; known: llama, .*"):
        describe(path)


def test_names_are_plain_text(tmp_path: Path) -> None:
    license_name = "MIT\u202e\n\x07" + "x" * 1000
    path = gguf(tmp_path, extra={"general.license": license_name})
    odd = shutil.copy(path, tmp_path / "a\u202eb\u200b.gguf")
    facts = describe(Path(odd))
    assert facts.name == "ab"
    assert facts.license.startswith("MIT xxx")
    assert facts.license.isprintable()
    assert len(facts.license) == 200


def test_errors_quote_a_file_in_plain_text(tmp_path: Path) -> None:
    odd = "ma\u202emba\x07\n" + "x" * 3000
    path = gguf(tmp_path, extra={"general.architecture": odd})
    for look in (describe, lambda file: open_model(file, tmp_path / "models")):
        with pytest.raises(UnsupportedModelError, match=r"architecture is mamba x+") as caught:
            look(path)
        assert caught.value.message.isprintable()
        assert len(caught.value.message) <= 1000
        assert str(caught.value.numbers["architecture"]).isprintable()


def test_the_name_that_a_config_gives_is_plain_text(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["name"] = "My\u202e model\n" + "x" * 1000
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in (describe(folder).name, open_model(folder, folder).config.name):
        assert name.startswith("My model xxx")
        assert name.isprintable()
        assert len(name) == 200


@pytest.mark.parametrize("name", ["absent.gguf", "absent/folder"])
def test_what_is_not_there_is_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="There is no model at"):
        describe(tmp_path / name)


def test_every_family_has_a_title() -> None:
    titles = [family_title(architecture) for architecture in FAMILIES]
    assert len(set(titles)) == len(FAMILIES)
    assert {"Llama", "Mistral", "Qwen 2", "Qwen 3", "Gemma 3", "Phi 3"} <= set(titles)
    assert not any("ForCausalLM" in title for title in titles)


def test_describing_needs_neither_torch_nor_the_libraries_of_models(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from engine.loading.describe import describe\n"
        "print(describe(Path(sys.argv[1])).family)\n"
        "print(sorted({'torch', 'gguf', 'transformers', 'safetensors'} & set(sys.modules)))\n"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code, str(gguf(tmp_path))]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("Llama\n[]\n", 0), done.stderr
