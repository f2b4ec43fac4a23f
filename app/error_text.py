"""Words for errors: the cause with its numbers, and what to do. Qt-free."""

from __future__ import annotations

from engine.api.errors import ErrorInfo


def describe_error(error: ErrorInfo) -> tuple[str, str]:
    """(cause, action) in the user's language, plain text; the engine's own words for an unknown
    code.
    """
    return error.message, error.action
