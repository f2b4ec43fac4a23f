"""Triton 3.6 launches through Python where it would compile C, and what it launches is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import types
from pathlib import Path

import pytest

from engine import shipped_triton, triton_launcher
from engine.triton_launcher import Driver, use_python_launchers
from tests.helpers.recorded_launch import FUNCTION, PLAIN
from tests.helpers.recording_driver import RecordingDriver

pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[2]

# What Triton 3.6 has under these names, as far as a launch goes.
BACKEND = """
compiled = []

def compile_module_from_src(src, name, library_dirs=None, include_dirs=None, libraries=None):
    compiled.append((src, name, libraries))
    return "module"

def make_launcher(constants, signature, tensordesc_meta):
    return "source in C"

def wrap_handle_tensordesc(launcher, signature, tensordesc_meta):
    return launcher

class CudaUtils:
    def __init__(self):
        self.module = compile_module_from_src(
            src="driver.c", name="cuda_utils", libraries=["libcuda.so.1"]
        )

class CudaLauncher:
    def __init__(self, signature):
        src = make_launcher({}, signature, None)
        mod = compile_module_from_src(
            src=src, name="__triton_launcher", library_dirs=[], include_dirs=[], libraries=[]
        )
        self.launch = wrap_handle_tensordesc(mod.launch, signature, None)
"""


@pytest.fixture
def backend() -> types.ModuleType:
    module = types.ModuleType("driver")
    exec(BACKEND, module.__dict__)
    return module


def test_triton_launches_through_python_and_compiles_no_launcher(
    backend: types.ModuleType, recording: RecordingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_launcher, "_driver", lambda: Driver(str(recording.path)))
    use_python_launchers(backend)
    launch = backend.CudaLauncher({(0,): "i32", (1,): "constexpr", (2,): "u8"}).launch
    recording.begin_anew(["i32", "u8"])
    launch(1, 1, 1, 0, FUNCTION, False, False, None, None, PLAIN, None, None, None, 5, "c", 6)
    assert [recording.parameter(number) for number in range(2)] == [5, 6]
    assert backend.compiled == []


def test_other_modules_are_made_as_ever(backend: types.ModuleType) -> None:
    use_python_launchers(backend)
    assert backend.CudaUtils().module == "module"
    assert backend.compiled == [("driver.c", "cuda_utils", ["libcuda.so.1"])]


def test_a_backend_is_changed_once(backend: types.ModuleType) -> None:
    use_python_launchers(backend)
    before = dict(backend.__dict__)
    use_python_launchers(backend)
    assert backend.__dict__ == before


def test_a_triton_without_such_launchers_stays_as_it_is(backend: types.ModuleType) -> None:
    del backend.make_launcher
    before = dict(backend.__dict__)
    use_python_launchers(backend)
    assert backend.__dict__ == before


@pytest.mark.parametrize("ships_modules", [True, False])
def test_a_build_that_ships_modules_launches_so(
    backend: types.ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ships_modules: bool,
) -> None:
    import triton.backends.nvidia
    from triton import knobs

    monkeypatch.setattr(knobs.build, "impl", None)
    monkeypatch.setattr(triton.backends.nvidia, "driver", backend)
    if ships_modules:
        (tmp_path / shipped_triton.MODULES).mkdir()
    shipped_triton.use_shipped_parts({shipped_triton.CACHE_VARIABLE: "mine"}, tmp_path)
    assert (backend.make_launcher is triton_launcher.make_launcher) == ships_modules


# A process of its own: Triton's launcher loads the driver by its name.
COMPARE = """
import json, os, sys
from pathlib import Path
from types import SimpleNamespace
from engine.triton_launcher import use_python_launchers
from tests.helpers.recording_driver import DRIVER, RecordingDriver
from triton import knobs
from triton.backends.nvidia import driver

folder = Path(sys.argv[1])
knobs.nvidia.libcuda_path = str(folder)
recording = RecordingDriver(folder / DRIVER)

class Memory:
    def data_ptr(self):
        return 0x7F0012345678

kinds = ["*fp16", "i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64", "fp16", "bf16",
         "fp32", "f32", "fp64", "*i8", "*i8"]
values = [Memory(), 1, 200, -3, -4, -5, True, -7, 2**16 + 8, -9, 2**64 - 1, 0.1, 1.013671875,
          1e300, -0.1, 0.1, None, 77]
signature = dict(enumerate([*kinds, "constexpr", ("i32", ("fp32", "constexpr")), "constexpr"]))
values += ["left out", (11, (12.5, "left out")), (1, 2)]
metadata = SimpleNamespace(
    num_ctas=1, global_scratch_size=0, global_scratch_align=1, profile_scratch_size=0,
    profile_scratch_align=1, launch_cooperative_grid=False, launch_pdl=False,
)

def told(launch, *arguments):
    try:
        launch(*arguments)
    except Exception as error:
        return str(error)
    return ""

def records():
    launch = driver.CudaLauncher(SimpleNamespace(signature=signature), metadata).launch
    found = []
    for grid in ((3, 2, 1), (0, 1, 1)):
        for status in (0, 700):
            for cooperative in (False, True):
                for pdl in (False, True):
                    for num_ctas in (1, 2, 16):
                        recording.begin_anew([*kinds, "i32", "fp32"])
                        recording.orders.launch_status = status
                        error = told(
                            launch, *grid, 5, 6, cooperative, pdl, Memory(), None,
                            (4, num_ctas, 99), None, None, None, *values,
                        )
                        found.append((bytes(recording.record).hex(), error.split(" (")[0]))
    return found

records()  # Once before, since the thread's first launch gives it a context.
of_triton = records()
use_python_launchers(driver)
launcher = driver.make_launcher({}, signature, None)
assert type(launcher).__module__ == "engine.triton_launcher"
print(json.dumps([of_triton, records()]))
"""


def test_triton_36_compiles_a_launcher_that_does_the_same(
    driver_library: Path, tmp_path: Path
) -> None:
    from triton.backends.nvidia import driver

    if not hasattr(driver, "make_launcher"):
        pytest.skip("this version of Triton compiles no launchers")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        pytest.skip("needs Python's headers")
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "LD_LIBRARY_PATH": str(driver_library.parent),
        "TRITON_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, str(driver_library.parent)],
        capture_output=True,
        text=True,
        env=environ,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    of_triton, of_python = json.loads(done.stdout)
    assert len(of_triton) == 48
    assert len({record for record, _ in of_triton}) == 13, "the launches do not differ"
    assert of_python == of_triton
