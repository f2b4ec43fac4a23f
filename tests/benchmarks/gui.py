"""Benchmarks of the window: ``python tests/benchmarks/gui.py panel`` ends with a JSON line."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from pathlib import Path

# As a script this folder would be the first on the path, not the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

WORKLOADS = ("panel", "search", "window")
"""Each is ``measure()`` of the module gui_<name>."""


def main() -> int:
    """Runs one workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    arguments = parser.parse_args()

    from PySide6.QtWidgets import QApplication

    module = importlib.import_module(f"tests.benchmarks.gui_{arguments.workload}")
    application = QApplication.instance() or QApplication([])
    result = module.measure()
    application.processEvents()
    text = json.dumps(result)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
