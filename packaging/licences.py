"""The licences of everything in a bundle, collected at build time for the About window.

Every file that the bundle was made from has an owner: an installed distribution, Python itself, a
package of the system, or Quire. A file without one, or an owner without a licence text, fails the
build: nothing is shipped whose terms nobody has seen.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from app.versions import licence_of
from problem import Problem
from system_packages import package_licence, packages_of

ROOT = Path(__file__).resolve().parent.parent
TEXTS = Path(__file__).resolve().parent / "licence_texts"
FOLDER = "licences"
INDEX = "index.json"
NAMED = 10
"""So many parts without a licence are named."""
MODEL_NAME = "SmolLM2-135M-Instruct"

# Wheels that come without the text of their licence: the texts that belong to it.
STANDARD_TEXTS = {
    "pyside6-essentials": ("LGPL-3.0-only", "GPL-3.0-only"),
    "shiboken6": ("LGPL-3.0-only", "GPL-3.0-only"),
    "tokenizers": ("Apache-2.0",),
    "latex2mathml": ("MIT",),
}
QT_NOTE = (
    "Qt and Qt for Python are used under the GNU Lesser General Public License, version 3. Their "
    "libraries are the unchanged ones of the wheel of this version; they lie in the folder PySide6 "
    "of this program and may be replaced by others of the same interface. Their source code is at "
    "https://download.qt.io/official_releases/QtForPython/pyside6/ and "
    "https://download.qt.io/official_releases/qt/."
)
NOTES = {"pyside6-essentials": QT_NOTE, "shiboken6": QT_NOTE}

_TEXT_NAME = re.compile(r"(licen[cs]e|copying|notice|copyright)", re.IGNORECASE)
_NOT_TEXT = (".py", ".pyc", ".pyi", ".so", ".h", ".json")


@dataclass(frozen=True)
class Entry:
    """What the About window shows of one owner. ``text``: a file beside the index."""

    name: str
    version: str
    licence: str
    text: str


@dataclass(frozen=True)
class Owner:
    """Whose a file is. ``kind``: distribution, python, system or quire."""

    kind: str
    name: str


def collect(sources: Iterable[str], target: Path) -> list[Entry]:
    """Writes the licences of the owners of ``sources`` to the folder ``target``, with its index.

    Args:
        sources: the files that the bundle was made from.
        target: is made anew.

    Raises:
        Problem: a file without an owner, or an owner without a text.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    entries = [
        _write(target, "Python", *_python_licence()),
        _write(target, "PyInstaller bootloader", *_bootloader_licence()),
        _write(target, MODEL_NAME, "", "Apache-2.0", _standard("Apache-2.0")),
    ]
    missing = []
    for owner in sorted(owners(sources), key=lambda owner: owner.name.lower()):
        found = None
        if owner.kind == "distribution":
            found = distribution_licence(metadata.distribution(owner.name))
        elif owner.kind == "system":
            found = package_licence(owner.name)
        elif owner.kind != "unknown":
            continue
        if found is None:
            missing.append(owner.name)
        else:
            entries.append(_write(target, owner.name, *found))
    if missing:
        raise Problem(
            f"No licence text was found for {len(missing)} parts of the bundle: "
            f"{', '.join(missing[:NAMED])}{' …' if len(missing) > NAMED else '.'}",
            "leave them out in spec_common.py, or put their text into packaging/licence_texts and "
            "name it in licences.py.",
        )
    index = [asdict(entry) for entry in entries]
    (target / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    return entries


def owners(sources: Iterable[str]) -> set[Owner]:
    """The owners of files; one that nobody has is its own, of the kind ``unknown``."""
    places = _distribution_files()
    found = set()
    system: set[Path] = set()
    for source in sources:
        # Following links is slow, and hardly any file needs it.
        if name := places.get(os.path.normpath(source)):
            found.add(Owner("distribution", name))
            continue
        whole = Path(os.path.realpath(source))
        if name := places.get(str(whole)):
            found.add(Owner("distribution", name))
        elif whole.is_relative_to(ROOT) or whole.suffix == ".gguf":
            found.add(Owner("quire", "quire"))
        elif _is_python(whole):
            found.add(Owner("python", "Python"))
        else:
            system.add(whole)
    return found | _packages(system)


def _is_python(path: Path) -> bool:
    """Whether a file is of the Python installation: the system's own lies among other things."""
    stdlib = Path(sysconfig.get_path("stdlib")).resolve()
    if path.is_relative_to(stdlib) or path.name.startswith("libpython"):
        return True
    base = Path(sys.base_prefix).resolve()
    return base != Path("/usr") and path.is_relative_to(base)


def _distribution_files() -> dict[str, str]:
    """Each installed file → the name of its distribution."""
    places = {}
    for distribution in metadata.distributions():
        folder = os.path.realpath(str(distribution.locate_file("")))
        name = distribution.metadata["Name"]
        for file in distribution.files or ():
            places[os.path.normpath(os.path.join(folder, file))] = name
    return places


def _packages(libraries: set[Path]) -> set[Owner]:
    """The system's packages that own ``libraries``."""
    names = packages_of(libraries)
    return {
        Owner("system", names[library]) if library in names else Owner("unknown", str(library))
        for library in libraries
    }


def distribution_licence(distribution: metadata.Distribution) -> tuple[str, str, str] | None:
    """(version, licence, text) of an installed distribution; None if it has no text."""
    name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
    texts = [
        f"=== {file}\n\n{_read(Path(str(distribution.locate_file(file))))}"
        for file in sorted(distribution.files or (), key=str)
        if _TEXT_NAME.search(file.name) and not file.name.endswith(_NOT_TEXT)
    ]
    if name in STANDARD_TEXTS:
        facts = distribution.metadata
        authors = facts.get_all("Author") or facts.get_all("Author-email") or ["its authors"]
        texts.append(f"Copyright (c) {', '.join(authors)}")
        texts += [_standard(licence) for licence in STANDARD_TEXTS[name]]
    if not texts:
        return None
    if name in NOTES:
        texts.insert(0, NOTES[name])
    texts += _compiled_in(distribution)
    return distribution.version, licence_of(distribution.metadata), "\n\n".join(texts)


def _compiled_in(distribution: metadata.Distribution) -> list[str]:
    """What a wheel's bill of materials names: libraries of Rust and C that are linked into it."""
    lines = []
    for file in distribution.files or ():
        if not file.name.endswith(".cyclonedx.json"):
            continue
        bill = json.loads(_read(Path(str(distribution.locate_file(file)))))
        for part in bill.get("components", []):
            names = [
                stated.get("expression") or stated.get("license", {}).get("id", "")
                for stated in part.get("licenses", [])
            ]
            lines.append(f"{part['name']} {part.get('version', '')}: {', '.join(names)}")
    return ["=== Compiled in\n\n" + "\n".join(sorted(lines))] if lines else []


def _python_licence() -> tuple[str, str, str]:
    candidates = [
        Path(sysconfig.get_path("stdlib")) / "LICENSE.txt",
        Path(sysconfig.get_config_var("base") or ".") / "LICENSE.txt",
        Path(f"/usr/share/doc/python{sysconfig.get_python_version()}/copyright"),
    ]
    for path in candidates:
        if path.is_file():
            return platform.python_version(), "PSF-2.0", _read(path)
    raise Problem(
        f"Python's licence was found in none of {', '.join(map(str, candidates))}.",
        "build with a complete Python.",
    )


def _bootloader_licence() -> tuple[str, str, str]:
    distribution = metadata.distribution("pyinstaller")
    found = distribution_licence(distribution)
    if found is None:
        raise Problem("PyInstaller comes without its licence.", "install it again.")
    version, _licence, text = found
    return version, "GPL-2.0-or-later with an exception for what it bundles", text


def _standard(name: str) -> str:
    return _read(TEXTS / f"{name}.txt")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _write(target: Path, name: str, version: str, licence: str, text: str) -> Entry:
    file = re.sub(r"[^\w.+-]+", "-", name).lower() + ".txt"
    (target / file).write_text(text.rstrip() + "\n", encoding="utf-8")
    return Entry(name, version, licence, file)
