"""Planting a fault: one line of the real code replaced while a block runs."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """``old`` in the source of ``owner.name`` becomes ``new``.

    ``owner``: a class, or a module for a function that is looked up in it.
    """

    owner: Any
    name: str
    old: str
    new: str


@contextmanager
def planted(*faults: Fault) -> Iterator[None]:
    """The code with these faults in it. Fails if a line to replace is not there exactly once, so
    that a fault cannot silently stop being one.
    """
    kept: list[tuple[Fault, Any]] = []
    try:
        for fault in faults:
            kept.append((fault, inspect.getattr_static(fault.owner, fault.name)))
            setattr(fault.owner, fault.name, _changed(fault))
        yield
    finally:
        for fault, original in reversed(kept):
            setattr(fault.owner, fault.name, original)


def _changed(fault: Fault) -> Any:
    original = inspect.getattr_static(fault.owner, fault.name)
    function: Callable[..., Any] = original.fget if isinstance(original, property) else original
    source = textwrap.dedent(inspect.getsource(function))
    count = source.count(fault.old)
    assert count == 1, f"{fault.name} has {fault.old!r} {count} times"
    # The names of the module it comes from, so that it behaves as if it stood there.
    names: dict[str, Any] = {}
    code = compile(source.replace(fault.old, fault.new), f"<fault in {fault.name}>", "exec")
    scope = dict(inspect.unwrap(function).__globals__)
    exec(code, scope, names)
    return names[function.__name__]


@dataclass(frozen=True, slots=True)
class Case:
    """A check of one row of the list of cases, and faults that it must see."""

    number: int
    check: Callable[[], None]
    faults: tuple[Fault, ...]

    def holds(self) -> None:
        self.check()

    def sees(self, fault: Fault) -> None:
        """The check fails with the fault in the code, and not by stumbling over something else."""
        with planted(fault):
            try:
                self.check()
            except (NameError, SyntaxError, AttributeError):
                # The fault itself is written wrong.
                raise
            except Exception:
                return
        raise AssertionError(
            f"case {self.number} passes although {fault.name} has {fault.new!r} "
            f"in place of {fault.old!r}"
        )


class Cases:
    """The cases of one test file, in order."""

    def __init__(self) -> None:
        self.all: list[Case] = []

    def case(self, number: int, *faults: Fault) -> Callable[[Callable[[], None]], None]:
        """Takes a check in; ``faults``: one of them at a time must make it fail."""
        assert faults, "a check that nothing makes fail checks nothing"

        def take(check: Callable[[], None]) -> None:
            self.all.append(Case(number, check, faults))

        return take

    @property
    def with_faults(self) -> list[tuple[Case, Fault]]:
        return [(case, fault) for case in self.all for fault in case.faults]
