"""Builds the frozen application for this platform, tries it, and prints what it weighs.

Run by `dev.py build` in the project's environment, with the starter model already fetched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from problem import Problem

ROOT = Path(__file__).resolve().parent.parent
NAME = "quire"
BUDGET_MB = 900
"""Unpacked size of the CPU variant, starter model included; MB are 10⁶ bytes."""
LISTED_COMPONENTS = 12
SELF_TEST_LIMIT_S = 600


def main() -> int:
    """Builds, tries and measures; returns the exit status."""
    bundle = ROOT / "dist" / NAME
    try:
        freeze(starter_gguf())
        if sys.platform == "linux":
            strip_libraries(bundle)
        print_sizes(bundle)
        status = try_out(bundle)
    except Problem as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    return status


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


def freeze(model: Path) -> None:
    """Runs PyInstaller into dist/. ``model``: the GGUF that the bundle carries."""
    spec = "windows.spec" if sys.platform == "win32" else "linux.spec"
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN"]
    command += ["--distpath", str(ROOT / "dist"), "--workpath", str(ROOT / "build" / "pyinstaller")]
    command.append(str(ROOT / "packaging" / spec))
    start = time.perf_counter()
    print(f"Freezing with {spec}; this takes some minutes …", flush=True)
    env = {**os.environ, "QUIRE_STARTER_GGUF": str(model)}
    if subprocess.call(command, cwd=ROOT, env=env) != 0:
        raise Problem("PyInstaller failed.", "its own message is above.")
    print(f"Frozen in {time.perf_counter() - start:.0f} s.", flush=True)


def strip_libraries(bundle: Path) -> None:
    """Takes the symbol tables out of torch's libraries, about 90 MB; nothing needs them."""
    strip = shutil.which("strip")
    if strip is None:
        print("Note: strip (package binutils) is missing, the build stays some 90 MB larger.")
        return
    # Only torch's: strip has broken libraries whose headers other tools had rewritten.
    for library in sorted(bundle.glob("_internal/torch/lib/libtorch*.so")):
        subprocess.check_call([strip, "--strip-unneeded", str(library)])


def component(path: Path) -> str:
    """Which part of the bundle a file belongs to; ``path`` is relative to the bundle."""
    parts = path.parts[1:] if path.parts[0] == "_internal" else path.parts
    if len(parts) == 1:
        return "Python and system libraries"
    name = parts[0].removesuffix(".libs")
    if name.endswith((".dist-info", ".egg-info")):
        return "package metadata"
    return {"lib-dynload": "Python and system libraries", "shiboken6": "PySide6"}.get(name, name)


def sizes(bundle: Path) -> Counter[str]:
    """Bytes of each component; links count nothing."""
    total: Counter[str] = Counter()
    for path in bundle.rglob("*"):
        if path.is_file() and not path.is_symlink():
            total[component(path.relative_to(bundle))] += path.stat().st_size
    return total


def print_sizes(bundle: Path) -> None:
    """The table of components, largest first, against the budget."""
    by_component = sizes(bundle)
    total = sum(by_component.values())
    listed = by_component.most_common(LISTED_COMPONENTS)
    print(f"\n{bundle}")
    for name, size in listed:
        print(f"  {size / 1e6:8.1f} MB  {name}")
    rest = total - sum(size for _name, size in listed)
    print(f"  {rest / 1e6:8.1f} MB  everything else")
    verdict = "within" if total <= BUDGET_MB * 1e6 else "OVER"
    print(f"  {total / 1e6:8.1f} MB  in all, {verdict} the budget of {BUDGET_MB} MB", flush=True)


def try_out(bundle: Path) -> int:
    """Runs the frozen program's self-test with nothing of ours in reach; returns its status."""
    program = bundle / (f"{NAME}.exe" if sys.platform == "win32" else NAME)
    report = ROOT / "build" / "frozen-self-test.json"
    report.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="quire é 張 ") as folder:
        env = clean_environment(Path(folder))
        command = [str(program), "--self-test", "--json", str(report)]
        print("\nSelf-test of the frozen program …", flush=True)
        try:
            status = subprocess.call(command, cwd=folder, env=env, timeout=SELF_TEST_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Problem(
                f"The frozen program's self-test did not end in {SELF_TEST_LIMIT_S} s.",
                f"start {program} by hand and look at what it prints.",
            ) from None
    print("Self-test passed." if status == 0 else f"Self-test FAILED, status {status}.", flush=True)
    return 1 if status else 0


def clean_environment(folder: Path) -> dict[str, str]:
    """An environment with no way to the source tree, and all the user's folders in ``folder``."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "QUIRE", "VIRTUAL"))}
    homes = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_DATA_HOME", "XDG_CACHE_HOME")
    env.update(dict.fromkeys((*homes, "XDG_CONFIG_HOME"), str(folder)))
    return {**env, "QT_QPA_PLATFORM": "offscreen", "PYTHONUTF8": "1"}


if __name__ == "__main__":
    sys.exit(main())
