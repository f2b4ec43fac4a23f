"""Makes what the CUDA variant ships so that Triton needs no C compiler: see engine.shipped_triton.

The module in C through which Triton reaches the driver is compiled here, with the compiler of the
build machine; no GPU and no driver is needed for that. It is the only one that can be made ahead:
Triton 3.6 compiles another for each kernel's signature, and in its place engine.triton_launcher
launches kernels. Compiled kernels are those that the frozen program's self-test has left in its
cache: they fit GPUs of the build machine's generation.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path

from engine.shipped_triton import KEY, MODULES, group_file, module_file
from problem import Problem

DRIVER = "libcuda.so.1"
_KEPT = (".json", ".cubin")


class _Made(Exception):
    """The module is made; Triton need not load it, which takes a driver."""


def make_modules(parts: Path) -> list[Path]:
    """Compiles the modules in C that each kernel needs into ``parts`` and returns their paths.

    Raises:
        Problem: there is no C compiler, or it fails.
    """
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Problem(
            "There is no C compiler, and the CUDA variant ships a module of Triton's in C.",
            "install gcc where the build runs; its users will not need it.",
        )
    from triton import knobs
    from triton.backends.nvidia.driver import CudaUtils

    target = parts / MODULES
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    made: list[Path] = []
    with tempfile.TemporaryDirectory() as folder, knobs.build.scope(), knobs.cache.scope():
        stub = empty_driver(compiler, Path(folder))

        def compile_here(
            name: str,
            source: str,
            _folder: str,
            library_folders: list[str],
            include_folders: list[str],
            libraries: list[str],
        ) -> str:
            out = target / module_file(name, Path(source).read_bytes())
            command = [compiler, source, "-O3", "-shared", "-fPIC", "-Wno-psabi", "-o", str(out)]
            command += [f"-I{path}" for path in (*include_folders, sysconfig.get_path("include"))]
            # Named in the module although nothing of the stub is used: the real one is loaded by
            # this name.
            command += ["-Wl,--no-as-needed", f"-L{stub.parent}"]
            command += [f"-l:{name}" for name in libraries]
            if subprocess.call(command) != 0:
                raise Problem(f"Triton's module {name} cannot be compiled.", "see above.")
            made.append(out)
            raise _Made

        knobs.build.impl = compile_here
        knobs.cache.dir = str(Path(folder) / "cache")
        with knobs.nvidia.scope():
            knobs.nvidia.libcuda_path = str(stub.parent)
            with suppress(_Made):
                CudaUtils()
    if not made:
        raise Problem(
            "Triton has not asked for its module in C.",
            "look at what triton/backends/nvidia/driver.py does in this version.",
        )
    return made


def write_key(parts: Path) -> None:
    """Keeps the name of this version of Triton, which is a digest of all its files."""
    from triton.runtime.cache import triton_key

    (parts / KEY).write_text(triton_key(), encoding="ascii")


def empty_driver(compiler: str, folder: Path) -> Path:
    """A library with the driver's name and nothing in it, to link with."""
    source, library = folder / "empty.c", folder / DRIVER
    source.write_text("typedef int nothing;\n", encoding="ascii")
    command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{DRIVER}", "-o", str(library)]
    subprocess.check_call([*command, str(source)])
    return library


def keep_kernels(cache: Path, target: Path) -> int:
    """Copies the compiled kernels of a cache of Triton's to ``target``; returns how many.

    Only what a GPU loads, not what Triton writes on the way; the C module stays out.
    """
    shutil.rmtree(target, ignore_errors=True)
    kept = 0
    for group in sorted(cache.glob(f"*/{group_file('*.json')}")):
        folder = target / group.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        files = [path for path in group.parent.iterdir() if path.suffix in _KEPT]
        names = [path.name for path in files if not path.name.startswith("__grp__")]
        for name in names:
            shutil.copyfile(group.parent / name, folder / name)
        write_group(folder / group.name, names)
        kept += 1
    return kept


def write_group(path: Path, names: list[str]) -> None:
    """The list of a kernel's files, by their names alone."""
    path.write_text(json.dumps({"child_paths": {name: name for name in names}}), encoding="utf-8")
