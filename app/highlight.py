"""Syntax highlighting that goes on where it stopped. Qt-free.

Pygments lexers keep a stack of states, but their public interface starts every text from the
beginning. ``lex`` runs the rules of a regular-expression lexer itself, takes the stack to begin
with and gives back the stack at the end, so that a long fence is highlighted segment by segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Stack = tuple[str, ...]
ROOT: Stack = ("root",)

# Longest match first: a token type falls back to its parents.
_CLASSES = {
    "Comment": "comment",
    "Keyword": "keyword",
    "Keyword.Type": "type",
    "Operator.Word": "keyword",
    "Operator": "operator",
    "String": "string",
    "Literal.String": "string",
    "Literal.Number": "number",
    "Name.Function": "function",
    "Name.Class": "type",
    "Name.Decorator": "function",
    "Name.Builtin": "type",
    "Name.Exception": "type",
    "Name.Tag": "keyword",
    "Name.Attribute": "function",
    "Generic.Deleted": "error",
    "Generic.Inserted": "string",
    "Generic.Heading": "keyword",
}

_COMMON = ("python", "bash", "javascript", "json", "cpp", "html", "sql", "java", "rust", "yaml")


@dataclass(frozen=True, slots=True)
class Span:
    """``text`` in the colour of the syntax token ``name``; empty for plain text."""

    name: str
    text: str


@lru_cache(maxsize=32)
def _lexer(language: str) -> Any:
    """A regular-expression lexer for ``language``, or None."""
    from pygments.lexer import ExtendedRegexLexer, RegexLexer
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return None
    # Extended lexers hand their own context to callbacks; plain text is better than a crash.
    if not isinstance(lexer, RegexLexer) or isinstance(lexer, ExtendedRegexLexer):
        return None
    return lexer


def warm_up() -> None:
    """Loads the lexers that are used most; too slow for the GUI thread."""
    for language in _COMMON:
        _lexer(language)


@lru_cache(maxsize=1024)
def _class_of(token_type: Any) -> str:
    while token_type:
        name = _CLASSES.get(".".join(token_type))
        if name is not None:
            return name
        token_type = token_type.parent
    return ""


def lex(code: str, language: str, stack: Stack = ROOT) -> tuple[list[Span], Stack]:
    """Coloured spans of ``code``, whose texts join to ``code``, and the stack after it.

    An unknown language, or a lexer that fails, gives one plain span.
    """
    lexer = _lexer(language.lower()) if language else None
    if lexer is None or not code:
        return ([Span("", code)] if code else []), stack
    try:
        return _run(lexer, code, [s for s in stack if s in lexer._tokens] or list(ROOT))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return [Span("", code)], ROOT


def _run(lexer: Any, code: str, states: list[str]) -> tuple[list[Span], Stack]:
    # The final newline that most line rules expect; taken off again below.
    text = code + "\n"
    pieces: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        for match_rule, action, change in lexer._tokens[states[-1]]:
            match = match_rule(text, position)
            if match is None:
                continue
            if action is not None:
                _collect(pieces, lexer, action, match)
            position = match.end()
            if change is not None:
                _change_state(states, change)
            break
        else:
            if text[position] == "\n":
                states[:] = ["root"]
            pieces.append(("", text[position]))
            position += 1
    return _merged(pieces, len(code)), tuple(states)


def _collect(pieces: list[tuple[str, str]], lexer: Any, action: Any, match: Any) -> None:
    if isinstance(action, tuple):
        pieces.append((_class_of(action), match.group()))
    else:
        pieces.extend((_class_of(kind), value) for _at, kind, value in action(lexer, match))


def _change_state(states: list[str], change: Any) -> None:
    if isinstance(change, tuple):
        for state in change:
            _change_state(states, state)
    elif change == "#push":
        states.append(states[-1])
    elif change == "#pop":
        del states[max(1, len(states) - 1) :]
    elif isinstance(change, int):
        del states[max(1, len(states) + change) :]
    else:
        states.append(change)


def _merged(pieces: list[tuple[str, str]], length: int) -> list[Span]:
    """Joins neighbours of one class and cuts at ``length`` characters."""
    spans: list[Span] = []
    left = length
    for name, text in pieces:
        text = text[:left]
        left -= len(text)
        if not text:
            continue
        if spans and spans[-1].name == name:
            spans[-1] = Span(name, spans[-1].text + text)
        else:
            spans.append(Span(name, text))
    return spans
