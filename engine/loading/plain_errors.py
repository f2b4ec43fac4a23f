"""Errors about a model's files quote them; what they quote is made safe to show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.api.errors import EngineError
from engine.loading.plain_text import plain_text

_MAX_CHARS = 1_000


@contextmanager
def plain_errors() -> Iterator[None]:
    """An error that passes through is of the same kind, and its words are plain text."""
    try:
        yield
    except EngineError as error:
        if all(_is_plain(text) for text in (error.message, *error.numbers.values())):
            raise
        numbers = {
            name: value if _is_plain(value) else plain_text(str(value))
            for name, value in error.numbers.items()
        }
        message = plain_text(error.message, _MAX_CHARS)
        raise type(error)(message, action=error.action, **numbers) from error


def _is_plain(value: int | float | str) -> bool:
    return not isinstance(value, str) or (value.isprintable() and len(value) <= _MAX_CHARS)
