"""Versions and licences of Quire and of what it is made with. Imports none of it. Qt-free."""

from __future__ import annotations

import json
import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

VERSION = "0.1.0"

DEPENDENCIES = (
    *("PySide6-Essentials", "shiboken6", "torch", "numpy", "tokenizers", "safetensors", "gguf"),
    *("Jinja2", "markdown-it-py", "linkify-it-py", "ziamath", "Pygments", "platformdirs", "psutil"),
    *("charset-normalizer", "jeepney", "triton-windows", "huggingface-hub", "httpx2", "keyring"),
)
"""As in ``packaging/requirements.txt``; jeepney is for Linux only, triton-windows for Windows."""

_LICENCE_FILE = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)
_NO_TEXT = (".py", ".pyc", ".json")


@dataclass(frozen=True, slots=True)
class Library:
    """An installed library. ``licence``: as its own metadata says; ``texts``: files with it."""

    name: str
    version: str
    licence: str
    texts: tuple[Path, ...] = ()

    def text(self) -> str:
        """The whole licence, or empty. Reads ``texts``; one that is gone is left out."""
        found = []
        for path in self.texts:
            try:
                found.append(path.read_text(encoding="utf-8", errors="replace").strip())
            except OSError:
                continue
        return "\n\n".join(found)


def version_of(name: str) -> str:
    """Version of an installed distribution, or empty."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def program_versions() -> list[tuple[str, str]]:
    """(name, version) of Quire and of what matters most when something fails."""
    found = [
        ("Quire", VERSION),
        ("Python", platform.python_version()),
        ("PySide6", version_of("PySide6-Essentials")),
        ("PyTorch", version_of("torch")),
        ("Triton", version_of("triton") or version_of("triton-windows")),
        ("tokenizers", version_of("tokenizers")),
        (platform.system(), platform.release()),
    ]
    if getattr(sys, "frozen", False):
        found.insert(1, ("Frozen", "yes"))
    return [(name, version) for name, version in found if version]


def libraries() -> list[Library]:
    """The libraries that are used, with their licences. Reads some files of each.

    A frozen program carries a list of all that is in it, the libraries of C too.
    """
    folder = licence_folder()
    if folder is not None:
        return _listed(folder)
    found: list[Library] = []
    for name in DEPENDENCIES:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        texts = tuple(
            Path(str(distribution.locate_file(file)))
            for file in distribution.files or ()
            if _LICENCE_FILE.search(file.name) and not file.name.endswith(_NO_TEXT)
        )
        facts = distribution.metadata
        found.append(Library(name, facts["Version"], licence_of(facts), texts))
    return found


def licence_folder() -> Path | None:
    """Where a frozen program keeps its licences; None elsewhere."""
    place = getattr(sys, "_MEIPASS", None)
    if place is None or not getattr(sys, "frozen", False):
        return None
    return Path(place) / "licences"


def _listed(folder: Path) -> list[Library]:
    """What the build has written. Empty if somebody took it away."""
    try:
        entries = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        return [
            Library(entry["name"], entry["version"], entry["licence"], (folder / entry["text"],))
            for entry in entries
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def licence_of(facts: metadata.PackageMetadata) -> str:
    """A distribution's licence in one line, as its metadata says; empty if it does not."""
    for field in ("License-Expression", "License"):
        for stated in facts.get_all(field) or []:
            # Some put the whole text there.
            if stated and "\n" not in stated:
                return str(stated)
    prefix = "License :: OSI Approved :: "
    classifiers = facts.get_all("Classifier") or []
    return ", ".join(c.removeprefix(prefix) for c in classifiers if c.startswith("License ::"))
