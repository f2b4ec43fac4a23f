"""Tabs and the application are closed again and again while answers stream, and nothing breaks."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import run_app

CHILD = Path(run_app.__file__).with_name("close_child.py")


def close(times: int, seed: int, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(CHILD), str(times), str(seed), str(folder)],
        capture_output=True,
        text=True,
        cwd=run_app.REPOSITORY,
    )
    # faulthandler says on stderr where it crashed.
    assert (done.returncode, done.stdout) == (0, f"closed {times}\n"), f"{seed}: {done.stderr}"
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_closed_25_times_under_load(tmp_path: Path) -> None:
    close(25, 3, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_closed_500_times_under_load(tmp_path: Path) -> None:
    close(500, random.SystemRandom().getrandbits(32), tmp_path)
