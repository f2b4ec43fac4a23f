"""The program starts itself again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app import relaunch
from app.relaunch import command_line
from tests.helpers import run_app


def test_interpreter_gets_back_all_that_it_was_given():
    original = ["python", "-X", "utf8", "-m", "app", "--data-dir", "a b"]
    program, arguments = command_line("/bin/python3", original, ["app"], is_frozen=False)
    assert (program, arguments) == ("/bin/python3", original[1:])


def test_frozen_program_gets_its_own_arguments():
    given = ["/opt/quire", "--model", "x.gguf"]
    program, arguments = command_line("/opt/quire", ["ignored"], given, is_frozen=True)
    assert (program, arguments) == ("/opt/quire", ["--model", "x.gguf"])


@pytest.mark.parametrize("works", [True, False])
def test_starting_again(works: bool, monkeypatch: pytest.MonkeyPatch):
    started: list[tuple[str, list[str], str]] = []

    def start(program: str, arguments: list[str], folder: str) -> bool:
        started.append((program, arguments, folder))
        return works

    monkeypatch.setattr(relaunch.sys, "orig_argv", ["python", "-m", "app"])
    assert relaunch.relaunch(start) is works
    assert started == [(relaunch.sys.executable, ["-m", "app"], str(Path.cwd()))]


def test_lost_device_leads_to_a_new_process_with_the_same_profile(tmp_path: Path):
    """The button is pressed in a real window; the new process finds the question and what there
    was of the answer, so it got the arguments, the lock of the profile and all that was saved.
    """
    data_dir = tmp_path / "é 庭"
    result = run_app.run("--data-dir", str(data_dir), fault="lost-once")
    assert result.returncode == 0, result.stderr
    went_on = tmp_path / "went_on.txt"
    deadline = time.monotonic() + 60.0
    while not went_on.exists() or not went_on.read_text("utf-8"):
        assert time.monotonic() < deadline, (data_dir / "quire.log").read_text("utf-8")
        time.sleep(0.05)
    found = went_on.read_text("utf-8").splitlines()
    assert found == ["--data-dir", str(data_dir), "go on", "You"]
    log = data_dir / "quire.log"
    while "starting again" not in log.read_text("utf-8"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
