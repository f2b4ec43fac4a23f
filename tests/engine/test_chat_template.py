"""Chat templates: rendered as transformers does, and kept within limits."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest

from engine.api.errors import ChatTemplateError, ModelFileError
from engine.chat_template import TIME_LIMIT_S, ChatTemplate
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


def test_a_template_file_goes_before_the_configs_entry(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"chat_template": "config", "bos_token": {"content": "<s>"}}')
    assert ChatTemplate.from_folder(tmp_path).render([], add_generation_prompt=True) == "config"
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}file")
    assert ChatTemplate.from_folder(tmp_path).render([], add_generation_prompt=True) == "<s>file"


def test_of_several_named_templates_the_default_is_taken(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        '{"chat_template": [{"name": "rag", "template": "a"},'
        ' {"name": "default", "template": "b"}]}'
    )
    assert ChatTemplate.from_folder(tmp_path).render([], add_generation_prompt=True) == "b"


def test_a_model_without_a_template_has_none(tmp_path: Path) -> None:
    assert ChatTemplate.from_folder(tmp_path) is None


def test_a_damaged_config_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("[1")
    with pytest.raises(ModelFileError, match=r"tokenizer_config\.json is damaged"):
        ChatTemplate.from_folder(tmp_path)
