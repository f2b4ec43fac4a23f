"""How soon a thread gets the interpreter. Without Qt."""

from __future__ import annotations

SWITCH_S = 0.001
"""How long a thread that computes in Python keeps the interpreter from one that asks for it.

Qt gives it back at nearly every call of the window's thread, which then waits for that long each
time while a model is loaded: a fifth of Python's own five milliseconds makes the longest gap of the
window a third shorter.
"""
