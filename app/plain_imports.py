"""Python's own import statement, without what PySide6 hooks into it."""

from __future__ import annotations

import builtins


def restore_plain_imports() -> None:
    """Takes out the hook that PySide6 put into ``import``; does nothing if there is none.

    The hook serves ``from __feature__ import …``, which nothing here uses. For every module that is
    imported in any thread it reads the whole source, holding the interpreter, and the line cache
    keeps the text: with torch 0.15 s of processor time and 16 MB (PySide6 6.11).
    """
    import PySide6.QtCore  # noqa: F401 - loading it sets the hook

    original = getattr(builtins, "__orig_import__", None)
    if original is not None:
        builtins.__import__ = original
