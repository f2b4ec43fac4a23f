"""How the arguments of a Triton kernel become the bytes that the NVIDIA driver hands to it.

As the launchers in C do it that Triton 3.6 writes.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

CONSTANT = "constexpr"
"""In place of a type: an argument that is compiled into the kernel."""


class Field(NamedTuple):
    """How a parameter of some type is written."""

    code: str
    """Of ``struct``; a whole slot."""

    convert: Callable[[Any], Any] | None = None
    """Makes of an argument what ``struct`` takes; None: it takes the argument."""

    shift: int = 0
    """Bytes from the slot's beginning to the parameter."""


def _wrapped(bits: int) -> Callable[[Any], int]:
    """A number modulo 2**bits, as C makes an unsigned one of it."""
    mask = (1 << bits) - 1
    return lambda value: operator.index(value) & mask


def _rounded(value: Any) -> float:
    """To float32; what is too large becomes infinite, where ``struct`` would refuse it."""
    return ctypes.c_float(value).value


def _address(value: Any) -> int:
    """Of a pointer argument: what has memory on a device, an address, or None."""
    try:
        address: int = value.data_ptr()
    except AttributeError:
        if value is None:
            return 0
        if isinstance(value, int):
            return value
        kind = type(value).__name__
        raise TypeError(f"a kernel wants a tensor or an address, and gets {kind}") from None
    return address


POINTER = Field("Q", _address)
_FIELDS = {
    # Signed bytes are given as what they are without their sign, as to Triton's own launcher.
    "i1": Field("B7x"),
    "i8": Field("B7x"),
    "i16": Field("h6x"),
    "i32": Field("i4x"),
    "i64": Field("q"),
    "u1": Field("B7x", _wrapped(8)),
    "u8": Field("B7x", _wrapped(8)),
    "u16": Field("H6x", _wrapped(16)),
    "u32": Field("I4x", _wrapped(32)),
    "u64": Field("Q", _wrapped(64)),
    "fp16": Field("e6x"),
    # The upper half of the float32, the rest cut off: that is how Triton makes one.
    "bf16": Field("f4x", _rounded, shift=2),
    "fp32": Field("f4x", _rounded),
    "f32": Field("f4x", _rounded),
    "fp64": Field("d"),
}


def flat(signature: Sequence[Any], items: Sequence[Any]) -> Iterator[Any]:
    """The items one by one, where the signature has tuples those in them."""
    for kind, item in zip(signature, items, strict=True):
        if isinstance(kind, tuple):
            yield from flat(kind, item)
        else:
            yield item


def field_of(kind: str) -> Field:
    """Of an argument of a type, as Triton names it.

    Raises:
        NotImplementedError: it cannot be passed; tensor descriptors are such.
    """
    field = POINTER if kind.startswith("*") else _FIELDS.get(kind)
    if field is None:
        raise NotImplementedError(
            f"a kernel has an argument of type {kind}, which cannot be passed without a C compiler "
            "to this version of Triton"
        )
    return field
