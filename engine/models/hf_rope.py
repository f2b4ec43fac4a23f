"""The rotary embedding as a config.json describes it. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.models.config import RopeValue
from engine.models.families import ROPE_TYPES, Family
from engine.models.hf_refusals import unsupported

Scaling = tuple[tuple[str, RopeValue], ...]

_LENGTH = "original_max_position_embeddings"
_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "linear": ("factor",),
        "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
        "yarn": ("factor",),
        "divisors": ("divisors",),
    }
)
_OPTIONAL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "linear": (_LENGTH,),
        "divisors": (),
        "llama3": (_LENGTH,),
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
_WITHOUT_EFFECT = ("rope_theta", "rope_type", "type", "finetuned", "partial_rotary_factor")


def read_rope(values: Mapping[str, Any], family: Family) -> tuple[float, Scaling, float | None]:
    """Base and scaling, and the base of layers with a window where it is another.

    Newer files keep all in rope_parameters, older ones apart.

    Raises:
        ModelFileError: an entry is missing or makes no sense.
        UnsupportedModelError: a scaling that we do not know.
    """
    parameters = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(parameters, dict):
        raise ModelFileError(f"config.json gives {parameters!r} for the rotary embedding.")
    kinds = [key for key in parameters if key.endswith("_attention")]
    if not family.local_rope_theta:
        if kinds:
            raise unsupported("rotation that differs between layers", "rope_parameters")
        return *_one_rope(parameters, values), None
    local: Any = {}
    if kinds:
        local = parameters.get("sliding_attention") or {}
        parameters = parameters.get("full_attention") or {}
        if not isinstance(local, dict) or not isinstance(parameters, dict):
            raise ModelFileError("config.json gives no parameters for the rotary embedding.")
    theta, scaling = _one_rope(parameters, values)
    given = local.get("rope_theta", values.get("rope_local_base_freq"))
    local_values = {"rope_theta": family.local_rope_theta if given is None else given}
    local_theta, local_scaling = _one_rope({**local, **local_values}, values)
    if local_scaling:
        raise unsupported("a scaled rotation in layers with a window", "rope_parameters")
    return theta, scaling, local_theta


def _one_rope(parameters: dict[str, Any], values: Mapping[str, Any]) -> tuple[float, Scaling]:
    theta = parameters.get("rope_theta")
    theta = values.get("rope_theta") if theta is None else theta
    theta = 10000.0 if theta is None else theta
    _require_positive("rope_theta", theta)
    kind = str(parameters.get("rope_type") or parameters.get("type") or "default")
    if parameters.get("partial_rotary_factor") not in (None, 1):
        raise unsupported("rotation of a part of each head", "partial_rotary_factor")
    if kind not in ROPE_TYPES:
        raise UnsupportedModelError(
            f"The model scales its rotary embedding as {kind}; known: {', '.join(ROPE_TYPES)}.",
            action="Choose another model.",
            rope_type=kind,
        )
    if kind == "default":
        return float(theta), ()
    return float(theta), (("rope_type", kind), *_scaling(kind, parameters, values))


def _scaling(kind: str, parameters: dict[str, Any], values: Mapping[str, Any]) -> Scaling:
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
        elif key == "divisors":
            given[key] = _divisors(value, values)
        else:
            _require_positive(key, value)
    if kind == "llama3" and given["high_freq_factor"] <= given["low_freq_factor"]:
        raise ModelFileError(
            f"config.json gives high_freq_factor = {given['high_freq_factor']}, which must be more "
            f"than low_freq_factor = {given['low_freq_factor']}."
        )
    return tuple(sorted((key, value) for key, value in given.items()))


def _divisors(value: Any, values: Mapping[str, Any]) -> tuple[float, ...]:
    half = values.get("head_dim", 0) // 2
    if not isinstance(value, list) or len(value) != half:
        raise ModelFileError(
            f"config.json must divide each of {half} rotary frequencies by a number of its own."
        )
    for number in value:
        _require_positive("divisors", number)
    return tuple(float(number) for number in value)


def _require_positive(key: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 < float(value) < float("inf"):  # type: ignore[arg-type]
        raise ModelFileError(f"config.json gives {key} = {value!r}; a number above 0 makes sense.")
