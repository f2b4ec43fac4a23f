"""Importing without the hook of PySide6."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = """
import builtins, linecache
from app.plain_imports import restore_plain_imports
import PySide6.QtCore
hooked = builtins.__import__
{restore}
import wave
print(hooked is not builtins.__import__, any(name.endswith("wave.py") for name in linecache.cache))
from PySide6.QtCore import QObject, Signal
class Probe(QObject):
    rang = Signal(int)
probe, heard = Probe(), []
probe.rang.connect(heard.append)
probe.rang.emit(3)
print(heard, probe.objectName() == "")
"""


def run(restore: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(restore=restore)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_pyside_reads_the_source_of_every_import() -> None:
    """If this fails PySide6 has changed, and ``restore_plain_imports`` may go."""
    assert run("") == ["False True", "[3] True"]


def test_restored_imports_read_no_source_and_qt_works() -> None:
    assert run("restore_plain_imports()") == ["True False", "[3] True"]
