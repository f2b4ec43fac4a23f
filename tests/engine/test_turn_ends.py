"""The token that ends a turn, from the model's own template where its files do not name it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.api.params import EngineConfig
from engine.chat_format import ChatFormat
from engine.engine_builder import build_engine
from engine.loading.progress import never_cancelled, no_progress
from engine.tokenizer import Tokenizer
from tests.helpers.chat_models import CHAT_MODELS, ChatModel
from tests.helpers.starter import starter_files
from tests.helpers.tiny_gguf import TinyGguf
from tests.helpers.tiny_tokenizer import tiny_tokenizer

TEXT_END, START, TURN_END = 0, 1, 2
every_model = pytest.mark.parametrize("model", CHAT_MODELS, ids=lambda model: model.name)


def put(folder: Path, template: str, **tokens: str) -> Path:
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens), encoding="utf-8")
    return folder


def named(model: ChatModel, tokens: Iterable[str]) -> Tokenizer:
    """The model's tokenizer where its files say that only ``tokens`` end an answer."""
    special = model.tokenizer().special_tokens
    return Tokenizer(model.tokenizer_json(), [special[token] for token in tokens], "own")


def ends(folder: Path, tokenizer: Tokenizer) -> set[str]:
    found = ChatFormat.from_folder(folder, tokenizer).tokenizer
    return {token for token, i in found.special_tokens.items() if i in found.eos_token_ids}


@every_model
def test_where_the_files_name_the_end_of_a_turn_nothing_is_added(
    model: ChatModel, tmp_path: Path
) -> None:
    folder = put(tmp_path, model.template_source, **model.variables)
    assert ends(folder, named(model, model.ends)) == {*model.ends}
    assert ends(folder, named(model, model.ends[:1])) == {model.ends[0]}


@every_model
def test_where_they_do_not_the_template_does(model: ChatModel, tmp_path: Path) -> None:
    folder = put(tmp_path, model.template_source, **model.variables)
    # Of one model text begins and ends with the same token, which tells nothing.
    expected = set() if model.ends[0] == model.bos else {model.ends[0]}
    assert ends(folder, named(model, ())) == expected
    assert ends(folder, named(model, model.ends[1:])) == {*expected, *model.ends[1:]}


def test_the_starter_model_keeps_its_end() -> None:
    files = starter_files()
    tokenizer = files.tokenizer()
    found = ChatFormat.from_folder(files.folder, tokenizer).tokenizer
    assert found.eos_token_ids == {TURN_END}
    assert found.fingerprint == tokenizer.fingerprint


def written(question: str, answer: str, end: str = "") -> str:
    """A template of these pieces; ``end`` stands after all where no answer is asked for."""
    return (
        "{% for m in messages %}{% if m.role == 'user' %}" + question + "{% else %}" + answer + "{%"
        " endif %}{% endfor %}{% if not add_generation_prompt %}" + end + "{% endif %}"
    )


@pytest.mark.parametrize(
    ("template", "added"),
    [
        (written("<|im_start|>{{ m.content }}", "{{ m.content }}\n<|im_end|>"), {TURN_END}),
        # The start of a text, which some templates write before each question.
        (written("{{ m.content }}", "{{ m.content }}{{ bos_token }}"), set()),
        # The header of the next question.
        (written("<|im_end|>{{ m.content }}", "{{ m.content }}"), set()),
        (written("{{ m.content }}", "{{ m.content }}", "<|im_end|>"), set()),
        # Text stands between: the token is not what ends an answer.
        (written("{{ m.content }}", "{{ m.content }}.<|im_end|>"), set()),
        # A part of the turn ends there, the turn itself with a token that is known.
        (written("{{ m.content }}", "{{ m.content }}<|im_end|> <|endoftext|>"), set()),
        (written("{{ m.content }}", "({{ m.content | upper }})<|im_end|>"), set()),
        ("{% for m in messages %}{{ m.content + '</answer>' }}{% endfor %}", set()),
        ("{{ raise_exception('not today') }}", set()),
        ("{{ messages[0].content }}", set()),
    ],
)
def test_only_a_control_token_that_ends_every_answer_is_added(
    template: str, added: set[int], tmp_path: Path
) -> None:
    folder = put(tmp_path, template, bos_token="<|im_start|>")
    base = Tokenizer(tiny_tokenizer()._tokenizer.to_str(), [TEXT_END], "base")
    found = ChatFormat.from_folder(folder, base).tokenizer
    assert found.eos_token_ids == {TEXT_END, *added}
    # The template is in it already: ids that are kept remain good.
    assert found.fingerprint == "base"
    assert base.eos_token_ids == {TEXT_END}


def test_a_loaded_model_stops_where_its_turn_ends(tmp_path: Path) -> None:
    extra = {"tokenizer.ggml.eos_token_id": TEXT_END}
    path = TinyGguf(extra=extra).write(tmp_path / "tiny.gguf")
    config = EngineConfig(num_blocks=16, device="cpu", dtype="float32", num_threads=1)
    engine = build_engine(path, tmp_path, config, no_progress, never_cancelled)
    assert engine.core.limits.eos_token_ids == {TEXT_END, TURN_END}
