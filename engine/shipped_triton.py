"""What a build for users ships so that Triton needs no C compiler on their machines.

Triton talks to the driver through a module in C that it compiles at its first use, with the
system's compiler and Python's headers. A build carries that module ready made, named by its source,
and Triton's build hook finds it. Triton 3.6 also compiles C to launch kernels, which nobody can
make ahead: engine.triton_launcher launches them instead. A build can carry compiled kernels too;
those that it lacks are compiled as ever, which needs nothing but Triton's own tools, and kept in
the user's cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from engine.triton_launcher import use_python_launchers

FOLDER = "triton_parts"
MODULES = "modules"
KERNELS = "kernels"
KEY = "key"
CACHE_VARIABLE = "TRITON_CACHE_DIR"
_HASH_LETTERS = 40

Build = Callable[[str, str, str, list[str], list[str], list[str]], str]
"""Of Triton's hook: (name, source file, folder, library folders, include folders, libraries) → the
compiled file.
"""


def parts_folder() -> Path | None:
    """Where a build for users has its parts; None elsewhere, or if it has none."""
    if not getattr(sys, "frozen", False):
        return None
    folder = Path(getattr(sys, "_MEIPASS", "")) / FOLDER
    return folder if folder.is_dir() else None


def use_shipped_parts(environ: MutableMapping[str, str], folder: Path | None = None) -> None:
    """Makes Triton use what the build ships, before its first kernel. Nothing happens elsewhere.

    Args:
        environ: gets the folder for compiled kernels, unless the user has named one.
        folder: the parts; None: those of this build.
    """
    folder = folder or parts_folder()
    if folder is None:
        return
    if CACHE_VARIABLE not in environ:
        # Triton's own choice lies in the user's home, beside no other file of this program.
        import platformdirs

        environ[CACHE_VARIABLE] = str(
            Path(platformdirs.user_cache_dir("Quire", appauthor=False)) / "triton"
        )
    from triton import knobs

    if (folder / KEY).is_file():
        from triton.runtime import cache

        # Triton names kernels by all of its own files, 300 MB that it would read at each start.
        key = (folder / KEY).read_text(encoding="ascii")
        cache.triton_key = lambda: key
    # triton-windows brings a compiler of its own: builds for Windows ship no modules.
    if (folder / MODULES).is_dir():
        from triton.backends.nvidia import driver

        knobs.build.impl = build_hook(folder / MODULES)
        use_python_launchers(driver)
    if (folder / KERNELS).is_dir():
        knobs.cache.manager_class = cache_manager(folder / KERNELS)


def module_file(name: str, source: bytes) -> str:
    """The file name of a compiled module: it tells the source and the Python that it is for."""
    digest = hashlib.sha256(source).hexdigest()[:_HASH_LETTERS]
    return f"{name}-{digest}{sysconfig.get_config_var('EXT_SUFFIX')}"


def build_hook(modules: Path) -> Build:
    """A hook that takes modules from a folder and has a compiler make those that are not there."""

    def build(
        name: str,
        source: str,
        folder: str,
        library_folders: list[str],
        include_folders: list[str],
        libraries: list[str],
    ) -> str:
        shipped = modules / module_file(name, Path(source).read_bytes())
        if shipped.is_file():
            return str(shipped)
        if not has_compiler():
            raise RuntimeError(
                f"this build does not ship Triton's module {name} for this version of Triton, and "
                "there is no C compiler to make it: install gcc, or a build of this version"
            )
        return _compile(name, source, folder, library_folders, include_folders, libraries)

    return build


def has_compiler() -> bool:
    """Whether Triton would find a C compiler."""
    return bool(os.environ.get("CC")) or any(map(shutil.which, ("gcc", "clang")))


def _compile(
    name: str,
    source: str,
    folder: str,
    library_folders: list[str],
    include_folders: list[str],
    libraries: list[str],
) -> str:
    """Triton's own way, with this hook out of it meanwhile."""
    from triton import knobs
    from triton.runtime import build

    hook, knobs.build.impl = knobs.build.impl, None
    try:
        made = build._build(name, source, folder, library_folders, include_folders, libraries, [])
    finally:
        knobs.build.impl = hook
    return str(made)


def cache_manager(shipped: Path) -> type[Any]:
    """Triton's cache of compiled kernels in the user's folder, over a read-only one."""
    from triton.runtime.cache import FileCacheManager

    class ShippedCacheManager(FileCacheManager):  # type: ignore[misc]
        """Reads what the user's folder lacks from the build's."""

        def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
            super().__init__(key, override, dump)
            self._shipped = None if override or dump else shipped / key

        def get_file(self, filename: str) -> str | None:
            found: str | None = super().get_file(filename)
            if found is None and self._shipped is not None:
                path = self._shipped / filename
                return str(path) if path.is_file() else None
            return found

        def get_group(self, filename: str) -> dict[str, str] | None:
            found: dict[str, str] | None = super().get_group(filename)
            if found is None and self._shipped is not None:
                return read_group(self._shipped, filename)
            return found

    return ShippedCacheManager


def group_file(filename: str) -> str:
    """The file that lists what belongs to a compiled kernel, as Triton names it."""
    return f"__grp__{filename}"


def read_group(folder: Path, filename: str) -> dict[str, str] | None:
    """A shipped kernel's files by name; None if it is not there whole.

    Triton writes whole paths into the list, which are those of the machine of the build.
    """
    try:
        listed = json.loads((folder / group_file(filename)).read_text(encoding="utf-8"))
        names = list(listed["child_paths"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found = {name: str(folder / name) for name in names}
    return found if all(Path(path).is_file() for path in found.values()) else None
