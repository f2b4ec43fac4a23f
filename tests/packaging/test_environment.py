"""The virtual environment: when it is made, when it is believed, what stops it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import namedtuple
from itertools import pairwise
from pathlib import Path

import pytest

import environment as module
from environment import BUILD, CONSTRAINTS, DEVELOPMENT, RUNTIME, Environment, Stamp
from problem import Problem

DiskUsage = namedtuple("DiskUsage", "total used free")


class RecordedEnvironment(Environment):
    """A real environment, but for pip, whose commands are recorded instead of run."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.pip_commands: list[tuple[str, ...]] = []
        self.pip_problem: Problem | None = None

    def _pip(self, *arguments: str) -> None:
        self.pip_commands.append(arguments)
        if self.pip_problem:
            raise self.pip_problem


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedEnvironment:
    folder = tmp_path / "packaging"
    folder.mkdir()
    for name, text in {
        RUNTIME: "numpy==1\ntorch==2.13.0\n",
        DEVELOPMENT: "pytest==9\n",
        BUILD: "pyinstaller==6\n",
        CONSTRAINTS: "idna==3\n",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    # A bare environment without pip is made in a tenth of the time.
    real_call = module.subprocess.call
    monkeypatch.setattr(
        module.subprocess, "call", lambda command: real_call([*command, "--without-pip"])
    )
    return RecordedEnvironment(tmp_path)


def requirement_files(command: tuple[str, ...]) -> list[str]:
    return [Path(b).name for a, b in pairwise(command) if a == "-r"]


def test_first_use_makes_the_environment_and_installs(environment: RecordedEnvironment) -> None:
    environment.prepare([RUNTIME, DEVELOPMENT])

    assert environment.python.exists()
    assert environment.site_packages.is_dir()
    [command] = environment.pip_commands
    assert requirement_files(command) == [RUNTIME, DEVELOPMENT]
    assert command[-2:] == ("-c", str(environment.root / "packaging" / CONSTRAINTS))


def test_second_use_does_nothing(environment: RecordedEnvironment) -> None:
    environment.prepare([RUNTIME, DEVELOPMENT])
    environment.pip_commands.clear()

    environment.prepare([RUNTIME])
    environment.prepare([RUNTIME, DEVELOPMENT])

    assert environment.pip_commands == []


def test_only_what_changed_is_installed(environment: RecordedEnvironment) -> None:
    environment.prepare([RUNTIME, DEVELOPMENT])
    environment.pip_commands.clear()
    (environment.root / "packaging" / DEVELOPMENT).write_text("pytest==10\n", encoding="utf-8")

    environment.prepare([RUNTIME, DEVELOPMENT, BUILD])

    [command] = environment.pip_commands
    assert requirement_files(command) == [DEVELOPMENT, BUILD]


def test_changed_constraints_install_everything_again(environment: RecordedEnvironment) -> None:
    environment.prepare([RUNTIME])
    environment.pip_commands.clear()
    (environment.root / "packaging" / CONSTRAINTS).write_text("idna==4\n", encoding="utf-8")

    environment.prepare([RUNTIME])

    assert [requirement_files(c) for c in environment.pip_commands] == [[RUNTIME]]


def test_failed_installation_is_tried_again(environment: RecordedEnvironment) -> None:
    environment.pip_problem = Problem("no network", "wait")
    with pytest.raises(Problem, match="no network"):
        environment.prepare([RUNTIME])
    environment.pip_problem = None

    environment.prepare([RUNTIME])

    assert len(environment.pip_commands) == 2
    assert environment.outdated(environment._trusted_stamp(), [RUNTIME], "") == []


def test_torch_index_is_used_for_torch_alone_and_remembered(
    environment: RecordedEnvironment,
) -> None:
    environment.prepare([RUNTIME], "https://example.org/cpu")
    assert environment.pip_commands[0] == (
        *("install", "torch==2.13.0"),
        *("--index-url", "https://example.org/cpu"),
    )
    assert "--index-url" not in environment.pip_commands[1]
    environment.pip_commands.clear()

    environment.prepare([RUNTIME])
    assert environment.pip_commands == []

    environment.prepare([RUNTIME], "https://example.org/cuda")
    assert environment.pip_commands[0] == ("uninstall", "--yes", "torch")
    assert environment.pip_commands[1][-1] == "https://example.org/cuda"
    environment.pip_commands.clear()

    environment.prepare([RUNTIME], "")
    assert [c[0] for c in environment.pip_commands] == ["uninstall", "install"]


def test_environment_of_another_python_is_made_anew(environment: RecordedEnvironment) -> None:
    environment.prepare([RUNTIME])
    stamp_path = environment.folder / "quire-stamp.json"
    stamp = json.loads(stamp_path.read_text(encoding="utf-8"))
    stamp_path.write_text(json.dumps({**stamp, "python": "3.9"}), encoding="utf-8")
    (environment.folder / "left-over").touch()

    environment.prepare([RUNTIME])

    assert not (environment.folder / "left-over").exists()
    assert environment._trusted_stamp() is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"python": "3.11"}', '{"files": 3}'])
def test_unreadable_stamp_is_no_stamp(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stamp.json"
    path.write_text(text, encoding="utf-8")
    assert Stamp.read(path) is None


def test_stamp_survives_being_written(tmp_path: Path) -> None:
    stamp = Stamp("3.12", "https://example.org/é", {RUNTIME: "abc"})
    stamp.write(tmp_path / "stamp.json")
    assert Stamp.read(tmp_path / "stamp.json") == stamp


def test_windows_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "platform", "win32")
    environment = Environment(tmp_path)
    assert environment.python == tmp_path / ".venv" / "Scripts" / "python.exe"
    assert environment.site_packages == tmp_path / ".venv" / "Lib" / "site-packages"


def test_small_disk_is_refused_with_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: DiskUsage(10**12, 0, 700 * 10**6))
    with pytest.raises(Problem) as caught:
        module.check_disk(tmp_path, "")
    assert "700 MB are free" in caught.value.cause
    assert "needs 2,600 MB" in caught.value.cause
    assert "free 1,900 MB or more" in caught.value.action


@pytest.mark.parametrize(
    ("platform", "index", "free_mb", "gpu", "words"),
    [
        ("linux", "", 50_000, False, "a smaller CPU build"),
        ("linux", "", 5_000, True, "5,000 MB are free here, 9,000 are enough"),
        ("linux", "", 50_000, True, None),
        ("linux", "https://example.org/cpu", 5_000, False, None),
        ("win32", "", 50_000, True, "brings a CUDA build"),
        ("win32", "", 50_000, False, None),
    ],
)
def test_hint_on_the_build_of_torch(
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    index: str,
    free_mb: int,
    gpu: bool,
    words: str | None,
) -> None:
    monkeypatch.setattr(module.sys, "platform", platform)
    note = module.torch_note(index, free_mb, gpu)
    assert (words in note) if words else note == ""


def test_missing_venv_module_names_the_debian_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Problem) as caught:
        module.check_venv_module()
    assert f"python{sys.version_info.major}.{sys.version_info.minor}-venv" in caught.value.action


def test_children_speak_utf8(environment: RecordedEnvironment) -> None:
    environment.prepare([RUNTIME])
    assert environment.output("-S", "-c", "print('张')").strip() == "张"
    assert module.child_environment()["PATH"] == os.environ["PATH"]
