"""What is installed where: pins, markers, and wheels for Windows."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pip_errors import NETWORK

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging"
REQUIREMENT_FILES = ("requirements.txt", "requirements-dev.txt", "requirements-build.txt")
PYTHONS = ("3.11", "3.12", "3.13")

# Not pinned, with the reason.
FREE = {
    "triton": "a CUDA build of torch asks for its own version; Linux only",
    "setuptools": "older than Python's own venv has",
}


def lines_of(name: str) -> list[str]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]


def requirements(*names: str) -> list[Requirement]:
    return [Requirement(line) for name in names for line in lines_of(name)]


def environment(platform: str, python: str) -> dict[str, str]:
    """What markers are weighed against on a 64-bit machine of that platform."""
    windows = platform == "win32"
    return {
        "os_name": "nt" if windows else "posix",
        "sys_platform": platform,
        "platform_system": "Windows" if windows else "Linux",
        "platform_machine": "AMD64" if windows else "x86_64",
        "platform_release": "10" if windows else "6.1",
        "platform_version": "10.0.17763" if windows else "#1",
        "python_version": python,
        "python_full_version": f"{python}.1",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.1",
        "platform_python_implementation": "CPython",
        "extra": "",
    }


def holds(marker: Marker | None, platform: str, python: str, extra: str = "") -> bool:
    return marker is None or marker.evaluate({**environment(platform, python), "extra": extra})


def needed(platform: str, python: str) -> dict[str, str]:
    """Every distribution that is installed there → who asks for it, by what is installed here."""
    found: dict[str, str] = {}
    waiting = [(r, "requirements") for r in requirements(*REQUIREMENT_FILES)]
    while waiting:
        requirement, asker = waiting.pop()
        extras = ("", *sorted(requirement.extras))
        if not holds(requirement.marker, platform, python):
            continue
        name = canonicalize_name(requirement.name)
        known = name in found
        found.setdefault(name, asker)
        if known and not requirement.extras:
            continue
        try:
            asked = metadata.requires(requirement.name) or []
        except metadata.PackageNotFoundError:
            # Of another platform, or for builds only; the resolver run looks at those.
            continue
        for text in asked:
            inner = Requirement(text)
            if any(holds(inner.marker, platform, python, extra) for extra in extras):
                inner.marker = None
                waiting.append((inner, name))
    return found


@pytest.mark.parametrize("name", REQUIREMENT_FILES)
def test_direct_requirements_are_exact(name: str) -> None:
    loose = [
        str(r)
        for r in requirements(name)
        if r.name not in FREE and [s.operator for s in r.specifier] != ["=="]
    ]
    assert loose == []


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", ["win32", "linux"])
def test_lock_names_everything_that_is_installed(platform: str, python: str) -> None:
    # Made on Linux, it would lack what libraries ask for on Windows alone.
    names = (*REQUIREMENT_FILES, "constraints.txt")
    pinned = {canonicalize_name(r.name) for r in requirements(*names)}
    missing = {
        name: asker
        for name, asker in needed(platform, python).items()
        if name not in pinned and name not in FREE
    }
    # Of a CUDA build of torch, which pins its own.
    assert {n: a for n, a in missing.items() if not n.startswith(("nvidia-", "cuda-"))} == {}


def test_lock_has_each_name_once() -> None:
    names = [canonicalize_name(r.name) for r in requirements("constraints.txt")]
    assert len(names) == len(set(names))


def test_lock_agrees_with_what_is_asked_for_directly() -> None:
    locked = {canonicalize_name(r.name): r for r in requirements("constraints.txt")}
    for requirement in requirements(*REQUIREMENT_FILES):
        other = locked.get(canonicalize_name(requirement.name))
        assert other is None or other.specifier == requirement.specifier, requirement


@pytest.mark.parametrize(
    ("platform", "name", "expected"),
    [
        ("win32", "triton-windows", True),
        ("linux", "triton-windows", False),
        ("win32", "triton", False),
        ("linux", "triton", True),
        ("win32", "jeepney", False),
        ("linux", "jeepney", True),
        ("win32", "colorama", True),
        ("win32", "torch", True),
    ],
)
def test_each_platform_gets_its_own(platform: str, name: str, expected: bool) -> None:
    assert (name in needed(platform, "3.12")) is expected


def test_triton_is_of_one_age_on_both_platforms() -> None:
    # The kernels are tested with a Triton that lies in the range of requirements-dev.txt.
    (windows,) = [r for r in requirements("requirements.txt") if r.name == "triton-windows"]
    (linux,) = [r for r in requirements("requirements-dev.txt") if r.name == "triton"]
    match = re.match(r"==(\d+\.\d+)", str(windows.specifier))
    assert match is not None
    assert linux.specifier.contains(match[1])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_pin_has_a_wheel_for_windows(python: str, tmp_path: Path) -> None:
    # The resolver of pip weighs markers against its own platform, so each pin stands for itself.
    wanted = sorted(
        f"{r.name}{r.specifier}"
        for r in requirements(*REQUIREMENT_FILES, "constraints.txt")
        if holds(r.marker, "win32", python)
    )
    assert len(wanted) > 50
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet"]
    command += ["--ignore-installed", "--target", str(tmp_path), "--disable-pip-version-check"]
    command += ["--platform", "win_amd64", "--only-binary=:all:", "--python-version", python]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
    if NETWORK.search(done.stderr):
        pytest.skip(f"no package index: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-2000:]
