"""Errors in methods of ours that Qt calls in place of its own: paint events, size hints, models.

An error must not leave such a method. PySide6 (6.11) keeps it to raise it in whatever Python code
has called into Qt. Until that runs, each override that Qt looks for on an object for the first time
is dropped: that object never gets it again, and its function loses a reference that was never
taken. The function is freed while the class still names it, and the process dies of that sooner or
later, often in a collection of the garbage.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from types import FunctionType
from typing import Any

from PySide6.QtCore import QRect, QSize, QSizeF
from shiboken6 import Shiboken

_BINDINGS = ("PySide6.", "Shiboken")
_MARK = "is_guarded_override"
# By the name of the type that the method says it returns; None stands for any other.
_NOTHING: dict[str, Callable[[], object]] = {
    each.__name__: each for each in (bool, int, str, QRect, QSize, QSizeF)
}


def guard_overrides() -> None:
    """From now on errors in overrides go to ``sys.excepthook``, as those in slots do.

    Qt then gets an empty value of the type that the method is annotated with. Holds for each class
    with a base of Qt, those to come too; to be called before objects are made of them. A second
    call does nothing.
    """

    def guard_new_class(cls: type, **options: Any) -> None:
        super(Shiboken.Object, cls).__init_subclass__(**options)  # type: ignore[misc]
        _guard(cls)

    for cls in _heirs(Shiboken.Object):
        _guard(cls)
    hook = classmethod(guard_new_class)  # type: ignore[arg-type, var-annotated]
    Shiboken.Object.__init_subclass__ = hook  # type: ignore[assignment]


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """``method`` for Qt to call: an error goes to ``sys.excepthook`` and no further."""
    empty = _NOTHING.get(method.__annotations__.get("return", ""))

    @wraps(method)
    def guard(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            return None if empty is None else empty()

    setattr(guard, _MARK, True)
    return guard


def _guard(cls: type) -> None:
    if cls.__module__.startswith(_BINDINGS):
        return
    for name, method in list(vars(cls).items()):
        if (
            isinstance(method, FunctionType)
            and not name.startswith("__")
            and not hasattr(method, _MARK)
            and _is_of_qt(cls, name)
        ):
            setattr(cls, name, guarded(method))


def _is_of_qt(cls: type, name: str) -> bool:
    return any(
        name in vars(base) for base in cls.__mro__[1:] if base.__module__.startswith(_BINDINGS)
    )


def _heirs(cls: type) -> Iterator[type]:
    heir: type
    for heir in cls.__subclasses__():
        yield heir
        yield from _heirs(heir)
