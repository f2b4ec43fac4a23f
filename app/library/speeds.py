"""How fast models have been here, and how fast another one would write.

Reading one token's weights is what a step of decoding one conversation waits for, so that
tokens/s ≈ bandwidth / bytes of the weights. It is taken from answers on the same device, and only
says *about*.

What a step costs besides lets a small model read more slowly than the device could: it says little
of a large one, whose answers are believed first. And however small a model is, it is not faster
than steps that read next to nothing.

Of prefill only what was measured counts. Another model's, scaled by the parameters, is wrong by
several times: an embedding is looked up and not computed, but it can be most of a small model; and
the way in which weights are kept, launches and caches count for more than in decoding. Short and
long prompts are read at different speeds: each counts as much as it has tokens, the newest most.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.stored_json import stored_object
from engine.api.events import (
    EngineStatusChanged,
    Event,
    ModelInfo,
    RequestFinished,
    RequestPaused,
    RequestPreempted,
    RequestQueued,
    RequestUsage,
)

MIN_OUTPUT_TOKENS = 8
MIN_PREFILL_TOKENS = 32
_KEPT_MODELS = 200
_MUCH_SMALLER = 0.5
_FADING = 0.5
"""What earlier prompts still count beside a new one."""
_EMPTY_STEPS = {"cpu": 500.0, "cuda": 2500.0}
"""Tokens a second of a model of a few thousand parameters: 2 ms a step on two cores, 0.4 ms of the
host's on an H200. A device on which anything ran faster is believed.
"""

Measured = tuple[float, float, float]
"""Decode and prefill in tokens a second, and the tokens of prompts that the latter comes from."""

_UNKNOWN: Measured = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of one conversation; 0 where it is not known. ``is_measured``: ``decode`` is
    of this very model, not worked out from another's, as ``prefill`` never is.
    """

    decode: float = 0.0
    prefill: float = 0.0
    is_measured: bool = False


class OwnPace:
    """Whether an answer was made as fast as the model can: not in slow motion, while the engine was
    paused, paused itself, or computed again after it had lost its blocks.
    """

    def __init__(self) -> None:
        self._is_slowed = False
        self._running: set[str] = set()
        self._slowed: set[str] = set()

    def take(self, event: Event) -> bool:
        """Takes every event in its order. False at the end of an answer that was held up."""
        match event:
            case EngineStatusChanged():
                self._is_slowed = event.paused or event.steps_per_s is not None
                if self._is_slowed:
                    self._slowed |= self._running
            case RequestQueued():
                self._running.add(event.request_id)
                if self._is_slowed:
                    self._slowed.add(event.request_id)
            case RequestPaused() | RequestPreempted():
                self._slowed.add(event.request_id)
            case RequestFinished():
                is_own = event.request_id not in self._slowed
                self._running.discard(event.request_id)
                self._slowed.discard(event.request_id)
                return is_own
        return True


class SpeedBook:
    """Kept as one JSON text. ``save`` is called with it after each change."""

    def __init__(self, stored: str, save: Callable[[str], None]) -> None:
        """``stored``: what ``save`` was called with last; anything else counts as nothing."""
        values = stored_object(stored)
        measured = values.get("measured")
        by_kind = measured.items() if isinstance(measured, dict) else ()
        self._save = save
        self._measured = {kind: _measured(models) for kind, models in by_kind}
        self._bandwidths = _pairs(values.get("bandwidths"))
        self._fastest = _numbers(values.get("fastest"))

    def note(self, model: ModelInfo, usage: RequestUsage, ran_alone: bool) -> None:
        """An answer has ended.

        Only answers that ran alone tell the speed of decoding; of the others the prefill counts.
        """
        kind = _kind(model.device)
        models = self._measured.setdefault(kind, {})
        before = models.get(model.path, _UNKNOWN)
        decode, prefill, weight = before
        decode_s = usage.total_s - usage.ttft_s
        if ran_alone and usage.output_tokens >= MIN_OUTPUT_TOKENS and decode_s > 0.0:
            decode = (usage.output_tokens - 1) / decode_s
        if usage.computed_tokens >= MIN_PREFILL_TOKENS and usage.prefill_s > 0.0:
            earlier = _FADING * weight if prefill else 0.0
            earlier_s = earlier / prefill if prefill else 0.0
            weight = earlier + usage.computed_tokens
            prefill = weight / (earlier_s + usage.prefill_s)
        if (decode, prefill, weight) == before:
            return
        models.pop(model.path, None)
        models[model.path] = (decode, prefill, weight)
        while len(models) > _KEPT_MODELS:
            del models[next(iter(models))]
        if decode:
            self._note_bandwidth(kind, decode, model.weights_bytes)
        values = {"measured": self._measured, "bandwidths": self._bandwidths}
        self._save(json.dumps(values | {"fastest": self._fastest}, ensure_ascii=False))

    def _note_bandwidth(self, kind: str, decode: float, weights_bytes: int) -> None:
        """Bytes a second of decoding, as the largest model showed them, or a smaller one that got
        more out of the device.
        """
        bandwidth, size = self._bandwidths.get(kind, (0.0, 0.0))
        if weights_bytes >= _MUCH_SMALLER * size or decode * weights_bytes > bandwidth:
            self._bandwidths[kind] = (decode * weights_bytes, float(weights_bytes))
        self._fastest[kind] = max(self._fastest.get(kind, 0.0), decode)

    def of(self, path: str, device: str, weights_bytes: int) -> Speed:
        """The speed of a model on that device: measured, else, of decoding, worked out from others
        there.
        """
        kind = _kind(device)
        decode, prefill, _weight = self._measured.get(kind, {}).get(path, _UNKNOWN)
        if decode:
            return Speed(decode, prefill, is_measured=True)
        bandwidth, _size = self._bandwidths.get(kind, (0.0, 0.0))
        most = max(_EMPTY_STEPS.get(kind, 0.0), self._fastest.get(kind, 0.0))
        return Speed(min(bandwidth / max(weights_bytes, 1), most), prefill)


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _measured(values: Any) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for name, parts in values.items() if isinstance(values, dict) else ():
        if _are_speeds(parts, 3):
            found[name] = (float(parts[0]), float(parts[1]), float(parts[2]))
        elif _are_speeds(parts, 2):
            # Of a book from before the third was kept: the next prompt counts for all.
            found[name] = (float(parts[0]), float(parts[1]), 0.0)
    return found


def _pairs(values: Any) -> dict[str, tuple[float, float]]:
    found = values.items() if isinstance(values, dict) else ()
    return {name: (float(p[0]), float(p[1])) for name, p in found if _are_speeds(p, 2)}


def _numbers(values: Any) -> dict[str, float]:
    found = values.items() if isinstance(values, dict) else ()
    return {name: float(value) for name, value in found if _is_speed(value)}


def _are_speeds(values: Any, count: int) -> bool:
    return isinstance(values, list) and len(values) == count and all(map(_is_speed, values))


def _is_speed(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
