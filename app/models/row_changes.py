"""What differs between two lists of keys, as a view needs to be told. Qt-free."""

from __future__ import annotations

from collections.abc import Sequence


def stay_in_order(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """Keys of both that can stay where they are: those between the first and the last that changed
    places are not among them.
    """
    in_old, in_new = set(old), set(new)
    before = [key for key in old if key in in_new]
    after = [key for key in new if key in in_old]
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    return {*before[:start], *before[len(before) - end :]}


def runs_without(keys: Sequence[str], kept: set[str]) -> list[tuple[int, int]]:
    """(first, last) places of the keys that are not kept, neighbours together."""
    runs: list[tuple[int, int]] = []
    for place, key in enumerate(keys):
        if key not in kept:
            if runs and runs[-1][1] == place - 1:
                runs[-1] = (runs[-1][0], place)
            else:
                runs.append((place, place))
    return runs


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """How many keys they begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
