"""What holds for every test: no display needed, no thread and no timer left behind.

Warnings of Python and of Qt fail a test too: see pyproject.toml.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent, QTimer

# Before anything imports Qt. Somebody who wants to see the windows sets it to xcb or windows.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


def _has_gpu() -> bool:
    if not Path("/proc/driver/nvidia").exists():
        return False
    import torch

    return torch.cuda.is_available()


HAS_GPU = _has_gpu()

# Without a GPU the kernels run in Triton's interpreter. It has to be asked for before anything
# imports Triton, and other libraries do.
if not HAS_GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A busy machine is no failure. Where CI is set hypothesis has a profile of its own that also draws
# the same examples each time.
if "CI" not in os.environ:
    hypothesis.settings.register_profile("local", deadline=None)
    hypothesis.settings.load_profile("local")

THREAD_GRACE_S = 5.0


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a GPU the tests for one are skipped, also where others are chosen by another mark."""
    if not HAS_GPU and item.get_closest_marker("gpu") is not None:
        pytest.skip("there is no NVIDIA GPU")


def _leaked(before: set[threading.Thread]) -> list[threading.Thread]:
    """Threads started since ``before`` that keep the process alive, or are an engine's."""
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before and (not thread.daemon or thread.name.startswith("quire"))
    ]


@pytest.fixture(autouse=True)
def _no_leaked_threads() -> Iterator[None]:
    """Fails a test whose threads outlive it. Set up first, so it looks after all other fixtures."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + THREAD_GRACE_S
    while (leaked := _leaked(before)) and time.monotonic() < deadline:
        leaked[0].join(0.05)
    assert not leaked, f"threads left running: {[thread.name for thread in leaked]}"


def _active_timers() -> list[QTimer]:
    # type(), not isinstance: that would wake lazy objects of other libraries, which then warn.
    return [
        value
        for value in gc.get_objects()
        if issubclass(type(value), QTimer) and shiboken6.isValid(value) and value.isActive()
    ]


@pytest.fixture(autouse=True)
def _window_test_is_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a window test whose timers go on ticking when everything of it has been closed.

    Reference cycles with widgets in them are taken apart here, between two tests and in this
    thread, as in the application; only what the test made is looked through.
    """
    if "qtbot" not in request.fixturenames:
        yield
        # An application that ran in this process leaves it off.
        gc.enable()
        return
    gc.disable()
    gc.freeze()
    yield
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    leaked = _active_timers()
    gc.collect()
    gc.unfreeze()
    gc.enable()
    assert not leaked, (
        f"timers left ticking: {[(timer.parent(), timer.interval()) for timer in leaked]}"
    )
