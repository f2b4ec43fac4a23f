"""What of a repository can be fetched, and under which names it is kept."""

from __future__ import annotations

import pytest

from app.fetching.catalogue import RemoteFile, Unusable, choices_of
from app.fetching.errors import UnsafeNameError
from app.fetching.names import folder_name, local_name, quantization_of


def files(*names: str, size: int = 10) -> list[RemoteFile]:
    return [RemoteFile(name, size) for name in names]


def test_ggufs_are_told_apart_by_their_quantisation_from_small_to_large() -> None:
    found = choices_of(
        [
            RemoteFile("m-Q8_0.gguf", 80),
            RemoteFile("m-Q4_K_M.gguf", 40),
            RemoteFile("m-IQ2_XXS.gguf", 20),
            RemoteFile("mmproj-F16.gguf", 5),
            RemoteFile("imatrix.gguf", 1),
        ]
    )
    assert [(c.key, c.total_bytes) for c in found] == [
        ("IQ2_XXS", 20),
        ("Q4_K_M", 40),
        ("Q8_0", 80),
    ]


def test_a_gguf_in_parts_is_one_choice() -> None:
    names = [f"Q6_K/m-Q6_K-0000{n}-of-00002.gguf" for n in (2, 1)]
    (choice,) = choices_of(files(*names))
    assert (choice.key, choice.unusable, choice.total_bytes) == ("Q6_K", None, 20)
    assert [file.name for file in choice.files] == names[::-1]
    assert (choice.num_parts, choice.weight_bytes) == (2, 20)


def test_a_gguf_of_which_the_hub_lacks_parts_cannot_be_fetched() -> None:
    (choice,) = choices_of(files(*(f"m-Q6_K-0000{n}-of-00005.gguf" for n in (2, 3, 5))))
    assert (choice.unusable, choice.missing) == (Unusable.INCOMPLETE, (1, 4))


def test_ggufs_that_were_cut_twice_are_two_choices() -> None:
    two = [f"m-Q6_K-0000{n}-of-00002.gguf" for n in (1, 2)]
    three = [f"m-Q6_K-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    found = choices_of(files(*three, *two, "m-Q6_K-00001-of-00001.gguf"))
    assert [len(choice.files) for choice in found] == [1, 2, 3]
    assert all(choice.unusable is None for choice in found)
    assert len({choice.key for choice in found}) == 3


def test_two_of_one_quantisation_keep_their_names() -> None:
    found = choices_of(files("a/m-Q4_0.gguf", "b/m-Q4_0.gguf"))
    assert [choice.key for choice in found] == ["a/m-Q4_0.gguf", "b/m-Q4_0.gguf"]


def test_a_folder_has_the_sharded_weights_and_what_the_engine_reads() -> None:
    (choice,) = choices_of(
        files(
            *("config.json", "model-00001-of-00002.safetensors"),
            *("model-00002-of-00002.safetensors", "model.safetensors.index.json"),
            *("consolidated.safetensors", "tokenizer.json", "modeling_x.py", "pytorch_model.bin"),
            *("onnx/model.onnx", "original/model.safetensors", "README.md", "training_args.bin"),
        )
    )
    assert [file.name for file in choice.files] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "config.json",
    ]
    assert choice.weight_bytes == 20


def test_weights_without_a_config_cannot_be_fetched() -> None:
    (choice,) = choices_of(files("model.safetensors"))
    assert choice.unusable is Unusable.NO_CONFIG


def test_names_that_one_system_takes_for_one_are_refused() -> None:
    shards = ("model-A.safetensors", "model-a.safetensors")
    with pytest.raises(UnsafeNameError, match="twice"):
        choices_of(files("model.safetensors.index.json", "config.json", *shards))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("gemma-3-270m-it-qat-q4_0.gguf", "Q4_0"),
        ("model.UD-IQ3_XXS.gguf", "UD-IQ3_XXS"),
        ("llama-bf16.gguf", "BF16"),
        ("gpt-oss-20b-MXFP4.gguf", "MXFP4"),
        ("model.gguf", ""),
    ],
)
def test_the_quantisation_in_a_name(name: str, expected: str) -> None:
    assert quantization_of(name) == expected


def test_folders_of_a_repository_become_part_of_the_name() -> None:
    assert local_name("Q4_K_M/m.gguf") == "Q4_K_M--m.gguf"
    assert folder_name("org/m.v1") == "org--m.v1"


@pytest.mark.parametrize("name", ["a/b/c", "", "a\\b", "../x", "a/..", "-x/y", "a/" + "b" * 100])
def test_what_is_no_repository_has_no_folder(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        folder_name(name)


@pytest.mark.parametrize("name", ["a\u202egguf.bin", "a.", " a", "a" * 300, "lpt1.gguf", "a\nb"])
def test_names_that_no_system_should_keep(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        local_name(name)
