"""dev.py's commands: what they run, in which order, and how they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tasks
from environment import BUILD, DEVELOPMENT, RUNTIME, Environment
from problem import Problem
from tests.benchmarks import engine, gui

ROOT = Path(__file__).resolve().parents[2]


class FakeEnvironment(Environment):
    """Records what would be installed and run; every process ends with ``status``."""

    def __init__(self, status: int = 0) -> None:
        super().__init__(ROOT)
        self.self_tests: list[list[str]] = []
        self.installed: list[tuple[list[str], str | None]] = []
        self.ran: list[tuple[str, ...]] = []
        self.status = status

    def prepare(self, requirements, torch_index=None):  # type: ignore[no-untyped-def]
        self.installed.append((list(requirements), torch_index))

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> int:
        self.ran.append(arguments)
        return self.status

    def run_with_errors(self, *arguments: str, env: dict[str, str]) -> tuple[int, str]:
        status = self.run(*arguments, env=env)
        if not self.self_tests:
            return status, ""
        faults = self.self_tests.pop(0)
        lines = ["self-test: " + fault for fault in faults]
        return (1 if faults else 0), "\n".join(["Some warning", *lines])

    def run_here(self, *arguments: str) -> int:
        return self.run(*arguments)

    def output(self, *arguments: str) -> str:
        return "models-folder\n"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> FakeEnvironment:
    fake = FakeEnvironment()
    monkeypatch.setattr(tasks, "Environment", lambda root: fake)
    monkeypatch.setattr(tasks, "check_qt", lambda *arguments, **keywords: None)
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    return fake


def test_run_fetches_the_model_and_passes_the_rest_on(environment: FakeEnvironment) -> None:
    arguments = ["--data-dir", "profile", "--torch-index", "URL", "--self-test", "--tabs", "2"]
    assert tasks.main(["run", *arguments]) == 0
    assert environment.installed == [([RUNTIME], "URL")]
    assert environment.ran == [
        ("-m", "engine.loading.starter_model", "models-folder"),
        ("-m", "app", "--data-dir", "profile", "--self-test", "--tabs", "2"),
    ]


@pytest.mark.parametrize("arguments", [["--models-dir", "é 張"], ["--models-dir=é 張"]])
def test_run_fetches_into_the_folder_it_was_given(
    environment: FakeEnvironment, arguments: list[str]
) -> None:
    tasks.main(["run", *arguments])
    assert environment.ran == [
        ("-m", "engine.loading.starter_model", "é 張"),
        ("-m", "app", *arguments),
    ]


@pytest.mark.parametrize("arguments", [["--model", "x.gguf"], ["--trace=t.ndjson"]])
def test_run_fetches_nothing_that_is_not_used(
    environment: FakeEnvironment, arguments: list[str]
) -> None:
    tasks.main(["run", *arguments])
    assert environment.ran == [("-m", "app", *arguments)]


def test_window_opens_even_when_the_model_could_not_be_fetched(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.status = 1
    assert tasks.main(["run"]) == 1
    assert environment.ran[-1] == ("-m", "app")
    assert "without the starter model" in capsys.readouterr().out


def test_test_runs_everything_and_fails_when_one_part_fails(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.status = 3
    assert tasks.main(["test"]) == 1
    assert environment.installed == [([RUNTIME, DEVELOPMENT], None)]
    modules = [command[1] for command in environment.ran if command[0] == "-m"]
    assert modules == ["ruff", "ruff", "mypy", "engine.loading.starter_model", "pytest", "app"]
    assert capsys.readouterr().out.count("FAILED") == 7


def test_test_ends_with_the_windows_self_test(environment: FakeEnvironment) -> None:
    assert tasks.main(["test"]) == 0
    assert environment.ran[-1][:3] == ("-m", "app", "--self-test")


SLOW = "gui_max_gap_ms is 83.2, the limit is 50"
WRONG = "tab 1: empty answer"


@pytest.mark.parametrize(
    ("runs", "attempts", "status"),
    [
        ([[SLOW], []], 2, 0),
        ([[SLOW], [SLOW], [SLOW], []], 3, 1),
        ([[WRONG], []], 1, 1),
        ([[SLOW, WRONG], []], 1, 1),
        ([["first_paint_ms is None, the limit is 1000"], []], 1, 1),
    ],
)
def test_self_test_that_was_only_slow_is_done_again(
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    runs: list[list[str]],
    attempts: int,
    status: int,
) -> None:
    monkeypatch.setattr(tasks, "ROOT", tmp_path)
    environment.self_tests = runs
    assert tasks.self_test(environment) == status
    assert len(environment.ran) == attempts


@pytest.mark.parametrize(
    ("workload", "script"),
    [(name, "gui") for name in gui.WORKLOADS] + [(name, "engine") for name in engine.MODULES],
)
def test_bench_finds_the_script(environment: FakeEnvironment, workload: str, script: str) -> None:
    tasks.main(["bench", workload, "--json", "x"])
    path = ROOT / "tests" / "benchmarks" / f"{script}.py"
    assert path.exists()
    assert environment.ran == [(str(path), workload, "--json", "x")]


def test_the_help_of_bench_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tasks.main(["bench", "--help"])
    said = set(re.findall(r"[\w-]+", capsys.readouterr().out))
    assert set(gui.WORKLOADS) | set(engine.MODULES) <= said


def test_build_passes_its_arguments_on(environment: FakeEnvironment) -> None:
    assert tasks.main(["build", "--torch-index", "URL", "--variant", "cuda", "--no-archive"]) == 0
    assert environment.installed == [([RUNTIME, BUILD], "URL")]
    assert environment.ran[-1] == ("packaging/build.py", "--variant", "cuda", "--no-archive")


def test_build_without_the_starter_model_is_refused(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.status = 1
    assert tasks.main(["build"]) == 1
    assert "carries the starter model" in capsys.readouterr().err
    assert ("packaging/build.py",) not in environment.ran


def test_build_in_dist_has_tests_of_its_own(environment: FakeEnvironment) -> None:
    assert tasks.main(["test", "--frozen"]) == 0
    assert environment.ran == [("-m", "pytest", "-m", "frozen", "tests/packaging")]


def test_problem_is_printed_not_raised(
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*arguments: object, **keywords: object) -> None:
        raise Problem("the cause", "the action")

    monkeypatch.setattr(environment, "prepare", fail)
    assert tasks.main(["lint"]) == 1
    assert capsys.readouterr().err == "\nthe cause\nWhat to do: the action\n"


def test_unknown_argument_is_refused(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        tasks.main(["lint", "--fast"])
    assert "--fast" in capsys.readouterr().err
    assert environment.installed == []


def test_old_python_is_told_so(tmp_path: Path) -> None:
    # The real check in dev.py, under an interpreter that claims to be 3.8.
    code = (
        "import runpy, sys; sys.version_info = (3, 8, 0, 'final', 0); "
        f"runpy.run_path({str(ROOT / 'packaging' / 'dev.py')!r})"
    )
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 1
    assert "Python is too old: this is 3.8" in done.stderr
    assert "needs 3.11 or newer" in done.stderr


def test_ci_calls_the_same_command_as_the_readme() -> None:
    command = "python3 packaging/dev.py test"
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")
