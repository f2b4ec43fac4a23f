"""Builds the frozen application for this platform, tries it, and prints what it weighs.

Run by `dev.py build` in the project's environment, with the starter model already fetched.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# At the end: nothing of ours may take the name of an installed library.
sys.path.append(str(ROOT))

import archive  # noqa: E402  the modules below need the line above
import bundle_checks  # noqa: E402
import desktop_files  # noqa: E402
import licences  # noqa: E402
import sizes  # noqa: E402
import windows_installer  # noqa: E402
from problem import Problem  # noqa: E402
from spec_common import (  # noqa: E402
    CPU,
    CUDA,
    NAME,
    SOURCES_VARIABLE,
    TRITON_PARTS_VARIABLE,
)

SELF_TEST_LIMIT_S = 600
MAX_WARM_FIRST_PAINT_MS = 1500.0
ATTEMPTS = 3
"""Of a self-test: it measures how long the window stands still too, which a busy machine fails."""
MOST_COMPILING_RUNS = 6
"""Of self-tests of the CUDA variant: each compiles what those before it had no time for."""
AUTO = "auto"


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds, tries and measures; returns the exit status."""
    options = parser().parse_args(arguments)
    bundle = ROOT / "dist" / NAME
    try:
        variant = chosen_variant(options.variant)
        sources = freeze(starter_gguf(), variant)
        if sys.platform == "linux":
            strip_libraries(bundle)
        found = licences.collect(sources, bundle / bundle_checks.INTERNAL / licences.FOLDER)
        add_desktop_files(bundle)
        print(f"Licences of {len(found)} parts are in the bundle.", flush=True)
        bundle_checks.check_bundle(bundle)
        status = print_sizes(bundle, variant) + try_out(bundle, variant)
        if status == 0 and options.archive:
            status = pack(bundle, variant)
    except Problem as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    return 1 if status else 0


def parser() -> argparse.ArgumentParser:
    """The command line of `dev.py build`."""
    made = argparse.ArgumentParser(prog="dev.py build", description=__doc__, allow_abbrev=False)
    made.add_argument(
        "--variant",
        choices=(AUTO, CPU, CUDA),
        default=AUTO,
        help="auto: what the installed torch is for (see --torch-index)",
    )
    made.add_argument(
        "--no-archive", dest="archive", action="store_false", help="leave out the archive"
    )
    return made


def chosen_variant(asked: str) -> str:
    """The variant to build. Raises ``Problem`` if the installed torch is one for another."""
    import torch

    possible = CPU if torch.version.cuda is None else CUDA
    if asked in (AUTO, possible):
        return possible
    raise Problem(
        f"The {asked} variant was asked for, but torch {torch.__version__} is a build for the "
        f"{'CPU' if possible == CPU else 'GPU'}.",
        f"build the {possible} variant, or choose another torch with --torch-index (README.md).",
    )


def starter_gguf() -> Path:
    """The starter model's file in the ordinary model folder. Raises ``Problem`` if it is absent."""
    from app.paths import models_dir
    from engine.loading.starter_model import is_present, starter_path

    if not is_present(models_dir()):
        raise Problem(
            f"The starter model is not in {models_dir()}; the build carries it.",
            "start the build with `python3 packaging/dev.py build`, which fetches it.",
        )
    return starter_path(models_dir())


def freeze(model: Path, variant: str) -> list[str]:
    """Runs PyInstaller into dist/ and returns the files that the bundle was made from.

    ``model``: the GGUF that the bundle carries.
    """
    spec = "windows.spec" if sys.platform == "win32" else "linux.spec"
    work = ROOT / "build" / "pyinstaller"
    work.mkdir(parents=True, exist_ok=True)
    sources = work / "sources.json"
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN"]
    command += ["--distpath", str(ROOT / "dist"), "--workpath", str(work)]
    command.append(str(ROOT / "packaging" / spec))
    start = time.perf_counter()
    print(f"Freezing the {variant} variant with {spec}; this takes some minutes …", flush=True)
    env = {**os.environ, "QUIRE_STARTER_GGUF": str(model), "QUIRE_VARIANT": variant}
    env[SOURCES_VARIABLE] = str(sources)
    if variant == CUDA and sys.platform == "linux":
        import triton_parts

        parts = ROOT / "build" / "triton_parts"
        triton_parts.make_modules(parts)
        triton_parts.write_key(parts)
        env[TRITON_PARTS_VARIABLE] = str(parts)
    if subprocess.call(command, cwd=ROOT, env=env) != 0:
        raise Problem("PyInstaller failed.", "its own message is above.")
    print(f"Frozen in {time.perf_counter() - start:.0f} s.", flush=True)
    found: list[str] = json.loads(sources.read_text(encoding="utf-8"))
    return found


def strip_libraries(bundle: Path) -> None:
    """Takes the symbol tables out of torch's libraries and Python's; nothing needs them.

    That is about 90 MB of torch, and 20 of a Python that was compiled by its user.
    """
    strip = shutil.which("strip")
    if strip is None:
        print("Note: strip (package binutils) is missing, the build stays some 90 MB larger.")
        return
    # No others: strip has broken libraries whose headers other tools had rewritten.
    internal = bundle / bundle_checks.INTERNAL
    for library in (*internal.glob("torch/lib/libtorch*.so"), *internal.glob("libpython*.so.*")):
        subprocess.check_call([strip, "--strip-unneeded", str(library)])


def add_desktop_files(bundle: Path) -> None:
    """Copies what a desktop wants of a program beside the program: its entry, its icons."""
    work = ROOT / "build" / "desktop"
    work.mkdir(parents=True, exist_ok=True)
    for source, place in desktop_files.extra_files(sys.platform, work):
        target = bundle / place
        target.parent.mkdir(parents=True, exist_ok=True)
        # With its mode: one of them is a script.
        shutil.copy(source, target)


def print_sizes(bundle: Path, variant: str) -> int:
    """Prints the table of components against their budgets; 1 if the whole is too large."""
    by_component = sizes.sizes(bundle)
    print(f"\n{bundle}")
    print("\n".join(sizes.table(by_component, variant)), flush=True)
    total = sum(by_component.values())
    return 0 if sizes.is_within_budget(total, sizes.BUDGET_MB[variant]) else 1


def try_out(bundle: Path, variant: str) -> int:
    """Runs the frozen program's self-test twice with nothing of ours in reach; returns 0 or 1.

    The second start is a warm one, as all but a user's first are. Kernels that the first one has
    compiled become a part of the bundle.
    """
    with tempfile.TemporaryDirectory(prefix="quire é 張 ") as folder:
        print("\nSelf-test of the frozen program …", flush=True)
        if self_test(bundle, Path(folder)) is None:
            return 1
        if variant == CUDA:
            if not compile_kernels(bundle, Path(folder)):
                return 1
            keep_kernels(bundle, Path(folder))
        report = self_test(bundle, Path(folder))
    if report is None:
        return 1
    first_paint = float(str(report["first_paint_ms"]))
    print(
        f"Self-test passed twice. Second start: first paint after {first_paint:.0f} ms "
        f"(at most {MAX_WARM_FIRST_PAINT_MS:.0f}), model loaded in {report['load_s']} s.",
        flush=True,
    )
    if first_paint > MAX_WARM_FIRST_PAINT_MS:
        print("The first paint is TOO LATE.", flush=True)
        return 1
    return 0


def compile_kernels(bundle: Path, folder: Path) -> bool:
    """Runs self-tests until they compile nothing more; False if one fails.

    The program compiles what it may need soon in its idle moments, and a self-test has few.
    """
    cache = kernel_cache(folder)
    known, found = -1, len(list(cache.glob("*")))
    for _ in range(MOST_COMPILING_RUNS):
        if found == known:
            break
        if self_test(bundle, folder) is None:
            return False
        known, found = found, len(list(cache.glob("*")))
    return True


def kernel_cache(folder: Path) -> Path:
    """Where the frozen program keeps compiled kernels; ``folder``: all the user's folders."""
    return folder / "Quire" / "triton"


def keep_kernels(bundle: Path, folder: Path) -> None:
    """Moves the kernels that a self-test has compiled from its cache into the bundle."""
    import triton_parts
    from engine.shipped_triton import FOLDER, KERNELS

    cache = kernel_cache(folder)
    target = bundle / bundle_checks.INTERNAL / FOLDER / KERNELS
    print(f"{triton_parts.keep_kernels(cache, target)} compiled kernels go along.", flush=True)
    shutil.rmtree(cache, ignore_errors=True)


def self_test(bundle: Path, folder: Path) -> dict[str, object] | None:
    """The report of a self-test that passed; None if none did, which is printed."""
    program = bundle / (f"{NAME}.exe" if sys.platform == "win32" else NAME)
    report = ROOT / "build" / "frozen-self-test.json"
    command = [str(program), "--self-test", "--json", str(report)]
    env = clean_environment(folder)
    for attempt in range(1, ATTEMPTS + 1):
        report.unlink(missing_ok=True)
        try:
            status = subprocess.call(command, cwd=folder, env=env, timeout=SELF_TEST_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Problem(
                f"The frozen program's self-test did not end in {SELF_TEST_LIMIT_S} s.",
                f"start {program} by hand and look at what it prints.",
            ) from None
        if status == 0:
            found: dict[str, object] = json.loads(report.read_text(encoding="utf-8"))
            return found
        print(f"Self-test FAILED, status {status}, {attempt} of {ATTEMPTS}.", flush=True)
    return None


def clean_environment(folder: Path) -> dict[str, str]:
    """An environment with no way to the source tree and, on Linux, to any program.

    All the user's folders are ``folder``.
    """
    foreign = ("PYTHON", "QUIRE", "VIRTUAL", "TRITON", "LD_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(foreign) and k != "CC"}
    if sys.platform == "linux":
        # No compiler above all.
        env["PATH"] = str(folder)
    homes = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_DATA_HOME", "XDG_CACHE_HOME")
    env.update(dict.fromkeys((*homes, "XDG_CONFIG_HOME"), str(folder)))
    env.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder)))
    return {**env, "QT_QPA_PLATFORM": "offscreen", "PYTHONUTF8": "1"}


def pack(bundle: Path, variant: str) -> int:
    """Makes the archive with its sum, prints both; 1 if it is over its budget."""
    from app.versions import VERSION

    start = time.perf_counter()
    stem = bundle.with_name(archive.archive_name(NAME, VERSION, variant))
    made = archive.make_archive(bundle, stem)
    digest = archive.write_sum(made)
    size, budget = made.stat().st_size, sizes.ARCHIVE_BUDGET_MB[variant]
    fits = sizes.is_within_budget(size, budget)
    print(
        f"\n{made}: {size / 1e6:.1f} of {budget} MB{'' if fits else '  OVER'}, packed in "
        f"{time.perf_counter() - start:.0f} s\nSHA-256 {digest}",
        flush=True,
    )
    if sys.platform == "win32":
        installer = windows_installer.make_installer(bundle, VERSION, variant, bundle.parent)
        if installer is not None:
            print(f"{installer}\nSHA-256 {archive.write_sum(installer)}", flush=True)
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
