"""What goes into the frozen application and what stays out, for linux.spec and windows.spec."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "packaging" / "requirements.txt"
NAME = "quire"
Entry = tuple[str, str, str]
"""Of PyInstaller's tables: place in the bundle, source, kind."""
STARTER_FOLDER = "starter"
"""Where the engine of a frozen program looks for the starter model's GGUF."""

CPU = "cpu"
CUDA = "cuda"
SOURCES_VARIABLE = "QUIRE_BUILD_SOURCES"
"""Where a specification writes the list of files that the bundle was made from."""

MATHS_PACKAGES = ("ziamath", "ziafont", "latex2mathml")
TRITON = "triton"
TRITON_PARTS_VARIABLE = "QUIRE_TRITON_PARTS"
"""What triton_parts.py has made for the CUDA variant; not set where there is none."""

# Modules that analysis would bring in and nothing of ours reaches.
EXCLUDED_MODULES = [
    "tkinter",  # another GUI library, through an optional import of PIL and others
    "transformers",  # only tests and benchmarks use it
    "pytest",
    "_pytest",
    "IPython",
    "matplotlib",
    "pandas",
    "tensorboard",
    "setuptools",  # torch's extension builder only
    "torch.utils.tensorboard",
    "PIL",  # pictures of torch's exporters
    "hypothesis",
    "requests",  # models are fetched with httpx2; the same holds for its certificates
    "certifi",
    "urllib3",
    "hf_xet",  # another way to fetch, which is not used
    "rich",  # for terminals
    "readline",  # for terminals too, and under the GPL
    "_gdbm",  # the same
    "dbm.gnu",
    "curses",
    "PySide6.QtQml",
    "PySide6.QtQuick",
    "PySide6.QtDesigner",
]

# Asked for by name only, or by modules that fill themselves when something is asked of them.
HIDDEN_IMPORTS = [
    "huggingface_hub.errors",
    "huggingface_hub.file_download",
    "huggingface_hub.hf_api",
    "huggingface_hub.utils",
    "httpx2",
    "keyring",
]

# Files, as patterns on their place in the bundle (fnmatch: * crosses folders).
DROPPED_FILES = [
    "torch/include/*",  # headers for extensions
    "torch/share/*",
    "torch/test/*",
    "torch/testing/_internal/*",  # torch's own test-suite
    "torch/bin/protoc*",
    "torch/bin/test_*",
    "torch/lib/*.a",
    "torch/lib/*.lib",
    "PySide6/Qt/qml/*",  # no QML in the application
    "PySide6/qml/*",
    "PySide6/Qt/lib/libQt6Qml*",
    "PySide6/Qt/lib/libQt6Quick*",
    "PySide6/Qt/plugins/qmltooling/*",
    "PySide6/Qt/plugins/sqldrivers/*",  # Python's own sqlite3 is used
    "PySide6/plugins/sqldrivers/*",
    "PySide6/Qt/plugins/platforms/libqeglfs*",  # screens without a desktop
    "PySide6/Qt/plugins/platforms/libqlinuxfb*",
    "PySide6/Qt/plugins/platforms/libqvkkhrdisplay*",
    "PySide6/Qt/plugins/platforms/libqvnc*",
    "PySide6/Qt/plugins/egldeviceintegrations/*",
    "PySide6/Qt/lib/libQt6EglF[Ss]*",
    "libQt6EglF[Ss]*",
    "hypothesis-*.dist-info/*",  # some hook copies it for a library that can do without
    "PySide6/Qt/plugins/platforms/libqminimalegl*",
    "PySide6/Qt/plugins/generic/*",  # devices without a display server
    "PySide6/plugins/generic/*",
    "PySide6/Qt/plugins/tls/*",  # the window itself asks nothing of the network
    "PySide6/plugins/tls/*",
    "PySide6/Qt/plugins/networkinformation/*",
    "PySide6/plugins/networkinformation/*",
    # It would bring this machine's GTK, which quarrels with the themes of another.
    "PySide6/Qt/plugins/platformthemes/libqgtk3*",
    "libwayland-*",  # must be the one that the graphics driver uses
    "resources/screenshots/*",  # for README.md
    "triton/_C/FileCheck*",  # of Triton's own tests
    "triton/FileCheck*",
    "triton/backends/amd/*.bc",
    "triton/backends/amd/lib/*",  # the engine knows NVIDIA's cards only
    "triton/backends/nvidia/bin/cuobjdump*",  # to look at machine code; nothing here does
    "triton/backends/nvidia/bin/nvdisasm*",
    "triton/backends/nvidia/lib/cupti*",  # the profiler's
    "triton/profiler/*",
    "triton/_C/libproton*",
]
# Asked first: these stay whatever they match. Without any of them `import torch` dies.
KEPT_FILES = [
    "torch/bin/torch_shm_manager*",
    "torch/testing/_internal/__init__.py",
    "torch/testing/_internal/common_dtype.py",
    "torch/testing/_internal/logging_tensor.py",
]

# Qt's own texts (buttons of standard dialogs) in the languages of the application.
KEPT_QT_TRANSLATIONS = ["*/translations/qtbase_en*", "*/translations/qtbase_zh_CN*"]


def kept(destination: str) -> bool:
    """Whether a collected file stays. ``destination``: its path in the bundle."""
    name = destination.replace("\\", "/")
    if matches(name, KEPT_FILES):
        return True
    if "/translations/" in name and name.startswith("PySide6/"):
        return matches(name, KEPT_QT_TRANSLATIONS)
    return not matches(name, DROPPED_FILES)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether ``name`` fits one of ``patterns``, upper and lower case told apart."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def source_name(module: str, file_name: str) -> str:
    """Where the bundle would keep a module's source: torch.nn → torch/nn/__init__.py."""
    folder = module if file_name == "__init__.py" else module.rpartition(".")[0]
    return f"{folder.replace('.', '/')}/{file_name}".lstrip("/")


def analysis_arguments(starter_gguf: str, variant: str) -> dict[str, Any]:
    """Arguments of PyInstaller's ``Analysis``.

    Args:
        starter_gguf: the model file to carry.
        variant: ``CPU`` or ``CUDA``; only the second carries Triton.
    """
    # Here, so that the rest can be tested where PyInstaller is not installed.
    from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

    # Without its metadata Triton finds none of its backends and says "0 active drivers".
    with_metadata = {
        *(name for name in installed(REQUIREMENTS) if is_without_triton(name)),
        *triton_distributions(variant),
    }
    return {
        "scripts": [str(ROOT / "app" / "__main__.py")],
        "pathex": [str(ROOT)],
        "datas": [
            (str(ROOT / "resources"), "resources"),
            (starter_gguf, STARTER_FOLDER),
            # gguf asks for its own version while it is imported; the window shows all versions.
            *(entry for name in sorted(with_metadata) for entry in copy_metadata(name)),
            # Fonts and tables of signs.
            *(f for name in MATHS_PACKAGES for f in collect_data_files(name)),
            *(triton_data() if variant == CUDA else ()),
        ],
        # engine.worker is imported by name, so that engine.api does not depend on it.
        "hiddenimports": HIDDEN_IMPORTS
        + [
            module
            for package in ("app", "engine", "kernels")
            for module in collect_submodules(
                package, filter=lambda name: variant == CUDA or is_without_triton(name)
            )
        ],
        "excludes": excluded_modules(variant),
        # @triton.jit reads its function's source from a file. Triton's own modules are left to its
        # hook: another mode for them breaks it.
        "module_collection_mode": {"kernels": "pyz+py"},
    }


def excluded_modules(variant: str) -> list[str]:
    """``EXCLUDED_MODULES``, and for ``CPU`` Triton with its 1 GB of compilers."""
    return EXCLUDED_MODULES + ([TRITON] if variant == CPU else [])


def is_without_triton(module: str) -> bool:
    """Whether a module or distribution, by its name, is none that needs Triton or brings it."""
    return "triton" not in module


def triton_data() -> list[tuple[str, str]]:
    """(source, folder in the bundle) of what Triton needs beside its package."""
    # Python's headers, for a Triton that asks for more modules than the bundle has: with them a C
    # compiler alone is enough.
    include = sysconfig.get_path("include")
    found = [(include, f"include/{Path(include).name}")]
    if parts := os.environ.get(TRITON_PARTS_VARIABLE):
        found.append((parts, "triton_parts"))
    return found


def triton_distributions(variant: str) -> list[str]:
    """The distributions that bring Triton here: none for ``CPU``."""
    if variant == CPU:
        return []
    found = metadata.packages_distributions().get(TRITON, [])
    return sorted(set(found))


def installed(requirements: Path) -> list[str]:
    """The distributions that a requirements file names and that are installed."""
    names = []
    for line in requirements.read_text(encoding="utf-8").splitlines():
        name = line.partition("#")[0].partition("==")[0].strip()
        if name:
            with suppress(metadata.PackageNotFoundError):
                metadata.version(name)
                names.append(name)
    return names


def trim(analysis: Any) -> None:
    """Drops from a finished ``Analysis`` what ``kept`` refuses, as modules and as files.

    Writes the files that the rest was made from to ``SOURCES_VARIABLE``, if that is set: the
    licences are collected from this list.
    """
    analysis.pure = [
        entry for entry in analysis.pure if kept(source_name(entry[0], Path(entry[1]).name))
    ]
    analysis.binaries = [entry for entry in analysis.binaries if kept(entry[0])]
    if sys.platform == "linux":
        analysis.binaries = without_orphans(analysis.binaries)
    analysis.datas = [entry for entry in analysis.datas if kept(entry[0])]
    if place := os.environ.get(SOURCES_VARIABLE):
        parts = (analysis.pure, analysis.binaries, analysis.datas)
        Path(place).write_text(
            json.dumps(sorted({entry[1] for part in parts for entry in part if entry[1]})),
            encoding="utf-8",
        )


def without_orphans(binaries: Sequence[Entry]) -> list[Entry]:
    """``binaries`` without the system's libraries that only dropped files have asked for. Linux."""
    libraries = {entry[0] for entry in binaries if is_system_library(entry[0])}
    roots = [
        entry[1] for entry in binaries if entry[0] not in libraries and Path(entry[1]).exists()
    ]
    done = subprocess.run(
        ["ldd", *(root for root in roots if Path(root).exists())],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    needed = {line.split()[0] for line in done.stdout.splitlines() if " => " in line}
    return [entry for entry in binaries if entry[0] not in libraries - needed]


def is_system_library(destination: str) -> bool:
    """Whether a place in the bundle is one for libraries that came from the system's folders."""
    if "/" in destination or ".so" not in destination:
        return False
    # The bootloader loads Python's own by its name.
    return destination.startswith("lib") and not destination.startswith("libpython")
