"""The workflow that builds on both platforms: it is YAML, and what it calls exists."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

import archive
import qt_libraries
import tasks
import windows_installer

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "build.yml"
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


@pytest.fixture(scope="module")
def workflow() -> dict[Any, Any]:
    loaded = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def job(workflow: dict[Any, Any]) -> dict[str, Any]:
    (only,) = workflow["jobs"].values()
    return dict(only)


def commands(workflow: dict[Any, Any]) -> list[list[str]]:
    """Each command of each step as words; an expression of the workflow is one word."""
    found = []
    for step in job(workflow)["steps"]:
        script = EXPRESSION.sub("EXPRESSION", step.get("run", "")).replace("\\\n", " ")
        found += [shlex.split(line) for line in script.splitlines()]
    return [words for words in found if words]


def calls_of_dev(workflow: dict[Any, Any]) -> list[list[str]]:
    return [words for words in commands(workflow) if "packaging/dev.py" in words]


def test_it_runs_on_both_platforms(workflow: dict[Any, Any]) -> None:
    systems = [entry["os"] for entry in job(workflow)["strategy"]["matrix"]["include"]]
    assert systems == ["ubuntu-22.04", "windows-latest"]
    assert job(workflow)["runs-on"] == "${{ matrix.os }}"


def test_it_starts_by_hand_and_for_a_version(workflow: dict[Any, Any]) -> None:
    # YAML 1.1 reads the key `on` as true.
    triggers = workflow[True]
    assert "workflow_dispatch" in triggers
    assert triggers["push"]["tags"] == ["v*"]


def test_it_may_read_the_tree_and_nothing_else(workflow: dict[Any, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}


def test_each_step_does_one_thing(workflow: dict[Any, Any]) -> None:
    for step in job(workflow)["steps"]:
        assert ("run" in step) != ("uses" in step), step
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]), step


def test_its_commands_exist(workflow: dict[Any, Any]) -> None:
    known = {"python", "sudo", "choco", "echo", "exit"}
    assert {words[0] for words in commands(workflow)} <= known


def test_its_calls_of_dev_are_understood(workflow: dict[Any, Any]) -> None:
    called = []
    for words in calls_of_dev(workflow):
        assert (ROOT / words[1]).is_file()
        options, rest = tasks.make_parser().parse_known_args(words[2:])
        assert not rest or options.passes_rest, words
        called.append(options.command)
    assert called == [tasks.build, tasks.test]


def test_its_options_of_the_build_are_understood(workflow: dict[Any, Any]) -> None:
    import build

    (words,) = [words for words in calls_of_dev(workflow) if words[2] == "build"]
    _options, rest = tasks.make_parser().parse_known_args(words[2:])
    assert build.parser().parse_args(rest).variant == "cpu"


def test_it_tries_the_build_with_its_own_tests(workflow: dict[Any, Any]) -> None:
    (words,) = [words for words in calls_of_dev(workflow) if words[2] == "test"]
    assert tasks.make_parser().parse_args(words[2:]).frozen


def test_it_installs_every_library_that_qt_may_need(workflow: dict[Any, Any]) -> None:
    (words,) = [
        words for words in commands(workflow) if words[:3] == ["sudo", "apt-get", "install"]
    ]
    wanted = {*qt_libraries.DEBIAN_PACKAGES.values(), qt_libraries.FONT_PACKAGE, "binutils"}
    assert wanted - set(words) == set()


def test_it_installs_what_makes_the_installer(workflow: dict[Any, Any]) -> None:
    (words,) = [words for words in commands(workflow) if words[0] == "choco"]
    assert words[:3] == ["choco", "install", "innosetup"]
    assert windows_installer.COMPILER == "ISCC.exe"


@pytest.mark.parametrize(
    "name",
    [
        archive.archive_name("quire", "1.2.3", "cpu", "linux") + ".tar.xz",
        archive.archive_name("quire", "1.2.3", "cpu", "linux") + ".tar.xz.sha256",
        archive.archive_name("quire", "1.2.3", "cpu", "win32") + ".zip",
        "quire-1.2.3-windows-x86_64-cpu-setup.exe",
        "quire-1.2.3-windows-x86_64-cpu-setup.exe.sha256",
    ],
)
def test_what_the_build_makes_is_uploaded(workflow: dict[Any, Any], name: str) -> None:
    uploads = [s for s in job(workflow)["steps"] if "upload-artifact" in s.get("uses", "")]
    patterns = uploads[0]["with"]["path"].split()
    assert uploads[0]["with"]["if-no-files-found"] == "error"
    assert any(fnmatchcase(f"dist/{name}", pattern) for pattern in patterns)


def test_oldest_c_library_is_named_in_the_readme(workflow: dict[Any, Any]) -> None:
    # Ubuntu 22.04 has glibc 2.35: what is built there runs there and on all that is newer.
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "glibc 2.35" in readme
    assert "2.35" in WORKFLOW.read_text(encoding="utf-8")
