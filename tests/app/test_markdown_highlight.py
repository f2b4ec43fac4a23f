"""Highlighting that can stop and go on."""

from __future__ import annotations

import pytest

from app.highlight import ROOT, lex

PYTHON = 'def f(a):\n    """doc\n\n    more"""\n    return a + 1  # end\n'


def classes(code: str, language: str) -> dict[str, str]:
    return {span.text: span.name for span in lex(code, language)[0]}


def test_python_is_coloured() -> None:
    found = classes("def f(): return 'x'", "python")
    assert found["def"] == "keyword"
    assert found["f"] == "function"
    assert found["'x'"] == "string"


@pytest.mark.parametrize("language", ["python", "c", "bash", "json", "html", "rust", "sql", "yaml"])
def test_no_character_is_lost(language: str) -> None:
    spans, _stack = lex(PYTHON, language)
    assert "".join(span.text for span in spans) == PYTHON


def test_lexing_goes_on_in_a_string_that_began_before() -> None:
    first, second = PYTHON.split("\n\n")
    _spans, stack = lex(first, "python")
    assert stack != ROOT
    spans, _end = lex(second, "python", stack)
    assert spans[0].name == "string"
    assert {s.text.strip(): s.name for s in spans}["return"] == "keyword"


def test_cut_anywhere_gives_the_colours_of_the_whole() -> None:
    whole = [(c, span.name) for span in lex(PYTHON, "python")[0] for c in span.text]
    lines = PYTHON.split("\n")
    for cut in range(1, len(lines) - 1):
        head, tail = "\n".join(lines[:cut]), "\n".join(lines[cut:])
        spans, stack = lex(head, "python")
        parts = [(c, s.name) for s in spans for c in s.text]
        parts.append(("\n", whole[len(head)][1]))
        parts += [(c, s.name) for s in lex(tail, "python", stack)[0] for c in s.text]
        assert parts == whole


@pytest.mark.parametrize("language", ["", "no such language", "text"])
def test_unknown_language_is_plain(language: str) -> None:
    spans, _stack = lex("a < b", language)
    assert "".join(span.text for span in spans) == "a < b"
    assert {span.name for span in spans} == {""}


def test_empty_code_has_no_spans() -> None:
    assert lex("", "python") == ([], ROOT)
