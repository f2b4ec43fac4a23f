"""Chat templates: rendered as transformers does, and kept within limits."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from engine.api.errors import ChatTemplateError, ModelFileError
from engine.chat_template import ChatTemplate
from engine.template_files import has_template
from engine.template_sandbox import TIME_LIMIT_S
from tests.helpers.starter import starter_files

HELLO = [{"role": "user", "content": "Hello"}]


def render(source: str, **variables: str) -> str:
    return ChatTemplate(source, variables).render(HELLO, add_generation_prompt=True)


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize(
    "messages",
    [
        HELLO,
        [{"role": "system", "content": "Be brief."}, *HELLO],
        [*HELLO, {"role": "assistant", "content": "\n\nHi  "}, {"role": "user", "content": "<&>"}],
    ],
)
def test_the_starter_models_template_renders_as_in_transformers(
    messages: list[dict[str, str]], prompt: bool
) -> None:
    from transformers import AutoTokenizer

    template = starter_files().chat_template()
    assert template is not None
    reference = AutoTokenizer.from_pretrained(starter_files().folder)
    expected = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    assert template.render(messages, add_generation_prompt=prompt) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content }}\n  {% endif %}\n"
        "{% endfor %}",
        "{{ messages | tojson }} {{ '<' | tojson(indent=2) }}",
        "{{ bos_token }}{% generation %}{{ messages[0]['content'] }}{% endgeneration %}",
        "{% for m in messages * 3 %}{% if loop.index > 2 %}{% break %}{% endif %}x{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{{ ns.n }}",
        "{{ messages[-1].content.strip().split('l')[-1] | upper }}",
    ],
)
def test_other_templates_render_as_in_transformers(source: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    expected, _ = render_jinja_template(
        [HELLO], chat_template=source, add_generation_prompt=True, bos_token="<s>"
    )
    assert render(source, bos_token="<s>") == expected[0]


def test_the_time_is_there_for_templates_that_tell_the_date() -> None:
    assert render("{{ strftime_now('%Y') }}") == str(datetime.now().year)


def test_a_refusal_is_told_in_the_templates_own_words() -> None:
    with pytest.raises(ChatTemplateError, match="refuses these messages: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ 'open", "{% nonsense %}", "{{ x | nofilter }}"]
)
def test_a_syntax_error_is_an_error_of_the_template(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="damaged"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ nothing.at.all }}",
        "{{ 1 / 0 }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ ''.join.__globals__.os }}",
    ],
)
def test_what_a_template_must_not_do_is_an_error_of_the_template(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="failed"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_an_endless_template_is_stopped(source: str) -> None:
    start = time.monotonic()
    with pytest.raises(ChatTemplateError):
        render(source)
    assert time.monotonic() - start < TIME_LIMIT_S + 5.0


@pytest.mark.parametrize(
    "source", ["{{ 'x' * 10**9 }}", "{{ 9**9**9 }}", "{{ '%999999999d' % 1 }}"]
)
def test_a_template_that_would_fill_the_memory_is_stopped(source: str) -> None:
    start = time.monotonic()
    with pytest.raises(ChatTemplateError):
        render(source)
    assert time.monotonic() - start < 5.0


JINJA, CONFIG, JSON = "chat_template.jinja", "tokenizer_config.json", "chat_template.json"
PLACES = {
    "jinja": {JINJA: "{{ bos_token }}jinja"},
    "config": {CONFIG: {"chat_template": "{{ bos_token }}config"}},
    "json": {JSON: {"chat_template": "{{ bos_token }}json"}},
    "named": {
        CONFIG: {
            "chat_template": [
                {"name": "rag", "template": "rag"},
                {"name": "default", "template": "{{ bos_token }}named"},
            ]
        }
    },
}


def put(folder: Path, files: dict[str, Any]) -> Path:
    """A folder with these files and a first token."""
    config = {"bos_token": {"content": "<s>"}, **files.get(CONFIG, {})}
    for name, content in {**files, CONFIG: config}.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def rendered(folder: Path) -> str:
    template = ChatTemplate.from_folder(folder)
    assert template is not None
    return template.render([], add_generation_prompt=True)


@pytest.mark.parametrize("place", PLACES)
def test_a_template_is_found_wherever_a_model_keeps_it(place: str, tmp_path: Path) -> None:
    put(tmp_path, PLACES[place])
    assert rendered(tmp_path) == f"<s>{place}"
    assert has_template(tmp_path)


def test_the_file_goes_before_the_config_and_that_before_the_json(tmp_path: Path) -> None:
    put(tmp_path, {**PLACES["json"], **PLACES["config"], **PLACES["jinja"]})
    assert rendered(tmp_path) == "<s>jinja"
    (tmp_path / JINJA).unlink()
    assert rendered(tmp_path) == "<s>config"
    put(tmp_path, {})
    assert rendered(tmp_path) == "<s>json"


@pytest.mark.parametrize(
    "entry", [None, "", [], [{"name": "rag", "template": "a"}], ["default"]], ids=repr
)
def test_an_entry_without_a_template_is_none(entry: object, tmp_path: Path) -> None:
    put(tmp_path, {CONFIG: {"chat_template": entry}})
    assert ChatTemplate.from_folder(tmp_path) is None


@pytest.mark.parametrize("entry", [5, {"a": "b"}, [{"name": "default", "template": 5}]], ids=repr)
def test_an_entry_that_is_no_text_is_an_error_of_the_template(
    entry: object, tmp_path: Path
) -> None:
    put(tmp_path, {CONFIG: {"chat_template": entry}})
    with pytest.raises(ChatTemplateError, match="is no text but"):
        ChatTemplate.from_folder(tmp_path)


def test_a_template_of_millions_of_characters_is_refused(tmp_path: Path) -> None:
    put(tmp_path, {JINJA: "x" * 1_000_001})
    with pytest.raises(ChatTemplateError, match="has 1,000,001 characters; 1,000,000 are"):
        ChatTemplate.from_folder(tmp_path)
    with (tmp_path / JINJA).open("wb") as file:
        file.truncate(1 << 40)  # a hole: reading it would take a terabyte
    with pytest.raises(ChatTemplateError, match="has 1,099,511,627,776 characters"):
        ChatTemplate.from_folder(tmp_path)


def test_a_template_file_that_is_no_text_names_the_byte(tmp_path: Path) -> None:
    (tmp_path / JINJA).write_bytes(b"abc\xff")
    with pytest.raises(ModelFileError, match=r"chat_template\.jinja is damaged: byte 3 is no text"):
        ChatTemplate.from_folder(tmp_path)


def test_a_model_without_a_template_has_none(tmp_path: Path) -> None:
    assert ChatTemplate.from_folder(tmp_path) is None
    assert not has_template(tmp_path)


def test_a_damaged_config_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("[1")
    with pytest.raises(ModelFileError, match=r"tokenizer_config\.json is damaged"):
        ChatTemplate.from_folder(tmp_path)
