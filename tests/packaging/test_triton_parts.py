"""Triton without a C compiler: what the build makes is found, and what is missing is told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from engine import shipped_triton

pytest.importorskip("triton")
if sys.platform != "linux" or shutil.which("gcc") is None:
    pytest.skip("needs gcc, as the build for Linux does", allow_module_level=True)

import spec_common
import triton_parts

ROOT = Path(__file__).resolve().parents[2]

# What a user's machine runs: Triton's own class, with a driver's library but nothing to compile.
USERS_CODE = """
import os, shutil, sys, sysconfig
from pathlib import Path

parts, driver, include = sys.argv[1:]
real_paths = sysconfig.get_paths
sysconfig.get_paths = lambda *args, **more: real_paths(*args, **more) | {"include": include}
from engine.shipped_triton import has_compiler, use_shipped_parts
assert not has_compiler() and shutil.which("gcc") is None
use_shipped_parts(os.environ, Path(parts))
from triton import knobs
knobs.nvidia.libcuda_path = driver
from triton.backends.nvidia.driver import CudaUtils
utils = CudaUtils()
assert callable(utils.load_binary)
print("cache", os.environ["TRITON_CACHE_DIR"])
"""

# What comes next there, at a kernel's first launch.
LAUNCHERS_CODE = """
from types import SimpleNamespace
from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime.driver import driver
driver.set_active(SimpleNamespace(utils=utils))
metadata = SimpleNamespace(
    num_ctas=1, global_scratch_size=0, global_scratch_align=1, profile_scratch_size=0,
    profile_scratch_align=1, launch_cooperative_grid=False, launch_pdl=False,
    instrumentation_mode="",
)
kernel = SimpleNamespace(signature={0: "*fp16", 1: "fp32", 2: "constexpr"})
assert callable(CudaLauncher(kernel, metadata).launch)
print("launches")
"""
# What engine.triton_launcher asks of the driver; Triton's module does not ask for all of it.
LAUNCH = {
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuLaunchKernelEx",
    "cuPointerGetAttribute",
}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made in a process of its own, as the build does: Triton remembers what it has loaded."""
    folder = tmp_path_factory.mktemp("parts")
    code = "import sys; from pathlib import Path; import triton_parts as parts\n"
    code += "print(*parts.make_modules(Path(sys.argv[1])))"
    python(code, str(folder), PYTHONPATH=f"{ROOT}:{ROOT / 'packaging'}")
    return folder


@pytest.fixture(scope="module")
def driver(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library of the driver's name that has each function the module asks for."""
    folder = tmp_path_factory.mktemp("driver")
    (module,) = (parts / shipped_triton.MODULES).iterdir()
    listed = subprocess.check_output(["nm", "-D", "--undefined-only", str(module)], text=True)
    names = {line.split()[-1] for line in listed.splitlines() if line.split()[-1].startswith("cu")}
    assert names, "the module asks nothing of the driver"
    source = folder / "driver.c"
    source.write_text("".join(f"int {name}(void) {{ return 999; }}\n" for name in names | LAUNCH))
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{triton_parts.DRIVER}"]
    subprocess.check_call([*command, "-o", str(folder / triton_parts.DRIVER), str(source)])
    return folder


def python(code: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own; its output if it ends well. No compiler in reach unless PATH says so."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environ}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=env,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def users_machine(driver: Path, tmp_path: Path) -> dict[str, str]:
    """An environment with the driver and without any program."""
    return {
        "PATH": str(tmp_path / "nothing"),
        "LD_LIBRARY_PATH": str(driver),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOME": str(tmp_path / "home"),
    }


def test_module_is_named_by_its_source_and_python(parts: Path) -> None:
    import triton.backends.nvidia.driver as backend

    source = Path(backend.__file__).with_name("driver.c").read_bytes()
    made = [path.name for path in (parts / shipped_triton.MODULES).iterdir()]
    assert made == [shipped_triton.module_file("cuda_utils", source)]
    assert made[0].endswith(sysconfig.get_config_var("EXT_SUFFIX"))
    assert shipped_triton.module_file("cuda_utils", source + b" ") != made[0]


def test_module_loads_the_driver_by_its_name(parts: Path) -> None:
    (module,) = (parts / shipped_triton.MODULES).iterdir()
    dynamic = subprocess.check_output(["readelf", "-d", str(module)], text=True)
    assert f"[{triton_parts.DRIVER}]" in dynamic
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic


def test_module_is_found_without_compiler_and_headers(
    parts: Path, driver: Path, users_machine: dict[str, str], tmp_path: Path
) -> None:
    no_headers = tmp_path / "no headers"
    done = python(USERS_CODE, str(parts), str(driver), str(no_headers), **users_machine)
    assert done.stdout.split() == ["cache", f"{tmp_path}/cache/Quire/triton"]
    # Triton keeps a copy where it keeps everything, and nothing in the user's home.
    assert list((tmp_path / "cache" / "Quire" / "triton").rglob("cuda_utils*.so"))
    assert not (tmp_path / "home").exists()


def test_a_kernels_first_launch_compiles_nothing(
    parts: Path, driver: Path, users_machine: dict[str, str], tmp_path: Path
) -> None:
    code = USERS_CODE + LAUNCHERS_CODE
    done = python(code, str(parts), str(driver), str(tmp_path / "no headers"), **users_machine)
    assert done.stdout.split()[-1] == "launches"


def test_without_the_module_and_a_compiler_the_reason_is_told(
    parts: Path, driver: Path, users_machine: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "other" / shipped_triton.MODULES).mkdir(parents=True)
    code = USERS_CODE.replace("utils = CudaUtils()", "try:\n    CudaUtils()\nexcept RuntimeError ")
    code = code.split("except RuntimeError ")[0]
    code += "except RuntimeError as error:\n    print(error)"
    done = python(code, str(tmp_path / "other"), str(driver), "", **users_machine)
    assert "does not ship Triton's module cuda_utils" in done.stdout
    assert "install gcc" in done.stdout


def test_a_module_that_is_not_shipped_is_compiled_where_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton import knobs

    source = tmp_path / "other.c"
    source.write_text("#include <Python.h>\nint answer(void) { return 42; }\n", encoding="ascii")
    hook = shipped_triton.build_hook(tmp_path / "modules")
    monkeypatch.setattr(knobs.build, "impl", hook)
    made = hook("other", str(source), str(tmp_path), [], [], [])
    assert Path(made).is_file()
    assert knobs.build.impl is hook, "the hook is in place again"


def test_a_source_tree_is_left_alone() -> None:
    environ: dict[str, str] = {}
    shipped_triton.use_shipped_parts(environ)
    assert environ == {}


def test_the_users_own_cache_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    monkeypatch.setattr(knobs.build, "impl", None)
    environ = {shipped_triton.CACHE_VARIABLE: "/mine"}
    shipped_triton.use_shipped_parts(environ, tmp_path)
    assert environ == {shipped_triton.CACHE_VARIABLE: "/mine"}


def test_triton_does_not_read_all_its_files_at_each_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton.runtime import cache

    own = cache.triton_key
    monkeypatch.setattr(cache, "triton_key", own)
    triton_parts.write_key(tmp_path)
    monkeypatch.setenv(shipped_triton.CACHE_VARIABLE, str(tmp_path / "users"))
    shipped_triton.use_shipped_parts({}, tmp_path)
    assert cache.triton_key is not own
    assert cache.triton_key() == own()


# --- compiled kernels ---


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache as Triton leaves it: with everything on the way, and whole paths in the list."""
    folder = tmp_path / "cache" / "KEY"
    folder.mkdir(parents=True)
    files = {f"k.{kind}": str(folder / f"k.{kind}") for kind in ("json", "cubin", "ptx", "ttir")}
    for path in files.values():
        Path(path).write_text("content of " + Path(path).name, encoding="ascii")
    grouped = json.dumps({"child_paths": files})
    (folder / shipped_triton.group_file("k.json")).write_text(grouped, encoding="ascii")
    other = tmp_path / "cache" / "MODULE"
    other.mkdir()
    (other / "cuda_utils.so").write_bytes(b"module")
    return tmp_path / "cache"


def test_only_what_a_gpu_loads_goes_along(cache: Path, tmp_path: Path) -> None:
    assert triton_parts.keep_kernels(cache, tmp_path / "kept") == 1
    kept = sorted(path.name for path in (tmp_path / "kept").rglob("*") if path.is_file())
    assert kept == ["__grp__k.json", "k.cubin", "k.json"]


def test_shipped_kernels_are_found_in_another_place(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton import knobs

    triton_parts.keep_kernels(cache, tmp_path / "kept")
    moved = (tmp_path / "kept").rename(tmp_path / "é 張")
    shutil.rmtree(cache)
    monkeypatch.setenv(shipped_triton.CACHE_VARIABLE, str(tmp_path / "users"))
    manager = shipped_triton.cache_manager(moved)("KEY")
    group = manager.get_group("k.json")
    assert group == {"k.json": str(moved / "KEY/k.json"), "k.cubin": str(moved / "KEY/k.cubin")}
    assert manager.get_file("k.cubin") == str(moved / "KEY/k.cubin")
    assert manager.get_file("k.ptx") is None
    assert shipped_triton.cache_manager(moved)("OTHER").get_group("k.json") is None
    assert knobs.cache.dir == str(tmp_path / "users")


def test_what_the_user_has_compiled_comes_first(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton_parts.keep_kernels(cache, tmp_path / "kept")
    monkeypatch.setenv(shipped_triton.CACHE_VARIABLE, str(tmp_path / "users"))
    manager = shipped_triton.cache_manager(tmp_path / "kept")("KEY")
    own = manager.put("own", "k.cubin", binary=False)
    assert manager.get_file("k.cubin") == own


def test_a_shipped_kernel_that_is_not_whole_is_compiled_anew(cache: Path, tmp_path: Path) -> None:
    triton_parts.keep_kernels(cache, tmp_path / "kept")
    folder = tmp_path / "kept" / "KEY"
    (folder / "k.cubin").unlink()
    assert shipped_triton.read_group(folder, "k.json") is None
    (folder / shipped_triton.group_file("k.json")).write_text("no list", encoding="ascii")
    assert shipped_triton.read_group(folder, "k.json") is None


# --- what the CUDA variant leaves out of Triton ---

COMPILE = """
import sys
from pathlib import Path
import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

assert Path(triton.__file__).is_relative_to(sys.argv[1])


class NoDriver:
    capability = 0

    def get_current_target(self):
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=0):
        return 0


def compile_only(kernel, grid):
    def compile_it(*args, **options):
        made = kernel.run(*args, grid=grid, warmup=True, **options)
        print(NoDriver.capability, kernel.__name__, len(made.asm["cubin"]) > 1000)

    return compile_it


knobs.compilation.store_binary_only = True
JITFunction.__getitem__ = compile_only
driver.set_active(NoDriver())
from kernels import rms_norm

x = torch.zeros((3, 576), dtype=torch.float16)
for NoDriver.capability in map(int, sys.argv[2:]):
    for kernel in vars(rms_norm).values():
        if isinstance(kernel, JITFunction):
            kernel.device_caches.clear()
    rms_norm.rms_norm(x, x[0], 1e-6)
"""
GENERATIONS = ("75", "80", "86", "89", "90", "100", "120")


@pytest.mark.slow
def test_the_trimmed_triton_compiles_for_every_common_card_without_a_compiler(
    tmp_path: Path,
) -> None:
    """As the bundle has it: no files of ``spec_common.DROPPED_FILES``, nothing in PATH."""
    import triton

    package = Path(triton.__file__).parent
    for path in sorted(package.rglob("*")):
        place = Path("triton") / path.relative_to(package)
        if path.is_file() and spec_common.kept(place.as_posix()):
            target = tmp_path / "bundle" / place
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, target)
            except OSError:
                shutil.copy(path, target)
    assert not (tmp_path / "bundle" / "triton/backends/nvidia/bin/nvdisasm").exists()
    bundle = str(tmp_path / "bundle")
    cache = tmp_path / "cache"
    done = python(
        COMPILE,
        bundle,
        *GENERATIONS,
        PYTHONPATH=f"{bundle}:{ROOT}",
        PATH=str(tmp_path),
        TRITON_CACHE_DIR=str(cache),
    )
    lines = done.stdout.split("\n")
    assert [line.split() for line in lines if line] == [
        [generation, "_rms_norm_kernel", "True"] for generation in GENERATIONS
    ]
    # What such a cache holds is what a build can ship.
    assert triton_parts.keep_kernels(cache, tmp_path / "kept") == len(GENERATIONS)
    shutil.rmtree(tmp_path)
