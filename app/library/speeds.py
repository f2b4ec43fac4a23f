"""How fast models have been here, and how fast another one would be.

Reading one token's weights is what a step of decoding one conversation waits for, so that
tokens/s ≈ bandwidth / bytes of the weights; prefill multiplies, so that its speed goes with
1 / parameters. Both are taken from answers on the same device, and only say *about*.

What a step costs besides lets a small model read more slowly than the device could: it says little
of a large one, whose answers are believed first. And however small a model is, it is not faster
than steps that read next to nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.stored_json import stored_object
from engine.api.events import ModelInfo, RequestUsage

MIN_OUTPUT_TOKENS = 8
MIN_PREFILL_TOKENS = 32
_KEPT_MODELS = 200
_MUCH_SMALLER = 0.5
_EMPTY_STEPS = {"cpu": (500.0, 100_000.0), "cuda": (2500.0, 1_000_000.0)}
"""Decode and prefill, tokens a second, of a model of a few thousand parameters: 2 ms a step on two
cores, 0.4 ms of the host's on an H200. A device on which anything ran faster is believed.
"""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of one conversation; 0 where it is not known. ``is_measured``: of this very
    model, not worked out from another's.
    """

    decode: float = 0.0
    prefill: float = 0.0
    is_measured: bool = False


class SpeedBook:
    """Kept as one JSON text. ``save`` is called with it after each change."""

    def __init__(self, stored: str, save: Callable[[str], None]) -> None:
        """``stored``: what ``save`` was called with last; anything else counts as nothing."""
        values = stored_object(stored)
        self._save = save
        self._models = _pairs(values.get("models"))
        self._devices = _pairs(values.get("devices"))
        self._sizes = _pairs(values.get("sizes"))
        self._fastest = _pairs(values.get("fastest"))

    def note(self, model: ModelInfo, usage: RequestUsage, ran_alone: bool) -> None:
        """An answer has ended.

        Only answers that ran alone tell the speed of decoding; of the others the prefill counts.
        """
        decode, prefill = self._models.get(model.path, (0.0, 0.0))
        decode_s = usage.total_s - usage.ttft_s
        if ran_alone and usage.output_tokens >= MIN_OUTPUT_TOKENS and decode_s > 0.0:
            decode = (usage.output_tokens - 1) / decode_s
        if usage.computed_tokens >= MIN_PREFILL_TOKENS and usage.prefill_s > 0.0:
            prefill = usage.computed_tokens / usage.prefill_s
        if (decode, prefill) == self._models.get(model.path, (0.0, 0.0)):
            return
        self._models.pop(model.path, None)
        self._models[model.path] = (decode, prefill)
        while len(self._models) > _KEPT_MODELS:
            del self._models[next(iter(self._models))]
        self._note_device(model, decode, prefill)
        values = {"models": self._models, "devices": self._devices, "sizes": self._sizes}
        self._save(json.dumps(values | {"fastest": self._fastest}, ensure_ascii=False))

    def _note_device(self, model: ModelInfo, decode: float, prefill: float) -> None:
        """Bytes a second of decoding and parameters times tokens of prefill, as the largest model
        showed them, or a smaller one that got more out of the device.
        """
        kind = _kind(model.device)
        best = list(self._devices.get(kind, (0.0, 0.0)))
        sizes = list(self._sizes.get(kind, (0.0, 0.0)))
        now = ((decode, model.weights_bytes), (prefill, model.num_parameters))
        for n, (speed, size) in enumerate(now):
            if speed and (size >= _MUCH_SMALLER * sizes[n] or speed * size > best[n]):
                best[n], sizes[n] = speed * size, float(size)
        self._devices[kind], self._sizes[kind] = (best[0], best[1]), (sizes[0], sizes[1])
        fastest = self._fastest.get(kind, (0.0, 0.0))
        self._fastest[kind] = max(fastest[0], decode), max(fastest[1], prefill)

    def of(self, path: str, device: str, weights_bytes: int, num_parameters: int) -> Speed:
        """The speed of a model: measured, else worked out from others on that device."""
        measured = self._models.get(path)
        if measured is not None and all(measured):
            return Speed(*measured, is_measured=True)
        kind = _kind(device)
        bandwidth, compute = self._devices.get(kind, (0.0, 0.0))
        known, fastest = _EMPTY_STEPS.get(kind, (0.0, 0.0)), self._fastest.get(kind, (0.0, 0.0))
        decode, prefill = measured or (0.0, 0.0)
        return Speed(
            decode or min(bandwidth / max(weights_bytes, 1), max(known[0], fastest[0])),
            prefill or min(compute / max(num_parameters, 1), max(known[1], fastest[1])),
        )


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _pairs(values: Any) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for name, pair in values.items() if isinstance(values, dict) else ():
        if isinstance(pair, list) and len(pair) == 2 and all(_is_speed(part) for part in pair):
            found[name] = (float(pair[0]), float(pair[1]))
    return found


def _is_speed(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
