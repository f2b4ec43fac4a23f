"""A problem that the user can do something about."""

from __future__ import annotations


class Problem(Exception):
    """Stops the command; printed as cause with numbers, then what to do.

    ``action`` may have several lines.
    """

    def __init__(self, cause: str, action: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.action = action

    def __str__(self) -> str:
        return f"{self.cause}\nWhat to do: {self.action}"
