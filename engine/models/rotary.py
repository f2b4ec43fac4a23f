"""Frequencies of the rotary embedding, plain or scaled for longer contexts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from engine.models.config import ModelConfig, RopeValue, Rotations

_Values = Mapping[str, RopeValue]


@dataclass(frozen=True, slots=True)
class Frequencies:
    """``inv_freq``: ``[rotary_dim / 2]`` float64, radians a position. ``scale``: of cosine and
    sine."""

    inv_freq: Tensor
    scale: float = 1.0


def rotations(config: ModelConfig, max_positions: int) -> dict[Rotations, Frequencies]:
    """The frequencies of each rotation that some layer of the model has.

    No rotation is one pair that stands still: its cosine is 1 and its sine 0 at every position, so
    that all layers go through the same operations.
    """
    found: dict[Rotations, Frequencies] = {}
    for kind in sorted({config.rotation_of(layer) for layer in range(config.num_layers)}):
        if kind is Rotations.MAIN:
            found[kind] = frequencies(config, max_positions)
        elif kind is Rotations.LOCAL:
            assert config.local_rope_theta is not None, "that makes a rotation local"
            size = config.rotary_dim or config.head_dim
            found[kind] = Frequencies(plain_frequencies(config.local_rope_theta, size))
        else:
            found[kind] = Frequencies(torch.zeros(1, dtype=torch.float64))
    return found


def frequencies(config: ModelConfig, max_positions: int | None = None) -> Frequencies:
    """The model's frequencies as ``config.rope_scaling`` asks; its ``rope_type`` is known.

    ``max_positions``: of the longest sequence that will be computed; the model's own context if
    None. Only LongRoPE looks at it.
    """
    values = dict(config.rope_scaling)
    plain = plain_frequencies(config.rope_theta, config.rotary_dim or config.head_dim)
    if values.get("rope_type") == "longrope":
        return _longrope(plain, values, config, max_positions or config.context_length)
    return _SCALINGS[str(values.get("rope_type", "default"))](plain, values, config)


def plain_frequencies(theta: float, rotary_dim: int) -> Tensor:
    """``theta^(−2i / rotary_dim)`` (Su et al., 2021)."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim
    return torch.pow(theta, -exponents)


def _longrope(
    plain: Tensor, values: _Values, config: ModelConfig, max_positions: int
) -> Frequencies:
    """Each frequency divided by a number of its own, out of two lists (Ding et al., 2024).

    The list for short texts where no sequence can grow beyond the length that the model was
    trained with, the list for long texts otherwise, for every sequence: keys in the cache were
    rotated once and for all, and blocks are shared by conversations of any length. (llama.cpp
    chooses in the same way. transformers takes the short list until a sequence has outgrown that
    length and then computes all of it again; its answers to shorter prompts therefore differ from
    ours unless the context is limited to that length.)
    """
    length = _original_length(values, config)
    divisors = values["long_factor" if max_positions > length else "short_factor"]
    growth = _real(values, "factor", config.context_length / length)
    sharper = math.sqrt(1 + math.log(growth) / math.log(length)) if growth > 1.0 else 1.0
    return Frequencies(
        plain / torch.tensor(divisors, dtype=torch.float64),
        _real(values, "attention_factor", sharper),
    )


def _default(plain: Tensor, values: _Values, config: ModelConfig) -> Frequencies:
    return Frequencies(plain)


def _linear(plain: Tensor, values: _Values, config: ModelConfig) -> Frequencies:
    """Positions divided by the factor (Chen et al., 2023)."""
    return Frequencies(plain / _real(values, "factor"))


def _llama3(plain: Tensor, values: _Values, config: ModelConfig) -> Frequencies:
    """Slow frequencies divided, fast ones kept, those between blended (Llama 3.1)."""
    factor, low = _real(values, "factor"), _real(values, "low_freq_factor")
    high = _real(values, "high_freq_factor")
    turns = _original_length(values, config) * plain / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return Frequencies(plain * (kept + (1 - kept) / factor))


def _divisors(plain: Tensor, values: _Values, config: ModelConfig) -> Frequencies:
    """Each frequency divided by a number of its own: llama.cpp's form of llama3."""
    return Frequencies(plain / torch.tensor(values["divisors"], dtype=torch.float64))


def _yarn(plain: Tensor, values: _Values, config: ModelConfig) -> Frequencies:
    """As llama3, but blended over the dimensions, and with sharper scores (Peng et al., 2023)."""
    factor = _real(values, "factor")
    size = 2 * len(plain)

    def dimension(turns: float) -> float:
        """The dimension that turns that often over the original length."""
        length = _original_length(values, config) / (turns * 2 * math.pi)
        return size * math.log(length) / (2 * math.log(config.rope_theta))

    low = dimension(_real(values, "beta_fast", 32))
    high = dimension(_real(values, "beta_slow", 1))
    if values.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    place = torch.arange(len(plain), dtype=torch.float64)
    divided = ((place - low) / (high - low or 0.001)).clamp(0.0, 1.0)
    return Frequencies(plain * (divided / factor + 1 - divided), _yarn_scale(factor, values))


def _yarn_scale(factor: float, values: _Values) -> float:
    given = _real(values, "attention_factor", 0)
    if given:
        return given
    over, under = (_real(values, key, 0) for key in ("mscale", "mscale_all_dim"))
    log = 0.1 * math.log(max(factor, 1.0))
    return (over * log + 1) / (under * log + 1) if over and under else log + 1


def _original_length(values: _Values, config: ModelConfig) -> float:
    return _real(values, "original_max_position_embeddings", config.context_length)


def _real(values: _Values, key: str, default: float | None = None) -> float:
    value = values.get(key, default)
    assert isinstance(value, int | float), "checked when the configuration was read"
    return float(value)


_Scaling = Callable[[Tensor, _Values, ModelConfig], Frequencies]
_SCALINGS: Mapping[str, _Scaling] = MappingProxyType(
    {
        "default": _default,
        "linear": _linear,
        "llama3": _llama3,
        "yarn": _yarn,
        "divisors": _divisors,
    }
)
