"""Sampling settings that go together, by name. Qt-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from engine.api.params import GREEDY, SamplingParams

PRECISE, BALANCED, CREATIVE, LIKELIEST = "precise", "balanced", "creative", "greedy"

PRESETS: Mapping[str, SamplingParams] = MappingProxyType(
    {
        PRECISE: SamplingParams(temperature=0.3, top_p=0.9, min_p=0.05),
        BALANCED: SamplingParams(),
        CREATIVE: SamplingParams(temperature=1.1, min_p=0.05, presence_penalty=0.3),
        LIKELIEST: GREEDY,
    }
)
"""Only how words are chosen; seed, length and stop strings are kept."""

_OWN = ("max_tokens", "seed", "stop", "ignore_eos", "logprobs")


def with_preset(params: SamplingParams, name: str) -> SamplingParams:
    """``params`` with the words chosen as preset ``name`` does. Raises KeyError."""
    return replace(PRESETS[name], **{field: getattr(params, field) for field in _OWN})


def preset_of(params: SamplingParams) -> str:
    """The preset that ``params`` chooses words by, or empty."""
    return next((name for name in PRESETS if with_preset(params, name) == params), "")
