"""The virtual environment .venv: made once, brought up to date when the requirements change."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pip_errors import explain_pip_failure
from problem import Problem

RUNTIME = "requirements.txt"
DEVELOPMENT = "requirements-dev.txt"
BUILD = "requirements-build.txt"
CONSTRAINTS = "constraints.txt"

MB = 10**6
CPU_INSTALL_MB = 2_600
"""Free disk for a CPU build of torch, everything else and the archives while they are unpacked."""
CUDA_INSTALL_MB = 9_000
"""The same for a CUDA build, whose libraries alone unpack to more than 5 GB."""


@dataclass(frozen=True)
class Stamp:
    """What an environment was installed from.

    ``python``: major.minor; ``files``: requirement file → SHA-256.
    """

    python: str
    torch_index: str
    files: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Stamp | None:
        """None if there is no stamp or it cannot be read: the environment is then not trusted."""
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            return cls(str(value["python"]), str(value["torch_index"]), dict(value["files"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Replaces the stamp in one step."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        partial.replace(path)


class Environment:
    """The virtual environment of a source tree. ``root`` holds packaging/ and .venv."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / ".venv"
        self._packaging = root / "packaging"
        self._stamp_path = self.folder / "quire-stamp.json"

    @property
    def python(self) -> Path:
        """The environment's interpreter, whether or not it exists yet."""
        if sys.platform == "win32":
            return self.folder / "Scripts" / "python.exe"
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """Where the environment's packages lie. Raises ``FileNotFoundError`` before it is made."""
        if sys.platform == "win32":
            return self.folder / "Lib" / "site-packages"
        for candidate in sorted(self.folder.glob("lib/python3.*/site-packages")):
            return candidate
        raise FileNotFoundError(f"no site-packages under {self.folder}")

    def prepare(self, requirements: Sequence[str], torch_index: str | None = None) -> None:
        """Makes the environment and installs what is not installed yet.

        ``requirements``: names of files in packaging/. ``torch_index``: where torch comes from,
        empty for the ordinary index; None keeps what was chosen before. Raises ``Problem``.
        """
        stamp = self._trusted_stamp()
        if torch_index is None:
            torch_index = stamp.torch_index if stamp else ""
        todo = self.outdated(stamp, requirements, torch_index)
        if not todo:
            return
        if stamp is None:
            stamp = self._create(torch_index)
        if torch_index != stamp.torch_index:
            self._pip("uninstall", "--yes", "torch")
        # Forgotten first, so that an interrupted installation is done again instead of believed.
        kept = {name: digest for name, digest in stamp.files.items() if name not in todo}
        Stamp(stamp.python, torch_index, kept).write(self._stamp_path)
        if RUNTIME in todo and torch_index:
            self._pip("install", self._torch_pin(), "--index-url", torch_index)
        files = [argument for name in todo for argument in ("-r", str(self._packaging / name))]
        self._pip("install", *files, "-c", str(self._packaging / CONSTRAINTS))
        done = {name: self._fingerprint(name) for name in todo}
        Stamp(stamp.python, torch_index, {**kept, **done}).write(self._stamp_path)

    def outdated(self, stamp: Stamp | None, requirements: Sequence[str], index: str) -> list[str]:
        """Those of ``requirements`` that ``stamp`` does not cover."""
        if stamp is None:
            return list(requirements)
        moved = index != stamp.torch_index
        return [
            name
            for name in requirements
            if stamp.files.get(name) != self._fingerprint(name) or (moved and name == RUNTIME)
        ]

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> int:
        """Runs the environment's Python in the source tree and returns its exit status."""
        command = [str(self.python), *arguments]
        return subprocess.call(command, cwd=self.root, env=child_environment(env))

    def run_with_errors(self, *arguments: str, env: dict[str, str]) -> tuple[int, str]:
        """Like ``run``; returns what was written to standard error too, which is passed on."""
        command = [str(self.python), *arguments]
        done = subprocess.run(
            command,
            cwd=self.root,
            env=child_environment(env),
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        sys.stderr.write(done.stderr)
        sys.stderr.flush()
        return done.returncode, done.stderr

    def run_here(self, *arguments: str) -> int:
        """Like ``run`` in the caller's folder, so that relative paths mean what the user meant."""
        # -P: neither a folder of the user's nor tests/benchmarks/engine.py may hide our packages.
        command = [str(self.python), "-P", *arguments]
        return subprocess.call(command, env=child_environment({"PYTHONPATH": str(self.root)}))

    def output(self, *arguments: str) -> str:
        """Like ``run``, but returns standard output. Raises ``subprocess.CalledProcessError``."""
        command = [str(self.python), *arguments]
        done = subprocess.run(
            command,
            cwd=self.root,
            env=child_environment(),
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            check=True,
        )
        return done.stdout

    def _trusted_stamp(self) -> Stamp | None:
        """The stamp, if the environment's Python still starts and is the version that made it."""
        stamp = Stamp.read(self._stamp_path)
        if stamp is None or not self.python.exists():
            return None
        # A system upgrade may have replaced the Python that .venv/bin/python points to.
        code = "import sys; print('{}.{}'.format(*sys.version_info))"
        try:
            version = self.output("-S", "-c", code).strip()
        except (OSError, subprocess.CalledProcessError):
            return None
        return stamp if version == stamp.python else None

    def _create(self, torch_index: str) -> Stamp:
        check_venv_module()
        check_disk(self.root, torch_index)
        print(f"Making {self.folder} with Python {sys.version.split()[0]} …", flush=True)
        command = [sys.executable, "-m", "venv", "--clear", str(self.folder)]
        if subprocess.call(command) != 0:
            raise Problem(
                f"{sys.executable} could not make a virtual environment in {self.folder}.",
                "read Python's own message above; often the disk is full or the folder read-only.",
            )
        return Stamp("{}.{}".format(*sys.version_info), torch_index, {})

    def _fingerprint(self, name: str) -> str:
        # Constraints belong to every file: a changed one must be installed too.
        digest = hashlib.sha256()
        for part in (name, CONSTRAINTS):
            digest.update((self._packaging / part).read_bytes())
        return digest.hexdigest()

    def _torch_pin(self) -> str:
        text = (self._packaging / RUNTIME).read_text(encoding="utf-8")
        return next(line for line in text.splitlines() if line.startswith("torch=="))

    def _pip(self, *arguments: str) -> None:
        """Runs pip; its progress goes to the terminal, its errors too and into the explanation."""
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        print("pip " + " ".join(arguments), flush=True)
        with subprocess.Popen(
            [*command, *arguments],
            cwd=self.root,
            env=child_environment(),
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        ) as process:
            assert process.stderr is not None
            errors: list[str] = []
            for line in process.stderr:
                sys.stderr.write(line)
                errors.append(line)
        if process.returncode != 0:
            raise explain_pip_failure("".join(errors), self.root)


def child_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a child process: this one's, with UTF-8 on Windows too."""
    return {**os.environ, "PYTHONUTF8": "1", **(extra or {})}


def check_venv_module() -> None:
    """Raises ``Problem`` where Python comes without venv (Debian splits it off)."""
    if all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    raise Problem(
        f"This Python ({sys.executable}) comes without its venv module.",
        f"on Debian or Ubuntu `sudo apt install {package}`; "
        "elsewhere install the complete Python of python.org.",
    )


def check_disk(folder: Path, torch_index: str) -> None:
    """Raises ``Problem`` if not even a CPU build fits; prints a hint on the choice of torch."""
    free_mb = shutil.disk_usage(folder).free // MB
    if free_mb < CPU_INSTALL_MB:
        raise Problem(
            f"The disk is too small: {free_mb:,} MB are free at {folder}, "
            f"the installation needs {CPU_INSTALL_MB:,} MB.",
            f"free {CPU_INSTALL_MB - free_mb:,} MB or more, or move this folder to another disk.",
        )
    if note := torch_note(torch_index, free_mb, has_nvidia_gpu()):
        print(note, file=sys.stderr)


def has_nvidia_gpu() -> bool:
    """Whether an NVIDIA driver is installed."""
    if sys.platform == "win32":
        return shutil.which("nvidia-smi") is not None
    return Path("/proc/driver/nvidia/version").exists()


def torch_note(torch_index: str, free_mb: int, gpu: bool) -> str:
    """A hint where the ordinary build of torch is probably not the one wanted; empty otherwise."""
    if torch_index:
        return ""
    if sys.platform == "win32":
        return (
            "Note: this computer has an NVIDIA GPU. The ordinary torch for Windows is a CPU build; "
            "README.md says how --torch-index brings a CUDA build."
            if gpu
            else ""
        )
    size = f"and takes several GB ({free_mb:,} MB are free here, {CUDA_INSTALL_MB:,} are enough)"
    if not gpu:
        return (
            f"Note: no NVIDIA GPU was found. The ordinary torch for Linux is a CUDA build {size}; "
            "README.md says how --torch-index brings a smaller CPU build."
        )
    return f"Note: torch comes as a CUDA build {size}." if free_mb < CUDA_INSTALL_MB else ""
