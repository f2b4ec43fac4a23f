"""Numbers of prompt tokens for which steps are made ready, and what fits them. No torch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

MAX_PROMPT_TOKENS = 2048
_LEAST_ROWS = 16

PromptSize = Callable[[int], int]
"""From a step's prompt tokens to those that it computes, padding included; grows with them."""


def prompt_rows(count: int) -> int:
    """Prompt tokens of the graph for ``count`` of them: at least 16, then at most half more."""
    power = max(_LEAST_ROWS, 1 << max(count - 1, 0).bit_length())
    return power * 3 // 4 if power > _LEAST_ROWS and count <= power * 3 // 4 else power


def unpadded(num_tokens: int) -> int:
    """The ``PromptSize`` of a device that computes what it is given."""
    return num_tokens


def fitting(most: int, size_of: PromptSize) -> int:
    """The largest number of prompt tokens that are no more than ``most`` with their padding; so
    many without where even the smallest size is more.
    """
    return bisect_right(range(1, most + 1), most, key=size_of) or most
