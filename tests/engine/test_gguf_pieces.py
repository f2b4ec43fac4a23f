"""SentencePiece vocabularies in GGUF files: how text is joined, and what stays text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.errors import ModelFileError
from engine.loading.gguf_token_types import TokenType
from engine.loading.gguf_tokenizer import build_tokenizer, tokenizer_config
from engine.loading.model_folder import open_model
from engine.text_prefix import Before
from engine.tokenizer import Tokenizer
from tests.helpers.family_gguf import write_gguf
from tests.helpers.piece_gguf import CONTROL, DEFINED, SPACE, naive_pieces, piece_metadata
from tests.helpers.tiny_model import tiny_model

HARD = (
    "Hello there, how many bridges are there?",
    "  two  three   four    five    ",
    "\n\n\na\n b\n\tc\t\td\r\n",
    "你好，世界。 こんにちは",
    "👍🏽👨‍👩‍👧 e\u0301 é",
    "<b>bold</b> <s> </s> <|user|>x<|end|>",
    "a\x00b\x01\x7f\u200b\u202e\u00a0",
    "def add(a, b):\n    return a + b\n",
    "▁ literal ▁▁ and  ▁ mixed",
    "<0x0A> <0xFF> <unk>",
    " leading, trailing ",
)


def tokenizer(*, architecture: str = "llama", defined: bool = True, **changed: Any) -> Tokenizer:
    made = piece_metadata(defined=DEFINED if defined else (), **changed)
    built = build_tokenizer({"general.architecture": architecture, **made})
    return Tokenizer(str(built.to_str()), [], "pieces")


def spelt(found: Tokenizer, text: str, before: Before = Before.TEXT) -> list[str]:
    return [str(found._tokenizer.id_to_token(i)) for i in found.encode_text(text, before)]


@given(text=st.text(st.sampled_from("abehrtvtown 7\n\té你👍▁<"), max_size=24))
def test_pieces_are_those_of_sentencepieces_own_rule(text: str) -> None:
    expected = naive_pieces(piece_metadata(), text)
    assert spelt(tokenizer(defined=False), text) == expected


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("text", HARD)
def test_text_comes_back_from_its_ids(text: str, prefix: bool) -> None:
    found = tokenizer(add_space_prefix=prefix)
    # SentencePiece has no other sign for a space.
    expected = text.replace(SPACE, " ")
    assert found.decode(found.encode_text(text, Before.TEXT), skip_special=False) == expected


@pytest.mark.parametrize("text", HARD)
def test_a_control_token_or_byte_in_text_stays_text(text: str) -> None:
    found = tokenizer()
    pieces = spelt(found, text)
    assert not {*CONTROL, "<unk>"} & {*pieces}
    assert "<0x0A>" not in pieces or "\n" in text


def test_defined_pieces_are_taken_whole_the_longest_first() -> None:
    assert spelt(tokenizer(), "a\n\n<b>") == ["a", "\n\n", "<b>"]
    assert spelt(tokenizer(), "a" + 6 * " ") == ["a", 4 * SPACE, 2 * SPACE]
    # A space and its sign in text are the same to the model.
    assert spelt(tokenizer(), f"a {SPACE}") == ["a", 2 * SPACE]


@pytest.mark.parametrize(
    ("changed", "after"),
    [
        ({}, {Before.NOTHING, Before.CONTROL}),
        ({"add_space_prefix": True}, {Before.NOTHING, Before.CONTROL}),
        ({"add_space_prefix": False}, set()),
    ],
)
def test_a_space_is_put_before_text_where_the_file_asks_for_it(
    changed: dict[str, Any], after: set[Before]
) -> None:
    found = tokenizer(**{"add_space_prefix": None, **changed})
    said = {place for place in Before if found.decode(found.encode_text("a", place)) == " a"}
    assert said == after


def test_mistrals_newer_vocabularies_put_one_only_before_the_beginning() -> None:
    made = piece_metadata(add_space_prefix=True)
    at = made["tokenizer.ggml.tokens"].index("<|user|>")
    made["tokenizer.ggml.tokens"][at] = "[INST]"
    found = Tokenizer(str(build_tokenizer(made).to_str()), [], "pieces")
    said = {place for place in Before if found.decode(found.encode_text("a", place)) == " a"}
    assert said == {Before.NOTHING}


def test_phi_3s_control_tokens_take_the_white_space_after_them() -> None:
    phi = tokenizer(architecture="phi3", add_space_prefix=True)
    for found, text in ((phi, "<|user|>\n"), (tokenizer(), "<|user|>")):
        pieces = found.split_special("<|user|>\nHi")
        assert pieces[0] == (text, found.special_tokens["<|user|>"])
    assert phi.split_special("<s>\n")[0] == ("<s>", phi.special_tokens["<s>"])


@pytest.mark.parametrize(("architecture", "prefix"), [("gemma3", False), ("phi3", True)])
def test_ids_are_those_that_transformers_reads_from_the_file(
    architecture: str, prefix: bool, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    hugging_face = {"gemma3": "Gemma3ForCausalLM", "phi3": "Phi3ForCausalLM"}[architecture]
    made = piece_metadata(defined=DEFINED, add_space_prefix=prefix)
    model = tiny_model(
        hugging_face, vocab_size=len(made["tokenizer.ggml.tokens"]), sliding_window=9
    )
    path = write_gguf(
        model, architecture, tmp_path / "tiny.gguf", made, attention__sliding_window=9
    )
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    ours = open_model(path, tmp_path / "models").tokenizer()
    for text in HARD:
        if any(token in text for token in (*CONTROL, "<unk>")):
            continue  # theirs takes control tokens in text for real ones
        expected = theirs(text, add_special_tokens=False).input_ids
        assert ours.encode_text(text, Before.NOTHING) == expected, text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scores": None}, r"tokens, \d+ token types and 0 scores"),
        ({"token_type": [1, 2]}, "2 token types"),
        ({"scores": ["x"]}, "scores are no list of float"),
        ({"scores": None, "merges": ["a nowhere"]}, "pieces do not fit together"),
        ({"merges": ["ab"]}, "1 merges are not pairs"),
    ],
)
def test_what_does_not_fit_together_is_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        build_tokenizer(piece_metadata(**changed))


def test_a_files_own_merges_are_used_where_it_has_some() -> None:
    found = tokenizer(defined=False, merges=["o u"], scores=None)
    assert spelt(found, "ours") == ["ou", "r", "s"]


def test_whether_text_begins_with_the_start_token_goes_into_the_config() -> None:
    assert tokenizer_config(piece_metadata(add_bos_token=False))["add_bos_token"] is False
    assert "add_bos_token" not in tokenizer_config(piece_metadata())


def test_the_types_are_llama_cpps() -> None:
    import gguf

    assert {kind.name: int(kind) for kind in gguf.TokenType}.items() <= {
        kind.name: int(kind) for kind in TokenType
    }.items()
