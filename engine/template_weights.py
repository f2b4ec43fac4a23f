"""How large the lists are that a template has built, all that they hold counted.

A list that holds another one twice takes a few bytes, and its text, or a comparison with another,
twice as long; forty times over, for ever. So each container that is made is weighed once, when what
it holds has been.
"""

from __future__ import annotations

from typing import Any

_MAX_DEPTH = 200
"""Nesting that comparisons and hashes go down without the stack running out."""


class Weights:
    """``limit``: of the characters and items that one container may stand for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[int, tuple[int, int]] = {}
        # As long as they live their ids stand for them.
        self._kept: list[Any] = []

    def take(self, container: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> bool:
        """Weighs a container; False if it is too heavy or too deep."""
        return self._weigh(container, 0) is not None

    def _weigh(self, value: Any, level: int) -> tuple[int, int] | None:
        """Weight and depth; None if that is too much."""
        if isinstance(value, str | bytes):
            return 1 + len(value), 0
        if not isinstance(value, list | tuple | dict):
            return 1, 0
        known = self._known.get(id(value))
        if known is not None:
            return known
        if level > _MAX_DEPTH:
            return None
        weight, depth = 1, 0
        parts = (*value.keys(), *value.values()) if isinstance(value, dict) else value
        for part in parts:
            found = self._weigh(part, level + 1)
            if found is None:
                return None
            weight, depth = weight + found[0], max(depth, found[1])
            if weight > self._limit or depth >= _MAX_DEPTH:
                return None
        self._known[id(value)] = weight, depth + 1
        self._kept.append(value)
        return weight, depth + 1
