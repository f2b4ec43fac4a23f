"""Runs code from a model's file, its chat template, within limits of time and memory.

Jinja's sandbox keeps a template away from the program. It does not keep it from never ending, or
from filling the memory: a loop that calls nothing, text doubled forty times, ``'x'.ljust(10**9)``,
a list that holds itself twice, forty times over. So every loop, call, filter, operator, slice and
display of a list is led past a check here, before the memory is asked for where that can be known.
"""

from __future__ import annotations

import functools
import re
import string
import sys
import time
from collections.abc import Callable, Collection, Sized
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from engine.template_nodes import SHORT_TEXT, guard_nodes
from engine.template_weights import Weights

TIME_LIMIT_S = 2.0
"""A template renders in milliseconds; one that takes this long would never end."""

MAX_CHARS = 64_000_000
"""More text than any context holds."""

MAX_BYTES = 512 << 20
"""Of everything that a template makes in one go."""

_MAX_ITEMS = 1_000_000
_MAX_BITS = 4_096
_MAX_WIDTH = 10_000
_WIDE_METHODS = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs"})
_WIDE_FILTERS = frozenset(
    {"center", "indent", "truncate", "batch", "slice", "round", "tojson", "format"}
)
_REFUSED_METHODS = frozenset(
    {"translate", "maketrans", "format_map", "to_bytes", "from_bytes", "encode", "decode"}
)
# They run for long on some texts, or have no use where no web page is made.
_REFUSED_FILTERS = ("urlize", "striptags", "wordwrap", "pprint", "xmlattr", "filesizeformat")


_FAR = re.compile(r"\d{5}")
_FAR_CONVERSION = re.compile(r"%[^a-zA-Z%]*(\*|\d{5})")


class LimitError(jinja2.TemplateError):
    """The template took too long or wrote too much."""


class TemplateSandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Jinja's strict environment with a budget. One thread uses it at a time."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, extensions: list[Any]) -> None:
        self._deadline = 0.0
        self._spent = 0
        self._weights = Weights(MAX_CHARS)
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=self.account
        )
        del self.globals["lipsum"]
        for name in _REFUSED_FILTERS:
            del self.filters[name]
        self.guard_filters()

    def guard_filters(self) -> None:
        """To be called once more when filters have been added."""
        for name, function in self.filters.items():
            if not hasattr(function, "is_guarded"):
                self.filters[name] = self._guarded(name, function)

    def begin(self) -> None:
        """A new budget."""
        self._deadline = time.monotonic() + TIME_LIMIT_S
        self._spent = 0
        self._weights = Weights(MAX_CHARS)

    def end(self) -> None:
        """What was made can be forgotten."""
        self._weights = Weights(MAX_CHARS)

    # --- what compiled templates call ---

    @property
    def tick(self) -> None:
        """A round of a loop, or a call of a macro, with at most ``SHORT_TEXT`` of plain text."""
        self.check_deadline()
        self._spend(SHORT_TEXT)

    def count_text(self, num_chars: int) -> None:
        """A round, or a call, with so much plain text."""
        self._spend(num_chars)

    def account(self, value: Any) -> Any:
        """Counts what was made, and gives it back.

        Raises:
            LimitError: it is too much.
        """
        if type(value) is str:
            num_chars = len(value)
            self._spend(num_chars if num_chars < SHORT_TEXT else sys.getsizeof(value))
        elif isinstance(value, str | bytes):
            self._spend(sys.getsizeof(value))
        elif isinstance(value, list | tuple | dict):
            self._spend(sys.getsizeof(value))
            if not self._weights.take(value):
                raise LimitError("it makes lists too large or too deep")
        elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise LimitError("it makes numbers of thousands of digits")
        return value

    def join_text(self, *parts: Any) -> Any:
        """``a ~ b``."""
        texts = [part if type(part) is str else str(self.account(part)) for part in parts]
        self._require(sum(map(len, texts)))
        return self.account("".join(texts))

    def make_list(self, *items: Any) -> Any:
        """``[a, b]``."""
        return self.account(list(items))

    def make_tuple(self, *items: Any) -> Any:
        """``(a, b)``."""
        return self.account(items)

    def make_dict(self, *items: Any) -> Any:
        """``{a: b}``: keys and values in turn."""
        return self.account(dict(zip(items[::2], items[1::2], strict=True)))

    def take_slice(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """``value[start:stop:step]``."""
        return self.account(value[start:stop:step])

    # --- what the sandbox calls ---

    def check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise LimitError(f"it took longer than {TIME_LIMIT_S:.0f} s")

    def _generate(self, source: jinja2.nodes.Template, *args: Any, **options: Any) -> str:
        return super()._generate(guard_nodes(source, self), *args, **options)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.check_deadline()
        # The sandbox wraps str.format.
        method = getattr(obj, "__wrapped__", obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str | bytes | int | list | dict | tuple):
            self._check_method(method.__name__, owner, args, kwargs)
        result = super().call(context, obj, *args, **kwargs)
        return result if owner is self else self.account(result)

    def getattr(self, obj: Any, attribute: str) -> Any:
        self.check_deadline()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.check_deadline()
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.check_deadline()
        if operator == "+" and type(left) is str and type(right) is str:
            self._require(len(left) + len(right))
            return self.account(left + right)
        if operator == "%" and isinstance(left, str | bytes):
            raise LimitError("it formats text with %, which is not allowed")
        if operator == "**" and not (_is_within(left, 1_000) and _is_within(right, 100)):
            raise LimitError("it asks for a power of large numbers")
        if operator == "*":
            self._check_repetition(left, right)
        if operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
            self._require(len(left) + len(right))
        return self.account(super().call_binop(context, operator, left, right))

    # --- limits ---

    def _spend(self, num_bytes: int) -> None:
        self._spent += num_bytes
        if self._spent > MAX_BYTES:
            raise LimitError(f"it made more than {MAX_BYTES >> 20:,} MiB of text and lists")

    def _require(self, num_chars: int) -> None:
        if num_chars > MAX_CHARS:
            raise LimitError(f"it makes text of more than {MAX_CHARS:,} characters")

    def _check_repetition(self, left: Any, right: Any) -> None:
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, Sized) and isinstance(count, int):
                length = len(sequence) * count
                if isinstance(sequence, str | bytes):
                    self._require(length)
                elif length > _MAX_ITEMS:
                    raise LimitError(f"it repeats a list to more than {_MAX_ITEMS:,} items")
        if isinstance(left, int) and isinstance(right, int) and _num_bits(left, right) > _MAX_BITS:
            raise LimitError("it makes numbers of thousands of digits")

    def _check_method(self, name: str, owner: Any, args: Any, kwargs: Any) -> None:
        if name in _REFUSED_METHODS:
            raise LimitError(f"it calls {name}, which is not allowed")
        if name in _WIDE_METHODS:
            _check_widths(name, args, kwargs)
        if name == "format" and isinstance(owner, str):
            _check_fields(owner)
        if name == "expandtabs":
            self._require(len(owner) + owner.count("\t") * _MAX_WIDTH)
        if name == "replace":
            self._check_replacement(owner, *args[:2])
        if name == "join" and args:
            self._check_join(owner, args[0])

    def _check_replacement(self, text: Any, old: Any = "", new: Any = "") -> None:
        if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
            found = text.count(old) if old else len(text) + 1
            self._require(len(text) + found * max(len(new) - len(old), 0))

    def _check_join(self, between: Any, items: Any) -> None:
        if isinstance(items, Collection) and isinstance(between, str):
            own = sum(len(item) for item in items if isinstance(item, str))
            self._require(own + len(items) * len(between))

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.check_deadline()
            if name == "join" and not isinstance(args[skipped], Sized):
                # What comes one by one: only all of it together has a length.
                args = (*args[:skipped], list(args[skipped]), *args[skipped + 1 :])
            self._check_filter(name, args[skipped:], kwargs)
            return self.account(function(*args, **kwargs))

        guarded.is_guarded = True  # type: ignore[attr-defined]
        return guarded

    def _check_filter(self, name: str, args: Any, kwargs: Any) -> None:
        value, others = args[0], args[1:]
        if name in _WIDE_FILTERS:
            _check_widths(name, others, kwargs)
        if name == "format" and _FAR_CONVERSION.search(str(value)):
            raise LimitError("it formats text to a width that is too large or computed")
        if name == "indent":
            self._require(len(str(value)) + str(value).count("\n") * _width_of(others, kwargs))
        if name == "replace":
            named = (kwargs.get("old", ""), kwargs.get("new", ""))
            self._check_replacement(value, *(others or named)[:2])
        if name == "join":
            self._check_join((*others, kwargs.get("d", ""))[0], value)
        start = (*others[1:], kwargs.get("start", 0))[0]
        if name == "sum" and not isinstance(start, int | float):
            raise LimitError("it adds up what is no number")


def _is_within(value: Any, limit: int) -> bool:
    return isinstance(value, int | float) and abs(value) <= limit


def _num_bits(left: int, right: int) -> int:
    return left.bit_length() + right.bit_length()


def _width_of(args: Any, kwargs: Any) -> int:
    width = (*args, kwargs.get("width", 4))[0]
    return width if isinstance(width, int) else len(str(width))


def _check_widths(name: str, args: Any, kwargs: Any) -> None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, int | float) and abs(value) > _MAX_WIDTH:
            raise LimitError(f"it asks {name} for {value:,}")


def _check_fields(text: str) -> None:
    """Widths in the fields of a text that ``str.format`` is to fill."""
    try:
        specs = [spec or "" for _, _, spec, _ in string.Formatter().parse(text)]
    except ValueError:
        return  # formatting will say what is wrong
    if any("{" in spec or _FAR.search(spec) for spec in specs):
        raise LimitError("it formats text to a width that is too large or computed")
