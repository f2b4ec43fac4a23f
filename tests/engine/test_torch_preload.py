"""torch's libraries, loaded with the interpreter free."""

import subprocess
import sys

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
