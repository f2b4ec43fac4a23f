"""Who may import whom, and the names that have bitten: each guard says what breaks without it."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import packaging.version
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("app", "engine", "kernels")
STANDARD_LIBRARY = sys.stdlib_module_names

# What each package may import besides the standard library. The longest matching prefix decides.
ALLOWED_IMPORTS = {
    "kernels": {"kernels", "torch", "triton"},
    "engine.api": {"engine.api"},
    "engine": {
        "engine", "kernels", "torch", "numpy", "tokenizers", "safetensors", "gguf", "jinja2",
        "transformers", "huggingface_hub", "psutil",
    },
    # Triton's own settings have to be changed before kernels are reached.
    "engine.shipped_triton": {"triton", "platformdirs", "engine.triton_launcher"},
    "app": {
        "app", "engine.api", "PySide6", "shiboken6", "numpy", "markdown_it", "pygments",
        "platformdirs", "keyring", "psutil", "ziamath", "charset_normalizer", "jeepney",
        "huggingface_hub", "httpx2",
    },
}  # fmt: skip
NOT_ON_EVERY_MACHINE = {"triton"}
POSIX_ONLY = {"fcntl", "grp", "pty", "pwd", "readline", "resource", "termios", "tty"}

LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def source_files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Every absolute module name that ``tree`` imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}: write it out"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_level(tree: ast.Module) -> ast.Module:
    """``tree`` without what runs later (functions) or never (type checking)."""

    class Cutter(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.AST | None:
            condition = ast.unparse(node.test)
            if "TYPE_CHECKING" in condition or "platform" in condition:
                return None
            return self.generic_visit(node)

    return Cutter().visit(tree)


def starts_with(name: str, prefixes: set[str]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def run_python(code: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(cwd), "QT_QPA_PLATFORM": "offscreen", "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, encoding="utf-8", check=False
    )


def loaded_after_import_of(modules: list[str]) -> set[str]:
    """Names in sys.modules of a fresh process after importing ``modules``."""
    code = f"""
import importlib, json, sys
for name in {modules!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Triton exists where there is a GPU; everything else must be there.
        if error.name != "triton":
            raise
print(json.dumps(sorted(sys.modules)))
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def modules_of(package: str) -> list[str]:
    files = source_files(package.replace(".", "/"))
    return [module_name(path) for path in files if path.name != "__main__.py"]


# --- imports as written ---------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_imports_only_what_it_may(package: str) -> None:
    wrong = []
    for path in source_files(package):
        name = module_name(path)
        rule = max((r for r in ALLOWED_IMPORTS if starts_with(name, {r})), key=len)
        for imported in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
            if imported.split(".")[0] in STANDARD_LIBRARY:
                continue
            if not starts_with(imported, ALLOWED_IMPORTS[rule]):
                wrong.append(f"{name} imports {imported}")
    assert not wrong, wrong


def test_engine_imports_transformers_only_inside_functions() -> None:
    # It costs seconds, and is needed for rare models only.
    for path in source_files("engine"):
        tree = module_level(ast.parse(path.read_text(encoding="utf-8")))
        assert not [i for i in imports_of(tree) if starts_with(i, {"transformers"})], path


def test_engine_never_imports_modelling_code_of_transformers() -> None:
    # transformers looks for a distribution named `kernels` there, and would find our package.
    forbidden = re.compile(r"transformers\.(models|modeling_\w+|AutoModel\w*|\w+ForCausalLM)\b")
    for path in source_files("engine"):
        found = [
            i for i in imports_of(ast.parse(path.read_text(encoding="utf-8"))) if forbidden.match(i)
        ]
        assert not found, f"{path.name}: {found}"


@pytest.mark.parametrize("package", ["app", "engine"])
def test_no_import_that_windows_lacks_at_module_level(package: str) -> None:
    for path in source_files(package):
        tree = module_level(ast.parse(path.read_text(encoding="utf-8")))
        assert not [i for i in imports_of(tree) if i.split(".")[0] in POSIX_ONLY], path


def test_each_imported_library_is_pinned_for_users() -> None:
    pinned = {
        line.split("==")[0].lower()
        for line in (ROOT / "packaging" / "requirements.txt").read_text(encoding="utf-8").split()
        if "==" in line
    }
    distributions = importlib.metadata.packages_distributions()
    missing = set()
    for path in (p for package in PACKAGES for p in source_files(package)):
        for imported in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
            top = imported.split(".")[0]
            if top in STANDARD_LIBRARY or top in PACKAGES or top in NOT_ON_EVERY_MACHINE:
                continue
            names = {name.lower().replace("_", "-") for name in distributions.get(top, [])}
            if not names & pinned:
                missing.add(f"{module_name(path)} imports {top}")
    assert not missing, missing


# --- imports as they happen -----------------------------------------------------------------------


def test_interface_loads_the_standard_library_only() -> None:
    loaded = {name.split(".")[0] for name in loaded_after_import_of(modules_of("engine.api"))}
    # The environment's own start-up files (a .pth) may load these before any code of ours.
    at_start = {name.split(".")[0] for name in loaded_after_import_of([])}
    assert "engine" in loaded
    assert loaded - at_start - STANDARD_LIBRARY == {"engine"}


def test_engine_and_kernels_load_no_qt() -> None:
    loaded = loaded_after_import_of([*modules_of("kernels"), *modules_of("engine")])
    assert "engine.request" in loaded
    assert not {n for n in loaded if starts_with(n, {"PySide6", "shiboken6", "app"})}


def test_whole_application_loads_neither_torch_nor_engine_internals() -> None:
    # The window opens before torch is imported; the engine's own thread imports it.
    loaded = loaded_after_import_of(modules_of("app"))
    assert "PySide6.QtWidgets" in loaded
    heavy = {"torch", "triton", "transformers", "tokenizers", "safetensors", "gguf", "kernels"}
    assert not {n for n in loaded if starts_with(n, heavy)}
    assert not {n for n in loaded if n.startswith("engine.") and not starts_with(n, {"engine.api"})}


# --- contracts ------------------------------------------------------------------------------------


def test_import_contracts_hold() -> None:
    done = run_python(LINT_IMPORTS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """Three packages that keep every contract, under the project's own contracts."""
    files = {
        "app/__init__.py": "",
        "app/bridge.py": "import engine.api.client\n",
        "engine/__init__.py": "",
        "engine/api/__init__.py": "",
        "engine/api/client.py": "import queue\n",
        "engine/core.py": "import kernels.ops\n",
        "kernels/__init__.py": "",
        "kernels/ops.py": "import torch\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_accept_the_intended_directions(small_tree: Path) -> None:
    done = run_python(LINT_IMPORTS, small_tree)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("importer", "imported", "contract"),
    [
        ("kernels/ops.py", "engine.core", "kernels"),
        ("engine/core.py", "PySide6.QtCore", "engine"),
        ("engine/core.py", "app.bridge", "engine"),
        ("engine/api/client.py", "torch", "api"),
        ("engine/api/client.py", "engine.core", "api"),
        ("app/bridge.py", "engine.core", "app"),
        ("app/bridge.py", "kernels.ops", "app"),
        ("app/bridge.py", "torch", "app"),
    ],
)
def test_contracts_catch_a_planted_import(
    small_tree: Path, importer: str, imported: str, contract: str
) -> None:
    with (small_tree / importer).open("a", encoding="utf-8") as file:
        file.write(f"import {imported}\n")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    name = next(c["name"] for c in contracts if c["id"] == contract)

    done = run_python(LINT_IMPORTS, small_tree)

    assert done.returncode == 1
    assert f"{name} BROKEN" in done.stdout


# --- names that bite ------------------------------------------------------------------------------


def test_packaging_folder_does_not_hide_the_packaging_library() -> None:
    # With packaging/__init__.py PyInstaller fails, and a frozen build dies when it starts.
    assert not (ROOT / "packaging" / "__init__.py").exists()
    assert packaging.version.Version("1.10") > packaging.version.Version("1.9")
    assert ROOT / "packaging" not in Path(packaging.version.__file__).parents


def test_no_distribution_named_kernels_is_installed() -> None:
    try:
        version = importlib.metadata.version("kernels")
    except importlib.metadata.PackageNotFoundError:
        return
    pytest.fail(
        f"The distribution `kernels` {version} is installed and takes the name of our package: "
        "`pip uninstall kernels`, or delete .venv and run packaging/dev.py again."
    )


def test_no_init_file_under_tests() -> None:
    # tests/engine/__init__.py would make tests/engine the package `engine`.
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("script", ["engine.py", "gui.py"])
def test_benchmark_script_finds_our_packages(script: str) -> None:
    # As a script its own folder comes first on the path, and an engine.py lies there.
    folder = ROOT / "tests" / "benchmarks"
    code = f"""
import runpy, sys
sys.path[0] = {str(folder)!r}
runpy.run_path({str(folder / script)!r}, run_name="imported")
import engine.api.client
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def tracked_files() -> list[Path]:
    """The files of the tree; without git everything but build output."""
    if git := shutil.which("git"):
        done = subprocess.run(
            [git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        # It refuses a folder that belongs to somebody else.
        if done.returncode == 0:
            names = done.stdout.split("\0")
            return [path for name in names if name and (path := ROOT / name).exists()]
    skipped = {"build", "dist", "__pycache__"}
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not any(p in skipped or p.startswith(".") for p in path.relative_to(ROOT).parts)
    ]


def test_no_path_of_somebodys_machine_in_the_tree() -> None:
    posix = r"(?<![\w.~/])/(?:home|root|work|Users)/\w"
    windows = r"[A-Za-z]:\\{1,2}Users\\{1,2}\w"
    personal = re.compile(f"{posix}|{windows}")
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # pictures and the like
            continue
        if match := personal.search(text):
            found.append(f"{path.relative_to(ROOT)}: {match.group(0)}")
    assert not found, found


# --- the Qt binding -------------------------------------------------------------------------------


REFERENCE_COUNTS = """
import sys
from PySide6.QtCore import QObject, Signal

class Sender(QObject):
    fired = Signal(bool)

sender = Sender()
received = 0

def count(value):
    global received
    received += 1

sender.fired.connect(count)
before = sys.getrefcount(None), sys.getrefcount(True)
for _ in range(2000):
    sender.setObjectName("x")
    sender.fired.emit(True)
after = sys.getrefcount(None), sys.getrefcount(True)
print(received, before[0] - after[0], before[1] - after[1])
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="None is immortal from Python 3.12 on")
def test_qt_binding_keeps_its_references_to_none_and_true() -> None:
    # PySide6 6.12.0 loses one on each void call or signal; the interpreter then aborts, which is
    # why this runs in a process of its own.
    done = run_python(REFERENCE_COUNTS)
    assert done.returncode == 0, done.stderr
    received, none_lost, true_lost = map(int, done.stdout.split())
    assert received == 2000
    assert abs(none_lost) < 20
    assert abs(true_lost) < 20
