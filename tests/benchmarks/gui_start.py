"""From the start of the process to the first paint of the window, with an empty profile and with
5,000 conversations stored.

Run as a script with a profile's folder, it starts the application as ``python -m app`` does, ends
it after the first paint, and prints whether torch had been imported by then.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# As a script this folder would be the first on the path, not the repository.
sys.path.insert(0, str(ROOT))
STORED, TURNS = 5_000, 2
RUNS = 5
_PAINTED = re.compile(r"first paint after (\d+) ms")


def measure() -> dict[str, Any]:
    """Medians in ms, of warm starts: the first one of each profile is not counted."""
    with tempfile.TemporaryDirectory(prefix="quire-") as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        _fill(full)
        times = {name: _starts(profile) for name, profile in (("", empty), ("_5000", full))}
    return {
        **{f"first_paint{n}_ms": round(statistics.median(t), 1) for n, t in times.items()},
        **{f"starts{n}_ms": t for n, t in times.items()},
    }


def _fill(folder: Path) -> None:
    from app.paths import Profile
    from tests.benchmarks.gui_window_stage import ANSWER, conversation, fill

    stored = [conversation(f"Conversation {n}", TURNS, ANSWER) for n in range(STORED)]
    stored[0].is_open = True
    fill(Profile(folder), stored)


def _starts(profile: Path) -> list[float]:
    return [_start(profile) for _ in range(RUNS + 1)][1:]


def _start(profile: Path) -> float:
    # As users have it: what was compiled at the first start is there at the next one.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(profile.parent / "compiled")
    done = subprocess.run(
        [sys.executable, __file__, str(profile)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    if json.loads(done.stdout.splitlines()[-1])["torch"]:
        raise RuntimeError("torch was imported before the first paint")
    from app.paths import Profile

    logged = _PAINTED.findall(Profile(profile).log_file.read_text(encoding="utf-8"))
    return float(logged[-1])


def main() -> int:
    """Opens the window over a profile; the scripted engine is asked for after the first paint."""
    from app.plain_imports import restore_plain_imports

    # As app/__main__.py does.
    restore_plain_imports()
    from PySide6.QtCore import QCoreApplication, QTimer

    from app.main import main as run_application

    def engine() -> Any:
        print(json.dumps({"torch": "torch" in sys.modules}), flush=True)
        QTimer.singleShot(0, QCoreApplication.quit)
        from tests.helpers.fake_engine import FakeEngine

        return FakeEngine()

    return run_application(["--data-dir", sys.argv[1], "--models-dir", sys.argv[1]], engine)


if __name__ == "__main__":
    sys.exit(main())
