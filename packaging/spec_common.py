"""What goes into the frozen application and what stays out, for linux.spec and windows.spec."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAME = "quire"
STARTER_FOLDER = "starter"
"""Where the engine of a frozen program looks for the starter model's GGUF."""

# Modules that analysis would bring in and nothing of ours reaches.
EXCLUDED_MODULES = [
    "tkinter",  # another GUI library, through an optional import of PIL and others
    "transformers",  # only tests and benchmarks use it
    "triton",  # the CPU variant has no use for its 1 GB of compilers
    "pytest",
    "hypothesis",
    "_pytest",
    "IPython",
    "matplotlib",
    "pandas",
    "tensorboard",
    "setuptools",  # torch's extension builder only
    "torch.utils.tensorboard",
    "PySide6.QtQml",
    "PySide6.QtQuick",
    "PySide6.QtDesigner",
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


def analysis_arguments(starter_gguf: str) -> dict[str, Any]:
    """Arguments of PyInstaller's ``Analysis``. ``starter_gguf``: the model file to carry."""
    # Here, so that the rest can be tested where PyInstaller is not installed.
    from PyInstaller.utils.hooks import collect_submodules, copy_metadata

    return {
        "scripts": [str(ROOT / "app" / "__main__.py")],
        "pathex": [str(ROOT)],
        "datas": [
            (str(ROOT / "resources"), "resources"),
            (starter_gguf, STARTER_FOLDER),
            # gguf asks for its own version while it is imported.
            *copy_metadata("gguf"),
        ],
        # engine.worker is imported by name, so that engine.api does not depend on it.
        "hiddenimports": [
            module
            for package in ("app", "engine", "kernels")
            for module in collect_submodules(package, filter=lambda name: "triton" not in name)
        ],
        "excludes": EXCLUDED_MODULES,
        # @triton.jit reads its function's source from a file.
        "module_collection_mode": {"kernels": "pyz+py"},
    }


def trim(analysis: Any) -> None:
    """Drops from a finished ``Analysis`` what ``kept`` refuses, as modules and as files."""
    analysis.pure = [
        entry for entry in analysis.pure if kept(source_name(entry[0], Path(entry[1]).name))
    ]
    analysis.binaries = [entry for entry in analysis.binaries if kept(entry[0])]
    analysis.datas = [entry for entry in analysis.datas if kept(entry[0])]
