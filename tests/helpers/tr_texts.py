"""Finds every text that goes through ``tr`` or ``tr_n`` in the application's source."""

from __future__ import annotations

import ast
from pathlib import Path

APP = Path(__file__).resolve().parents[2] / "app"
_NUM_TEXTS = {"tr": 1, "tr_n": 2}


def texts_in(source: str, file: str) -> tuple[list[str], list[str]]:
    """(texts, places where the text is not a literal)."""
    texts: list[str] = []
    faults: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        for argument in node.args[: _NUM_TEXTS.get(node.func.id, 0)]:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                texts.append(argument.value)
            elif not isinstance(argument, ast.IfExp):
                faults.append(f"{file}:{node.lineno}")
    return texts, faults


def all_texts() -> tuple[dict[str, str], list[str]]:
    """({text: file}, faults) of every module of the application."""
    found: dict[str, str] = {}
    faults: list[str] = []
    for path in sorted(APP.rglob("*.py")):
        if path.name == "i18n.py":
            continue
        name = path.relative_to(APP).as_posix()
        texts, wrong = texts_in(path.read_text(encoding="utf-8"), name)
        found.update((text, name) for text in texts)
        faults += wrong
    return found, faults
