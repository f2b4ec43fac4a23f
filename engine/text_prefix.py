"""Where a tokenizer puts a space of its own before text, and how to keep it from doing so.

SentencePiece marks the beginning of a word by a space, and so puts one before text that has none.
Text that goes on after other text must not get one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


class Before(Enum):
    """What stands before a run of text: nothing, a control token, or other text."""

    NOTHING = 0
    CONTROL = 1
    TEXT = 2


def prefixed_after(settings: Mapping[str, Any]) -> frozenset[Before]:
    """After what the tokenizer with these settings (tokenizer.json) puts a space before text."""
    found: set[Before] = set()
    for part in _parts(settings.get("normalizer"), "normalizers"):
        if part.get("type") == "Prepend":
            found |= {Before.NOTHING, Before.CONTROL}
    for part in _parts(settings.get("pre_tokenizer"), "pretokenizers"):
        scheme = _scheme(part)
        if scheme in ("always", "first"):
            found.add(Before.NOTHING)
        if scheme == "always":
            found.add(Before.CONTROL)
    return frozenset(found)


def without_prefix(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings with no space put before text."""
    changed = dict(settings)
    normalizers = [
        part
        for part in _parts(settings.get("normalizer"), "normalizers")
        if part.get("type") != "Prepend"
    ]
    pre_tokenizers = [
        {**part, "prepend_scheme": "never", "add_prefix_space": False}
        if part.get("type") == "Metaspace"
        else part
        for part in _parts(settings.get("pre_tokenizer"), "pretokenizers")
    ]
    changed["normalizer"] = _joined(normalizers, "normalizers")
    changed["pre_tokenizer"] = _joined(pre_tokenizers, "pretokenizers")
    return changed


def _scheme(part: Mapping[str, Any]) -> str:
    if part.get("type") != "Metaspace":
        return "never"
    # Older files say only whether.
    default = "always" if part.get("add_prefix_space", True) else "never"
    return str(part.get("prepend_scheme") or default)


def _parts(part: Mapping[str, Any] | None, name: str) -> list[Mapping[str, Any]]:
    if part is None:
        return []
    return list(part.get(name, [])) if part.get("type") == "Sequence" else [part]


def _joined(parts: list[Any], name: str) -> dict[str, Any] | None:
    if len(parts) <= 1:
        return parts[0] if parts else None
    return {"type": "Sequence", name: parts}
