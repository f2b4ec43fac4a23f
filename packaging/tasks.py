"""The commands of dev.py."""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import qt_libraries
from environment import BUILD, DEVELOPMENT, RUNTIME, Environment
from problem import Problem

ROOT = Path(__file__).resolve().parent.parent
OFFSCREEN = {"QT_QPA_PLATFORM": "offscreen"}
# Read by importlinter's console script; called through Python so that it works without activation.
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"
QUICK_TESTS = "not slow and not gpu and not frozen"
# A file at a time, so that what its tests share is made once. Threads of torch that wait for each
# other beside another worker's would cost more than they bring.
WORKERS = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
GUI_BENCHMARKS = ("window", "panel", "search")
ENGINE_BENCHMARKS = (
    *("cpu", "seeds", "W1", "W2", "W3", "decode", "prefill", "kernels", "quantized", "gui-tax"),
    "suite",
)
BENCH_HELP = (
    f"a benchmark of the window ({', '.join(GUI_BENCHMARKS)}) or of the engine "
    f"({', '.join(ENGINE_BENCHMARKS)})"
)
SELF_TEST_ATTEMPTS = 3
TOO_SLOW = re.compile(r"self-test: (first_paint|gui_load_gap|gui_max_gap)_ms is \d")


@dataclass(frozen=True)
class Step:
    """One part of `test` or `lint`. ``run`` returns an exit status."""

    name: str
    run: Callable[[], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status."""
    parser = make_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and not options.passes_rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    # Line by line, so that our lines and those of the children keep their order in a pipe.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, errors="replace")
    try:
        status: int = options.command(Environment(ROOT), options, rest)
    except Problem as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    return status


def make_parser() -> argparse.ArgumentParser:
    """The command line; every command gets (environment, options, remaining arguments)."""
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, command, passes_rest, text in (
        ("run", run, True, "open the window; other arguments go to `python -m app`"),
        ("test", test, False, "linters, types, contracts, tests and the window's self-test"),
        ("lint", lint, False, "linters, types and contracts"),
        ("build", build, True, "build the frozen application and try it; --variant, --no-archive"),
        ("bench", bench, True, BENCH_HELP),
    ):
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.add_argument(
            "--torch-index",
            metavar="URL",
            help="package index for torch (see README.md); remembered; '' is the usual one",
        )
        if command is test:
            sub.add_argument(
                "--frozen", action="store_true", help="only the tests of the build in dist/"
            )
        sub.set_defaults(command=command, passes_rest=passes_rest)
    return parser


def run(environment: Environment, options: argparse.Namespace, rest: list[str]) -> int:
    """Opens the window. Without the starter model it opens too and says so itself."""
    if sys.platform == "linux":
        qt_libraries.check_display(os.environ)
    environment.prepare([RUNTIME], options.torch_index)
    check_qt(environment, qt_libraries.platform_of(os.environ), may_install=False)
    if not own_model(rest) and fetch_starter_model(environment, rest) != 0:
        print("Going on without the starter model: the window offers other models.", flush=True)
    return environment.run_here("-m", "app", *rest)


def test(environment: Environment, options: argparse.Namespace, rest: list[str]) -> int:
    """Every check of the project; all of them run even when an early one fails.

    With ``--frozen`` only what tries the build in dist/.
    """
    environment.prepare([RUNTIME, DEVELOPMENT], options.torch_index)
    check_qt(environment, "offscreen", may_install=True)
    if options.frozen:
        return environment.run("-m", "pytest", "-m", "frozen", "tests/packaging", env=OFFSCREEN)
    steps = [
        *lint_steps(environment),
        # Before the tests, which use it too, so that its progress is seen.
        Step("starter model", lambda: fetch_starter_model(environment, [])),
        Step("pytest", lambda: quick_tests(environment)),
        Step("window self-test", lambda: self_test(environment)),
    ]
    return run_steps(steps)


def quick_tests(environment: Environment) -> int:
    """All tests but those that take long or need what is not everywhere."""
    arguments = ("-m", "pytest", "-m", QUICK_TESTS, *WORKERS)
    return environment.run(*arguments, env=OFFSCREEN | ONE_THREAD)


def lint(environment: Environment, options: argparse.Namespace, rest: list[str]) -> int:
    """The checks that run no test."""
    environment.prepare([RUNTIME, DEVELOPMENT], options.torch_index)
    return run_steps(lint_steps(environment))


def build(environment: Environment, options: argparse.Namespace, rest: list[str]) -> int:
    """The frozen application, made and tried by build.py."""
    environment.prepare([RUNTIME, BUILD], options.torch_index)
    check_qt(environment, "offscreen", may_install=True)
    if fetch_starter_model(environment, []) != 0:
        raise Problem(
            "The build carries the starter model, and it could not be fetched.",
            "see the message above; once it is there, the build needs no network.",
        )
    return environment.run("packaging/build.py", *rest, env={"PYTHONPATH": str(ROOT)})


def bench(environment: Environment, options: argparse.Namespace, rest: list[str]) -> int:
    """A benchmark under tests/benchmarks with the remaining arguments."""
    environment.prepare([RUNTIME, DEVELOPMENT], options.torch_index)
    script = "gui" if rest[:1] and rest[0] in GUI_BENCHMARKS else "engine"
    return environment.run_here(str(ROOT / "tests" / "benchmarks" / f"{script}.py"), *rest)


def lint_steps(environment: Environment) -> list[Step]:
    """Linter, format, types and import contracts."""
    return [
        Step("ruff check", lambda: environment.run("-m", "ruff", "check", ".")),
        Step("ruff format", lambda: environment.run("-m", "ruff", "format", "--check", ".")),
        Step("mypy", lambda: environment.run("-m", "mypy")),
        Step("import contracts", lambda: environment.run("-c", LINT_IMPORTS)),
    ]


def run_steps(steps: Sequence[Step]) -> int:
    """Runs all steps, prints what became of each, and returns 1 if one failed."""
    lines = []
    failed = 0
    for step in steps:
        print(f"\n== {step.name}", flush=True)
        start = time.perf_counter()
        status = step.run()
        seconds = time.perf_counter() - start
        failed += status != 0
        lines.append(f"{'ok' if status == 0 else 'FAILED':8}{step.name} ({seconds:.1f} s)")
    print("\n" + "\n".join(lines), flush=True)
    return 1 if failed else 0


def self_test(environment: Environment) -> int:
    """The main job in a real, invisible window with the real model.

    How long the window stood still says more of a machine that is busy elsewhere than of the
    program: a run that failed for nothing else is done again. Any other fault counts at once.
    """
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    arguments = ["--json", str(folder / "self-test.json")]
    arguments += ["--screenshot", str(folder / "self-test.png")]
    for attempt in range(1, SELF_TEST_ATTEMPTS + 1):
        status, errors = environment.run_with_errors(
            "-m", "app", "--self-test", *arguments, env=OFFSCREEN
        )
        if status == 0 or not was_only_slow(errors):
            break
        print(f"Too slow, {attempt} of {SELF_TEST_ATTEMPTS} runs.", flush=True)
    return status


def was_only_slow(errors: str) -> bool:
    """Whether a failed self-test failed for its times alone. ``errors``: what it complained of."""
    faults = [line for line in errors.splitlines() if line.startswith("self-test: ")]
    return bool(faults) and all(TOO_SLOW.match(fault) for fault in faults)


def own_model(arguments: Sequence[str]) -> bool:
    """Whether the arguments name another model, or a recording that needs none."""
    return any(a.split("=")[0] in ("--model", "--trace", "--help", "-h") for a in arguments)


def fetch_starter_model(environment: Environment, arguments: Sequence[str]) -> int:
    """Fetches the starter model into the folder that ``arguments`` or the application name."""
    folder = models_dir_argument(arguments)
    if folder is None:
        try:
            code = "from app.paths import models_dir; print(models_dir())"
            folder = environment.output("-c", code).strip()
        except subprocess.CalledProcessError as error:
            return int(error.returncode)
    return environment.run_here("-m", "engine.loading.starter_model", folder)


def models_dir_argument(arguments: Sequence[str]) -> str | None:
    """The value of ``--models-dir`` among the application's arguments."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--models-dir":
            return value if equals else next(iter(arguments[index + 1 :]), None)
    return None


def check_qt(environment: Environment, platform: str, *, may_install: bool) -> None:
    """Raises ``Problem`` when Qt lacks system libraries. Linux only."""
    if sys.platform != "linux":
        return
    qt_folder = environment.site_packages / "PySide6" / "Qt"
    missing = qt_libraries.missing_libraries(qt_folder, platform)
    if may_install:
        packages, _unknown = qt_libraries.debian_packages(missing)
        if not qt_libraries.has_fonts():
            packages.append(qt_libraries.FONT_PACKAGE)
        if qt_libraries.install_on_debian(packages):
            missing = qt_libraries.missing_libraries(qt_folder, platform)
    if missing:
        raise qt_libraries.libraries_problem(platform, missing)
