"""The tokenizer in a GGUF file: how text is cut, and what does not fit together."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.gguf_tokenizer import build_tokenizer, end_token_ids, tokenizer_config
from tests.helpers.tiny_gguf import TinyGguf


def metadata(pre: str = "smollm", **changed: Any) -> dict[str, Any]:
    made = TinyGguf(pre_tokenizer=pre).tokenizer_metadata()
    return made | {f"tokenizer.ggml.{key}": value for key, value in changed.items()}


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("smollm", ["a", "Ġb", "Ġ", "1", "2", "3", "4"]),
        ("gpt-2", ["a", "Ġb", "Ġ1234"]),
        ("llama-bpe", ["a", "Ġb", "Ġ", "123", "4"]),
        ("qwen2", ["a", "Ġb", "Ġ", "1", "2", "3", "4"]),
        ("gpt-4o", ["a", "Ġb", "Ġ", "123", "4"]),
        ("tekken", ["a", "Ġb", "Ġ", "1", "2", "3", "4"]),
    ],
)
def test_each_kind_cuts_text_in_its_own_way(pre: str, words: list[str]) -> None:
    tokenizer = build_tokenizer(metadata(pre))
    found = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str("a b 1234")]
    assert found == words


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-4o", ["camel", "Case", "ĠHTMLIt's", "ĠÃľber", "Ġa", "//Ċ"]),
        ("tekken", ["camel", "Case", "ĠHTMLIt", "'s", "ĠÃľber", "Ġa", "//Ċ"]),
        ("smaug-bpe", ["camelCase", "ĠHTMLIt", "'s", "ĠÃľber", "Ġa", "//Ċ"]),
    ],
)
def test_newer_kinds_cut_where_capitals_begin(pre: str, words: list[str]) -> None:
    tokenizer = build_tokenizer(metadata(pre))
    cut = tokenizer.pre_tokenizer.pre_tokenize_str("camelCase HTMLIt's Über a//\n")
    assert [word for word, _ in cut] == words


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "llama3", "qwen2", "gpt-4o", "tekken"])
def test_text_comes_back_as_it_went_in(pre: str) -> None:
    tokenizer = build_tokenizer(metadata(pre))
    text = "hello wörld  12345\n…"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_llama_3_takes_whole_words_without_merging_them() -> None:
    # "hello" is a token, but no merge leads there.
    made = metadata("llama3", merges=["h e"])
    assert build_tokenizer(made).encode("hello").tokens == ["hello"]
    made = metadata("gpt-2", merges=["h e"])
    assert build_tokenizer(made).encode("hello").tokens == ["he", "l", "l", "o"]


def test_tokens_are_special_or_only_whole_as_the_file_says() -> None:
    made = metadata()
    made["tokenizer.ggml.token_type"][:3] = [3, 4, 1]
    tokenizer = build_tokenizer(made)
    tokens = tokenizer.encode("<|endoftext|><|im_start|><|im_end|>").tokens
    assert tokens[:2] == ["<|endoftext|>", "<|im_start|>"]
    assert "<|im_end|>" not in tokens
    added = tokenizer.get_added_tokens_decoder()
    assert {token.content: token.special for token in added.values()} == {
        "<|endoftext|>": True,
        "<|im_start|>": False,
    }


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokens": "words"}, "tokens are no list of str"),
        ({"tokens": ["a", 3]}, "tokens are no list of str"),
        ({"token_type": ["x"]}, "token_type are no list of int"),
        ({"tokens": []}, r"has 0 tokens, 0 of them distinct"),
        ({"tokens": ["a", "b", "a"]}, r"has 3 tokens, 2 of them distinct"),
        ({"merges": ["hello"]}, "merges do not fit its tokens: 1 merges are not pairs"),
        ({"merges": ["h e", "not there"]}, "merges do not fit its tokens"),
    ],
)
def test_what_does_not_fit_together_is_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        build_tokenizer(metadata(**changed))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "bert"}, "kind bert, smollm"),
        ({"pre": "falcon"}, "kind gpt2, falcon"),
        ({"model": "", "pre": ""}, "kind unknown, unnamed"),
    ],
)
def test_other_kinds_are_refused_by_name(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(
        UnsupportedModelError, match=rf"{said}\..*SentencePiece.*gpt-2.*llama3, qwen2"
    ):
        build_tokenizer(metadata(**changed))


def test_named_tokens_and_template_go_into_the_config() -> None:
    made = metadata(unknown_token_id=0, padding_token_id=10**6)
    made |= {"general.architecture": "llama", "llama.context_length": 77}
    assert tokenizer_config(made) == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "chat_template": made["tokenizer.chat_template"],
        "model_max_length": 77,
    }
    del made["tokenizer.chat_template"], made["llama.context_length"]
    assert {"chat_template", "model_max_length"}.isdisjoint(tokenizer_config(made))


def test_all_that_ends_a_turn() -> None:
    assert end_token_ids(metadata()) == [2]
    assert end_token_ids(metadata(eot_token_id=0, eom_token_id=2)) == [0, 2]
    assert end_token_ids(metadata(eos_token_ids=[2, 0, 1])) == [0, 1, 2]
    assert end_token_ids({}) == []
