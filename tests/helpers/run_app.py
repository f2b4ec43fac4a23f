"""Runs the application with the scripted engine in a process of its own: for tests only.

``python run_app.py FAULT ARGUMENTS…`` where FAULT is ``none`` or names what the engine does wrong.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def start(*arguments: str, fault: str = "none") -> subprocess.Popen[str]:
    """Starts the application; its output is to be read by the caller."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__)), fault, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def run(
    *arguments: str, fault: str = "none", timeout_s: float = 90.0
) -> subprocess.CompletedProcess[str]:
    """Runs the application to its end."""
    with start(*arguments, fault=fault) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def _main() -> int:
    sys.path.insert(0, str(REPOSITORY))
    from app.main import main
    from engine.api.client import EngineClient
    from engine.api.errors import ModelFileError
    from tests.helpers.fake_engine import FakeEngine

    class NeverCached(FakeEngine):
        def _cached(self, ids: list[int]) -> int:
            return 0

    class NeverEnds(FakeEngine):
        def close(self, timeout_s: float = 5.0) -> bool:
            super().close(timeout_s)
            threading.Thread(target=time.sleep, args=(60,)).start()
            return False

    class Crashes(FakeEngine):
        def _submit(self, submit: object) -> None:
            raise RuntimeError("the engine's own fault")

    def engine() -> EngineClient:
        match sys.argv[1]:
            case "never-cached":
                return NeverCached()
            case "never-ends":
                return NeverEnds()
            case "crashes":
                return Crashes()
            case "no-model":
                return FakeEngine(load_error=ModelFileError("The file ends after 12 of 94 MB."))
        return FakeEngine()

    status = main(sys.argv[2:], engine)
    sys.stderr.write(f"torch loaded: {'torch' in sys.modules}\n")
    return status


if __name__ == "__main__":
    sys.exit(_main())
