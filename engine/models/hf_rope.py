"""The rotary embedding as a config.json describes it. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.models.config import RopeValue
from engine.models.families import ROPE_TYPES, Family
from engine.models.hf_refusals import unsupported

Scaling = tuple[tuple[str, RopeValue], ...]

_LENGTH = "original_max_position_embeddings"
_PART = "partial_rotary_factor"
_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "linear": ("factor",),
        "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
        "yarn": ("factor",),
        "longrope": ("short_factor", "long_factor"),
        "divisors": ("divisors",),
    }
)
_OPTIONAL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "linear": (_LENGTH,),
        "divisors": (),
        "llama3": (_LENGTH,),
        "longrope": (_LENGTH, "attention_factor", "factor"),
        "yarn": (
            _LENGTH,
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        ),
    }
)
# Notes of whoever extended the model, and what is looked at elsewhere.
_WITHOUT_EFFECT = ("rope_theta", "rope_type", "type", "finetuned", _PART)
_LISTS = ("divisors", "short_factor", "long_factor")


@dataclass(frozen=True, slots=True)
class Rope:
    """``theta``, ``scaling``: base and scaling. ``local_theta``: the base in layers with a window
    where it is another. ``rotary_dim``: how much of a head is rotated; None for all.
    ``unrotated_layers``: indices of the layers that do not rotate.
    """

    theta: float
    scaling: Scaling
    local_theta: float | None
    rotary_dim: int | None
    unrotated_layers: tuple[int, ...]


def read_rope(values: Mapping[str, Any], family: Family, head_dim: int, num_layers: int) -> Rope:
    """The rotary embedding of a model.

    Newer files keep all in rope_parameters, older ones apart.

    Raises:
        ModelFileError: an entry is missing or makes no sense.
        UnsupportedModelError: a scaling that we do not know.
    """
    parameters = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(parameters, dict):
        raise ModelFileError(f"config.json gives {parameters!r} for the rotary embedding.")
    kinds = [key for key in parameters if key.endswith("_attention")]
    if kinds and not family.local_rope_theta:
        raise unsupported("rotation that differs between layers", "rope_parameters")
    local: Any = {}
    if kinds:
        local = parameters.get("sliding_attention") or {}
        parameters = parameters.get("full_attention") or {}
        if not isinstance(local, dict) or not isinstance(parameters, dict):
            raise ModelFileError("config.json gives no parameters for the rotary embedding.")
    rotary_dim = _rotary_dim(parameters, values, family, head_dim)
    theta, scaling = _one_rope(parameters, values, family, rotary_dim or head_dim)
    local_theta = None
    if family.local_rope_theta:
        local_theta = _local_theta(local, values, family, head_dim)
    unrotated = _unrotated_layers(values, num_layers) if _lists_layers(family) else ()
    return Rope(theta, scaling, local_theta, rotary_dim, unrotated)


def _local_theta(
    local: dict[str, Any], values: Mapping[str, Any], family: Family, head_dim: int
) -> float:
    given = local.get("rope_theta", values.get("rope_local_base_freq"))
    local_values = {"rope_theta": family.local_rope_theta if given is None else given}
    theta, scaling = _one_rope({**local, **local_values}, values, family, head_dim)
    if scaling:
        raise unsupported("a scaled rotation in layers with a window", "rope_parameters")
    return theta


def _rotary_dim(
    parameters: dict[str, Any], values: Mapping[str, Any], family: Family, head_dim: int
) -> int | None:
    factor = parameters.get(_PART)
    factor = values.get(_PART) if factor is None else factor
    if factor is None or factor == 1:
        return None
    if _PART not in family.own_entries:
        raise unsupported("rotation of a part of each head", _PART)
    _require_positive(_PART, factor)
    size = int(head_dim * factor)
    if not 2 <= size < head_dim or size % 2:
        raise ModelFileError(
            f"config.json gives {_PART} = {factor!r}, which is {size} of a head's {head_dim} "
            "elements: an even number of them makes sense."
        )
    return size


def _lists_layers(family: Family) -> bool:
    return "no_rope_layers" in family.own_entries


def _unrotated_layers(values: Mapping[str, Any], num_layers: int) -> tuple[int, ...]:
    """A list with 1 for each layer that rotates, or each n-th layer does not."""
    flags = values.get("no_rope_layers")
    if flags is None:
        interval = values.get("no_rope_layer_interval")
        if not isinstance(interval, int) or isinstance(interval, bool) or interval < 1:
            raise ModelFileError(
                f"config.json gives no_rope_layer_interval = {interval!r}; 1 or more."
            )
        return tuple(range(interval - 1, num_layers, interval))
    known = isinstance(flags, list) and all(flag in (0, 1) for flag in flags)
    if not known or len(flags) < num_layers:
        raise ModelFileError(
            f"config.json must give 0 or 1 in no_rope_layers for each of {num_layers} layers."
        )
    return tuple(index for index in range(num_layers) if not flags[index])


def _one_rope(
    parameters: dict[str, Any], values: Mapping[str, Any], family: Family, rotary_dim: int
) -> tuple[float, Scaling]:
    theta = parameters.get("rope_theta")
    theta = values.get("rope_theta") if theta is None else theta
    theta = 10000.0 if theta is None else theta
    _require_positive("rope_theta", theta)
    kind = str(parameters.get("rope_type") or parameters.get("type") or "default")
    kind = dict(family.rope_names).get(kind, kind)
    if kind not in ROPE_TYPES:
        raise UnsupportedModelError(
            f"The model scales its rotary embedding as {kind}; known: {', '.join(ROPE_TYPES)}.",
            action="Choose another model.",
            rope_type=kind,
        )
    if kind == "default":
        return float(theta), ()
    scaling = _scaling(kind, parameters, values, rotary_dim // 2)
    return float(theta), (("rope_type", kind), *scaling)


def _scaling(
    kind: str, parameters: dict[str, Any], values: Mapping[str, Any], num_frequencies: int
) -> Scaling:
    needed, optional = _NEEDED[kind], _OPTIONAL[kind]
    given = {
        key: value
        for key, value in parameters.items()
        if key not in _WITHOUT_EFFECT and value is not None
    }
    if _LENGTH in optional and values.get(_LENGTH) is not None:
        given[_LENGTH] = values[_LENGTH]
    missing = [key for key in needed if key not in given]
    if missing:
        raise ModelFileError(
            f"config.json scales the rotary embedding as {kind} without {missing[0]}.",
            rope_type=kind,
        )
    for key, value in list(given.items()):
        if key not in needed and key not in optional:
            raise unsupported(f"{key} in its rotary embedding of the kind {kind}", key)
        if key == "truncate":
            if not isinstance(value, bool):
                raise ModelFileError(f"config.json gives truncate = {value!r}; true or false.")
        elif key in _LISTS:
            given[key] = _divisors(key, value, num_frequencies)
        else:
            _require_positive(key, value)
    if kind == "llama3" and given["high_freq_factor"] <= given["low_freq_factor"]:
        raise ModelFileError(
            f"config.json gives high_freq_factor = {given['high_freq_factor']}, which must be more "
            f"than low_freq_factor = {given['low_freq_factor']}."
        )
    return tuple(sorted((key, value) for key, value in given.items()))


def _divisors(key: str, value: Any, num_frequencies: int) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or len(value) != num_frequencies:
        raise ModelFileError(
            f"config.json must divide each of {num_frequencies} rotary frequencies by a number of "
            f"its own ({key})."
        )
    for number in value:
        _require_positive(key, number)
    return tuple(float(number) for number in value)


def _require_positive(key: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 < float(value) < float("inf"):  # type: ignore[arg-type]
        raise ModelFileError(f"config.json gives {key} = {value!r}; a number above 0 makes sense.")
