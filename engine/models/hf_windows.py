"""Which layers have a sliding window, as a config.json describes it. No torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from engine.api.errors import ModelFileError
from engine.models.families import (
    EVERY_LAYER,
    FIVE_OF_SIX,
    UNROTATED_LAYERS,
    UPPER_LAYERS,
    Family,
)
from engine.models.hf_refusals import unsupported

_SLIDING, _FULL = "sliding_attention", "full_attention"
_PATTERN = 6


def read_windows(
    values: Mapping[str, Any], family: Family, num_layers: int, unrotated: Collection[int] = ()
) -> tuple[int | None, ...]:
    """Each layer's window in tokens, None for none; empty if no layer has one.

    ``unrotated``: indices of the layers without rotation.

    Raises:
        ModelFileError: an entry makes no sense.
        UnsupportedModelError: another kind of attention, or windows where the family has none.
    """
    kinds = _layer_kinds(values, num_layers)
    window = values.get("sliding_window")
    switched = family.windows in (UPPER_LAYERS, UNROTATED_LAYERS)
    if switched and not values.get("use_sliding_window"):
        window = None
    if not family.windows and (window is not None or _SLIDING in kinds):
        raise unsupported("sliding-window attention", "sliding_window")
    if window is None:
        if _SLIDING in kinds:
            raise ModelFileError("config.json lists layers with a window and gives no window.")
        return ()
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        raise ModelFileError(f"config.json gives sliding_window = {window!r}; 1 or more.")
    if family.windows == EVERY_LAYER and _FULL in kinds:
        raise unsupported("windows in some layers only", "layer_types")
    if family.windows == UNROTATED_LAYERS and not kinds:
        slides = [index in unrotated for index in range(num_layers)]
    else:
        slides = _sliding_layers(values, family, kinds, num_layers)
    return tuple(window if slide else None for slide in slides) if any(slides) else ()


def _layer_kinds(values: Mapping[str, Any], num_layers: int) -> list[str]:
    kinds = values.get("layer_types") or []
    if not isinstance(kinds, list) or len(kinds) not in (0, num_layers):
        raise ModelFileError(
            f"config.json must give layer_types for each of {num_layers} layers, or none."
        )
    for kind in kinds:
        if kind not in (_SLIDING, _FULL):
            raise unsupported(f"layers of the kind {kind}", "layer_types")
    return kinds


def _sliding_layers(
    values: Mapping[str, Any], family: Family, kinds: list[str], num_layers: int
) -> list[bool]:
    if kinds:
        return [kind == _SLIDING for kind in kinds]
    if family.windows == UPPER_LAYERS:
        first = values.get("max_window_layers")
        if not isinstance(first, int) or isinstance(first, bool) or first < 0:
            raise ModelFileError(f"config.json gives max_window_layers = {first!r}; 0 or more.")
        return [index >= first for index in range(num_layers)]
    if family.windows == FIVE_OF_SIX:
        pattern = values.get("sliding_window_pattern") or _PATTERN
        if not isinstance(pattern, int) or pattern < 1:
            raise ModelFileError(f"config.json gives sliding_window_pattern = {pattern!r}.")
        return [(index + 1) % pattern != 0 for index in range(num_layers)]
    return [True] * num_layers
