"""Chat templates that would never end, fill the memory or take the program down end in an error."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from engine import template_sandbox
from engine.api.errors import ChatTemplateError
from engine.chat_template import ChatTemplate
from engine.template_sandbox import MAX_BYTES
from tests.helpers.chat_models import CHAT_MODELS

HELLO = [{"role": "user", "content": "Hello"}]
ROUNDS = "{% for a in range(99999) %}"
END = "{% endfor %}"


def grow(name: str, start: str, expression: str, use: str = "") -> str:
    """A value that becomes another one of itself as often as there is time for."""
    step = f"{{% set ns.{name} = {expression} %}}"
    return f"{{% set ns = namespace({name}={start}) %}}{ROUNDS}{step}{use}{END}"


ENDLESS = {
    "loops that call nothing": "{% set r = range(99999) %}{% for a in r %}{% for b in r %}"
    "{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
    "a loop with a condition": "{% set r = range(99999) %}{% for a in r %}"
    "{% for b in r if b < 0 %}{% endfor %}{% endfor %}",
    "a list of lists": "{% set r = range(9999) | list %}{% for a in r %}{% for b in r %}"
    "{{ '' }}{% endfor %}{% endfor %}",
    "a macro that calls itself": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "a block that shows itself": "{% block b %}{{ self.b() }}{{ self.b() }}{% endblock %}",
    "a recursive loop": "{% for a in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "a sum of lists": "{{ range(99999) | batch(1) | sum(start=[]) | length }}",
    "a power": "{{ 2 ** 10 ** 9 }}",
    "a power of a number that grew": grow("n", "3", "ns.n * ns.n"),
    "a precision": "{{ 1.5 | round(100000000, 'ceil') }}",
    "lists that are compared": "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
    "pairs that are compared": "{% set ns = namespace(a=(1,), b=(1,)) %}{% for i in range(60) %}"
    "{% set ns.a = (ns.a, ns.a) %}{% set ns.b = (ns.b, ns.b) %}{% endfor %}{{ ns.a == ns.b }}",
    "lists that are repeated": "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
    "{% set ns.a = [ns.a] * 2 %}{% set ns.b = [ns.b] * 2 %}{% endfor %}{{ ns.a == ns.b }}",
}
LARGE = {
    "repeated text": "{{ 'x' * 10**9 }}",
    "a repeated list": "{{ [1] * 999999999 }}",
    "text that doubles": grow("t", "'x'", "ns.t ~ ns.t"),
    "text that doubles by adding": grow("t", "'x'", "ns.t + ns.t"),
    "text that doubles in a block": "{% set ns = namespace(t='x') %}"
    + ROUNDS
    + "{% set t %}{{ ns.t }}{{ ns.t }}{% endset %}{% set ns.t = t %}"
    + END,
    "text that doubles by replacing": grow("t", "'x'", "ns.t.replace('x', 'xx')"),
    "text that doubles by a filter": grow("t", "'x'", "ns.t | replace('x', 'xx')"),
    "text that doubles by joining": grow("t", "'x'", "[ns.t, ns.t] | join"),
    "text that doubles by formatting": grow("t", "'x'", "'{0}{0}'.format(ns.t)"),
    "a list that doubles": grow("t", "[1]", "ns.t + ns.t"),
    "text cut from text": "{% set big = 'x' * 9999999 %}" + grow("l", "[]", "[ns.l, big[1:]]"),
    "much plain text": "{% set t %}" + ROUNDS + "x" * 100_000 + END + "{% endset %}",
    "much plain text of a macro": "{% macro f() %}"
    + "x" * 100_000
    + "{% endmacro %}{% set t %}"
    + ROUNDS
    + "{{ f() }}"
    + END
    + "{% endset %}",
    "a wide text": "{{ 'x'.ljust(999999999) }}",
    "a wide text on the right": "{{ 'x'.rjust(999999999) }}",
    "a wide text in the middle": "{{ 'x' | center(999999999) }}",
    "zeros": "{{ 'x'.zfill(999999999) }}",
    "tabulators": "{{ '\t'.expandtabs(999999999) }}",
    "many tabulators": "{{ ('\t' * 999999).expandtabs(9999) }}",
    "an indentation": "{{ 'a\nb' | indent(999999999) }}",
    "many indentations": "{{ ('\n' * 999999) | indent(9999) }}",
    "an indented object": "{{ messages | tojson(indent=999999999) }}",
    "a number's width": "{{ '{:999999999}'.format(1) }}",
    "a number's computed width": "{{ '{:{}}'.format(1, 999999999) }}",
    "a number's width by a filter": "{{ '%999999999d' | format(1) }}",
    "a number's starred width": "{{ '%*d' | format(999999999, 1) }}",
    "a number's width by an operator": "{{ '%999999999d' % 1 }}",
    "filled batches": "{{ [1] | batch(999999999, 'x') | list }}",
    "slices": "{{ [1] | slice(999999999) | list }}",
    "a long join": "{{ (range(99999) | list) | join('x' * 99999) }}",
    "a long join by a method": "{{ ('x' * 99999).join(['a'] * 99999) }}",
    "a long join, one by one": "{{ range(99999) | map('string') | join('x' * 99999) }}",
    "a replacement": "{{ ('x' * 99999).replace('x', 'y' * 99999) }}",
    "a translation": "{{ ('x' * 99999).translate({120: 'y' * 99999}) }}",
    "bytes of a number": "{{ (1).to_bytes(999999999, 'big') }}",
    "laughs": "{% set ns = namespace(l=['lol']) %}{% for i in range(60) %}"
    "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "laughs in JSON": "{% set ns = namespace(l=['lol']) %}{% for i in range(60) %}"
    "{% set ns.l = {'a': ns.l, 'b': ns.l} %}{% endfor %}{{ ns.l | tojson }}",
    "laughs by a function": "{% set ns = namespace(l=['lol']) %}{% for i in range(60) %}"
    "{% set ns.l = dict(a=ns.l, b=ns.l) %}{% endfor %}{{ ns.l }}",
    "output": ROUNDS + "x" * 100_000 + END,
}
DEEP = {
    "a list": grow("l", "[]", "[ns.l]", "") + "{{ ns.l }}",
    "a pair": grow("l", "(1,)", "(ns.l, 1)", "") + "{{ {ns.l: 1} }}",
    "a pair by a function": grow("l", "(1,)", "(dict(a=ns.l) | items | list)[0]")
    + "{{ {ns.l: 1} }}",
    "brackets": "{{ " + "[" * 5_000 + "]" * 5_000 + " }}",
    "negations": "{{ " + "not " * 50_000 + "1 }}",
    "sums": "{{ " + "1 + " * 50_000 + "1 }}",
    "loops": "{% for a in [1] %}" * 60 + "x" + "{% endfor %}" * 60,
    "conditions": "{% if true %}" * 2_000 + "x" + "{% endif %}" * 2_000,
}


@pytest.fixture(autouse=True)
def _short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less time than a user would grant: what needs all of it is looked at often here."""
    if "fails_soon" in request.function.__code__.co_names:
        monkeypatch.setattr(template_sandbox, "TIME_LIMIT_S", 0.4)


def fails_soon(source: str) -> str:
    """The error's text. Neither much time nor much memory has been taken."""
    tracemalloc.start()
    begun = time.monotonic()
    try:
        with pytest.raises(ChatTemplateError) as caught:
            ChatTemplate(source).render(HELLO, add_generation_prompt=True)
        took, peak = time.monotonic() - begun, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The machine has others to serve, and tracing takes most of the time.
    assert took < template_sandbox.TIME_LIMIT_S + 6.0
    assert peak < MAX_BYTES + (200 << 20)
    return str(caught.value)


@pytest.mark.parametrize("name", ENDLESS)
def test_what_would_not_end_is_stopped(name: str) -> None:
    assert "chat template failed: " in fails_soon(ENDLESS[name])


@pytest.mark.parametrize("name", LARGE)
def test_what_would_fill_the_memory_is_stopped(name: str) -> None:
    assert "chat template failed: it " in fails_soon(LARGE[name])


@pytest.mark.parametrize("name", DEEP)
def test_what_goes_too_deep_is_stopped_in_a_program_that_goes_on(name: str) -> None:
    code = (
        "import sys\n"
        "from engine.chat_template import ChatTemplate\n"
        "from engine.api.errors import ChatTemplateError\n"
        "try:\n"
        "    text = ChatTemplate(sys.stdin.read()).render([], add_generation_prompt=True)\n"
        "    print('made', len(text))\n"
        "except ChatTemplateError as error:\n"
        "    print('stopped', len(str(error)) < 1000)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=DEEP[name],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) in {("stopped True\n", 0), ("made 1\n", 0)}, done.stderr


def test_the_limit_of_time_is_two_seconds() -> None:
    begun = time.monotonic()
    with pytest.raises(ChatTemplateError, match="it took longer than 2 s"):
        ChatTemplate(ENDLESS["a loop with a condition"]).render([], add_generation_prompt=True)
    assert 2.0 <= time.monotonic() - begun < 8.0


def test_a_template_may_do_what_templates_do() -> None:
    source = (
        "{%- set ns = namespace(text='', seen=[]) -%}"
        "{%- for m in messages -%}"
        "{%- set ns.text = ns.text ~ '<' ~ m.role ~ '>' + m['content'] | trim -%}"
        "{%- set ns.seen = ns.seen + [m.role] -%}"
        "{%- endfor -%}"
        "{{ ns.text }}|{{ ns.seen | join(', ') }}|{{ messages[::-1][0].content[:2] }}"
        "|{{ {'a': [messages[0].role, 1]} | tojson }}|{{ '%s-%5.1f' | format('x', 2) }}"
        "|{{ 'a-b'.split('-')[1] }}|{{ (3 * 4 + 2 ** 3) % 7 }}|{{ 'ab' * 2 }}|{{ ('a', 1)[0] }}"
        "|{% for k, v in {'x': 1, 'y': 2}.items() %}{{ k }}{{ v }}{% endfor %}"
        "|{% macro f(a, b=2) %}{{ a + b }}{% endmacro %}{{ f(1) }}{{ f(1, b=4) }}"
        "|{{ messages | map(attribute='role') | map('upper') | join('+') }}"
        "|{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
        "|{{ '{}:{:>4}'.format('a', 7) }}|{{ 'x'.center(5) }}|{{ 'a,b'.replace(',', ';') }}"
    )
    made = ChatTemplate(source).render([*HELLO, *HELLO], add_generation_prompt=False)
    assert made == (
        "<user>Hello<user>Hello|user, user|He"
        '|{"a": ["user", 1]}|x-  2.0|b|6|abab|a|x1y2|35|USER+USER|2|a:   7|  x  |a;b'
    )


def test_a_long_conversation_is_within_the_limits() -> None:
    talk = [{"role": ("user", "assistant")[i % 2], "content": "word " * 400} for i in range(2_000)]
    for model in CHAT_MODELS:
        text = model.template().render(talk, add_generation_prompt=True)
        assert len(text) > 2_000_000


def test_one_template_after_another_has_a_budget_of_its_own() -> None:
    template = ChatTemplate("{{ 'x' * 30000000 }}")
    for _ in range(30):
        assert len(template.render(HELLO, add_generation_prompt=True)) == 30_000_000


def test_what_a_template_says_of_its_failure_is_plain_text() -> None:
    source = "{{ raise_exception('no\u202e\n\x07such ' + 'x' * 5000) }}"
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplate(source).render(HELLO, add_generation_prompt=True)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
