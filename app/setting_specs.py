"""Every setting that the window shows: its kind, its range, and what a typed text means."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.i18n import tr
from app.settings import CHOICES, MAX_FONT_SIZE, MAX_IDLE_MINUTES, MIN_FONT_SIZE
from engine.api.params import MAX_RUNNING_REQUESTS, UINT64_MAX


class Kind(StrEnum):
    """``LINES``: a list of texts, one a line, in which \\n stands for a new line. ``BYTES``: a
    size with its unit. ``PERCENT``: a share of 1.
    """

    CHOICE = "choice"
    SWITCH = "switch"
    WHOLE = "whole"
    NUMBER = "number"
    PERCENT = "percent"
    BYTES = "bytes"
    TEXT = "text"
    LINES = "lines"
    FONT = "font"


class Effect(StrEnum):
    """When a changed value counts."""

    AT_ONCE = "at_once"
    NEW_CONVERSATIONS = "new_conversations"
    NEXT_ANSWER = "next_answer"
    NEXT_LOAD = "next_load"


class Section(StrEnum):
    APPEARANCE = "appearance"
    CONVERSATIONS = "conversations"
    SAMPLING = "sampling"
    ENGINE = "engine"


class InvalidTextError(ValueError):
    """What was typed cannot be the value; the message says why, in the user's language."""


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """``path``: a field of ``Values``, or of its ``sampling`` or ``engine``.

    ``low`` and ``high``: the range, ``low`` itself left out if ``above``. ``optional``: empty means
    none, or the engine's own choice.
    """

    path: str
    section: Section
    kind: Kind
    effect: Effect = Effect.AT_ONCE
    low: float | None = None
    high: float | None = None
    above: bool = False
    optional: bool = False
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> Any:
        """The value that ``text`` stands for.

        Raises:
            InvalidTextError: none, or one out of range.
        """
        text = text.strip() if self.kind is not Kind.LINES else text
        match self.kind:
            case Kind.LINES:
                return tuple(_unescaped(line) for line in text.splitlines() if line)
            case Kind.TEXT | Kind.FONT | Kind.CHOICE:
                return text
            case Kind.SWITCH:
                return text == "true"
        if not text and self.optional:
            return None
        value = _number(text, self.kind)
        if not self._is_in_range(value):
            raise InvalidTextError(self.range_words())
        return int(value) if self.kind in (Kind.WHOLE, Kind.BYTES) else float(value)

    def show(self, value: Any) -> str:
        """The text that ``parse`` takes back to ``value``."""
        if value is None:
            return ""
        match self.kind:
            case Kind.LINES:
                return "\n".join(_escaped(line) for line in value)
            case Kind.SWITCH:
                return "true" if value else "false"
            case Kind.BYTES:
                return _size_text(value)
            case Kind.PERCENT:
                return f"{value * 100:.10g} %"
            case Kind.NUMBER:
                return f"{value:.10g}"
        return str(value)

    def range_words(self) -> str:
        """What may be typed, in a sentence."""
        if self.kind is Kind.BYTES:
            return tr("A size such as 512 MB or 4 GB, or nothing.")
        unit = " %" if self.kind is Kind.PERCENT else ""
        scale = 100 if self.kind is Kind.PERCENT else 1
        low = "" if self.low is None else f"{self.low * scale:g}{unit}"
        high = "" if self.high is None else f"{self.high * scale:,.10g}{unit}"
        if self.high == UINT64_MAX:
            high = f"{UINT64_MAX:,}"
        whole = self.kind is Kind.WHOLE
        if not high:
            words = tr("A whole number from {low}", low=low) if whole else _above_words(low)
        elif self.above:
            words = tr("A number above {low}, up to {high}", low=low, high=high)
        elif whole:
            words = tr("A whole number from {low} to {high}", low=low, high=high)
        else:
            words = tr("A number from {low} to {high}", low=low, high=high)
        return tr("{range}, or nothing.", range=words) if self.optional else f"{words}."

    def _is_in_range(self, value: int | float) -> bool:
        if self.low is not None and (value < self.low or (self.above and value == self.low)):
            return False
        return self.high is None or value <= self.high


def _above_words(low: str) -> str:
    return tr("A number above {low}", low=low)


_SIZES: Mapping[str, int] = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_SIZE = re.compile(r"([0-9.,]+)\s*([kmg]?i?b?)", re.IGNORECASE)


def _number(text: str, kind: Kind) -> int | float:
    if kind is Kind.BYTES:
        return _size(text)
    plain = text.replace("%", "").strip() if kind is Kind.PERCENT else text
    # Digits grouped with commas, as the window shows them.
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", plain):
        plain = plain.replace(",", "")
    try:
        if kind is Kind.WHOLE:
            return int(plain)
        value = float(plain)
    except ValueError:
        whole = kind is Kind.WHOLE
        words = (
            tr("“{typed}” is not a whole number.") if whole else tr("“{typed}” is not a number.")
        )
        raise InvalidTextError(words.format(typed=text)) from None
    if not math.isfinite(value):
        raise InvalidTextError(tr("“{typed}” is not a number.", typed=text))
    return value / 100 if kind is Kind.PERCENT else value


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        unit = found[2].lower().replace("i", "")
        if unit and not unit.endswith("b"):
            unit += "b"
        return round(float(found[1].replace(",", "")) * _SIZES[unit])
    except ValueError:
        words = tr("“{typed}” is not a size; write 512 MB or 4 GB.", typed=text)
        raise InvalidTextError(words) from None


def _size_text(value: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if value >= size and value % (size // 1024 or 1) == 0:
            return f"{value / size:.10g} {unit}"
    return f"{value} B"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _unescaped(text: str) -> str:
    known = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}
    return re.sub(r"\\[nt\\]", lambda found: known[found[0]], text)


def _appearance() -> list[SettingSpec]:
    section, choice = Section.APPEARANCE, Kind.CHOICE
    return [
        SettingSpec("theme", section, choice, choices=CHOICES["theme"]),
        SettingSpec("language", section, choice, choices=CHOICES["language"]),
        SettingSpec("density", section, choice, choices=CHOICES["density"]),
        SettingSpec("font_family", section, Kind.FONT),
        SettingSpec("font_size", section, Kind.NUMBER, low=MIN_FONT_SIZE, high=MAX_FONT_SIZE),
        SettingSpec("code_font_family", section, Kind.FONT),
    ]


def _conversations() -> list[SettingSpec]:
    section, new = Section.CONVERSATIONS, Effect.NEW_CONVERSATIONS
    return [
        SettingSpec("overflow", section, Kind.CHOICE, new, choices=CHOICES["overflow"]),
        SettingSpec("notify_when_done", section, Kind.SWITCH),
    ]


def _sampling() -> list[SettingSpec]:
    def number(name: str, low: float, high: float, above: bool = False) -> SettingSpec:
        path = f"sampling.{name}"
        return SettingSpec(
            path, section, Kind.NUMBER, Effect.NEXT_ANSWER, low=low, high=high, above=above
        )

    def whole(name: str, low: int, high: int | None, optional: bool) -> SettingSpec:
        path = f"sampling.{name}"
        return SettingSpec(
            path, section, Kind.WHOLE, Effect.NEXT_ANSWER, low=low, high=high, optional=optional
        )

    section = Section.SAMPLING
    return [
        number("temperature", 0.0, 100.0),
        whole("top_k", 0, None, False),
        number("top_p", 0.0, 1.0),
        number("min_p", 0.0, 1.0),
        number("repetition_penalty", 0.0, 100.0, above=True),
        number("presence_penalty", -10.0, 10.0),
        number("frequency_penalty", -10.0, 10.0),
        whole("max_tokens", 1, None, True),
        whole("seed", 0, UINT64_MAX, True),
        SettingSpec("sampling.stop", section, Kind.LINES, Effect.NEXT_ANSWER),
    ]


BACKENDS = ("auto", "dense", "contiguous", "paged_reference", "paged_triton")
DTYPES = ("auto", "float32", "float16", "bfloat16", "float64")
DEVICES = ("auto", "cpu", "cuda")
WEIGHTS = ("auto", "packed", "expanded")


def _engine() -> list[SettingSpec]:
    section, once, load = Section.ENGINE, Effect.AT_ONCE, Effect.NEXT_LOAD

    def of(name: str, kind: Kind, effect: Effect, **more: Any) -> SettingSpec:
        return SettingSpec(f"engine.{name}", section, kind, effect, **more)

    return [
        SettingSpec("idle_unload_minutes", section, Kind.WHOLE, low=0, high=MAX_IDLE_MINUTES),
        SettingSpec("hub_endpoint", section, Kind.TEXT),
        of("kv_cache_bytes", Kind.BYTES, load, low=1, optional=True),
        of("num_blocks", Kind.WHOLE, load, low=1, optional=True),
        of("gpu_memory_utilization", Kind.PERCENT, load, low=0.0, high=1.0, above=True),
        of("block_size", Kind.WHOLE, load, low=8, high=256),
        of("max_model_len", Kind.WHOLE, load, low=1, optional=True),
        of("max_running_requests", Kind.WHOLE, once, low=1, high=MAX_RUNNING_REQUESTS),
        of("token_budget", Kind.WHOLE, once, low=1),
        of("watermark", Kind.PERCENT, once, low=0.0, high=0.99),
        of("prefill_time_budget_ms", Kind.NUMBER, once, low=0.0, above=True, optional=True),
        of("least_prefill_tokens", Kind.WHOLE, once, low=1, optional=True),
        of("prefix_caching", Kind.SWITCH, once),
        of("backend", Kind.CHOICE, once, choices=BACKENDS),
        of("deterministic", Kind.SWITCH, load),
        of("shared_prefix_decode", Kind.SWITCH, load),
        of("device", Kind.CHOICE, load, choices=DEVICES),
        of("dtype", Kind.CHOICE, load, choices=DTYPES),
        of("weights", Kind.CHOICE, load, choices=WEIGHTS),
        of("lag", Kind.WHOLE, once, low=0, high=1, optional=True),
        of("num_threads", Kind.WHOLE, load, low=1, optional=True),
        of("cache_salt", Kind.TEXT, once),
    ]


SPECS: tuple[SettingSpec, ...] = (
    *_appearance(),
    *_conversations(),
    *_sampling(),
    *_engine(),
)


def specs_of(section: Section) -> list[SettingSpec]:
    """The settings of one section, in the order that they are shown in."""
    return [spec for spec in SPECS if spec.section is section]
