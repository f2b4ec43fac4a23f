"""The guards of conftest.py and pyproject.toml catch what they are there for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TESTS = """
import gc
import threading
import warnings
import weakref

from PySide6.QtCore import QTimer, qWarning
from PySide6.QtWidgets import QWidget

kept = []


def test_clean(qtbot):
    widget = QWidget()
    qtbot.addWidget(widget)
    timer = QTimer(widget)
    timer.start(1000)
    thread = threading.Thread(target=lambda: None)
    thread.start()


def test_leaks_a_thread():
    ended = threading.Event()
    kept.append(ended)
    threading.Thread(target=ended.wait, args=(30,)).start()


def test_leaks_an_engine(qtbot):
    kept[0].set()
    ended = threading.Event()
    kept.append(ended)
    threading.Thread(target=ended.wait, args=(30,), name="quire-engine", daemon=True).start()


def test_leaks_a_timer(qtbot):
    kept.append(QTimer())
    kept[-1].start(1000)


def test_leaves_a_cycle(qtbot):
    assert not gc.isenabled()
    cycle = {1, 2}
    holder = [cycle]
    holder.append(holder)
    kept.append(weakref.ref(cycle))


def test_the_cycle_is_gone():
    assert kept[-1]() is None


def test_qt_warning(qtbot):
    qWarning("something")


def test_python_warning():
    warnings.warn("something")
"""


def test_each_leak_and_warning_fails_its_test(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    quick = re.sub(r"THREAD_GRACE_S = .*", "THREAD_GRACE_S = 0.2", conftest)
    (tmp_path / "conftest.py").write_text(quick, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    bad = set(re.findall(r"^(?:FAILED|ERROR) test_it\.py::(\w+)", done.stdout, re.MULTILINE))
    assert bad == {
        "test_leaks_a_thread",
        "test_leaks_an_engine",
        "test_leaks_a_timer",
        "test_qt_warning",
        "test_python_warning",
    }, done.stdout
    assert "PASSED test_it.py::test_clean" in done.stdout
