"""Windows' libraries, as far as a test on another platform needs them."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest


class Library:
    """One of Windows' libraries: each function records its arguments and returns ``answer``."""

    def __init__(self, **answers: int) -> None:
        self.answers = answers
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> object:
        def call(*arguments: object) -> int:
            self.calls.append((name, *arguments))
            return self.answers[name]

        return call


def libraries(monkeypatch: pytest.MonkeyPatch, **found: Library) -> None:
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(**found), raising=False)
