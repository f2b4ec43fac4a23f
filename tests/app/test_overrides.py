"""Errors in methods that Qt calls in place of its own; each test in a process of its own."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers import run_app

HELPERS = Path(run_app.__file__).parent


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a helper to its end; memory that was freed is found at once there."""
    return subprocess.run(
        [sys.executable, str(HELPERS / name), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONMALLOC": "debug"},
    )


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    done = run("overrides_child.py")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_error_is_told_as_that_of_a_slot_is(found: dict[str, object]) -> None:
    assert found["told"] == ["resizeEvent"] * 4 + ["sizeHint", "rowCount", "flags", "eventFilter"]


def test_it_takes_no_other_method_from_qt(found: dict[str, object]) -> None:
    assert found["shown"] == ["Earlier", "Earlier", "Later", "Later"]
    assert found["lost_references"] == [0, 0]


def test_qt_gets_an_empty_value(found: dict[str, object]) -> None:
    assert found["answers"] == {
        "rowCount": 0,
        "flags": None,
        "sizeHint": [-1, -1],
        "eventFilter": False,
    }


def test_what_works_and_what_is_not_of_qt_stays_as_it_is(found: dict[str, object]) -> None:
    assert found["height"] == 21
    assert found["own"] == "KeyError"


def test_a_second_call_changes_nothing(found: dict[str, object]) -> None:
    assert found["same_after_second_call"] is True


def test_a_window_that_cannot_show_a_message_is_used_on_and_closed(tmp_path: Path) -> None:
    done = run("unparsed_child.py", str(tmp_path))
    steps = done.stdout.split("\n")
    assert done.returncode == 0, done.stderr
    assert "window closed" in steps
    log = (tmp_path / "quire.log").read_text("utf-8")
    assert "uncaught in thread main" in log
    assert "import of mdurl halted" in log
    with closing(sqlite3.connect(tmp_path / "conversations.sqlite3")) as database:
        rows = database.execute("SELECT status FROM messages WHERE role = 'assistant'").fetchall()
    assert rows == [("done",), ("done",)]
