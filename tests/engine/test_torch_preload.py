"""torch's libraries are loaded with the interpreter free, and its import holds nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine.torch_preload import preload_torch

HEARTBEAT = """
import sys, threading, time
beats = []
def beat():
    while not done.is_set():
        beats.append(time.perf_counter())
        time.sleep(0.002)
done = threading.Event()
thread = threading.Thread(target=beat)
thread.start()
time.sleep(0.05)
from engine.torch_preload import preload_torch
started = time.perf_counter()
names = preload_torch()
ended = time.perf_counter()
done.set()
thread.join()
during = sum(started < moment < ended for moment in beats)
assert "torch" not in sys.modules
import torch
assert float(torch.ones(3).sum()) == 3.0
print(*names, f"{ended - started:.4f}", during)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="torch does it by itself elsewhere")
def test_others_run_while_the_libraries_are_loaded():
    run = subprocess.run(
        [sys.executable, "-c", HEARTBEAT], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    *names, seconds, beats = run.stdout.split()
    assert names[:2] == ["libtorch_global_deps.so", "libtorch_cpu.so"]
    # A thread that could not run would have none; a busy machine leaves it some of its chances.
    assert int(beats) >= float(seconds) / 0.002 / 10


def test_nothing_to_do_once_torch_is_there():
    import torch  # noqa: F401 - this is what the test is about

    assert preload_torch() == []


FIRST_MODEL = """
import gc, sys, threading, weakref
gc.disable()
from engine.api.commands import LoadModel
from engine.api.params import EngineConfig
from engine.model_loader import LoadedEngine, ModelLoader
changed = threading.Event()
command = LoadModel(sys.argv[2], sys.argv[1], config=EngineConfig(device="cpu", num_blocks=16))
loader = ModelLoader(command, changed.set)
assert loader.join(60.0)
engine = loader.outcomes.pop()
assert isinstance(engine, LoadedEngine), engine
core = weakref.ref(engine.core)
del engine, loader
print("held" if core() is not None else "free")
"""


def test_the_first_model_is_not_held_by_the_import_of_torch(tmp_path: Path):
    from tests.helpers.tiny_gguf import TinyGguf

    path = TinyGguf().write(tmp_path / "tiny.gguf")
    run = subprocess.run(
        [sys.executable, "-c", FIRST_MODEL, str(path), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["free"]


MISSING = """
import sys
from engine import torch_preload
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ImportError("torch is damaged")
sys.meta_path.insert(0, Refuses())
torch_preload.preload_torch = lambda: []
try:
    torch_preload.import_torch()
except ImportError as error:
    print(error)
"""


def test_whoever_wants_torch_is_told_why_it_cannot_be_imported():
    run = subprocess.run(
        [sys.executable, "-c", MISSING], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "torch is damaged"
