"""Benchmarks of the engine: ``python tests/benchmarks/engine.py cpu`` ends with a JSON line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

# As a script this folder would be the first on the path, not the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

LATER = ("seeds", "W1", "W2", "W3", "decode", "prefill", "kernels", "gui-tax")


def main() -> int:
    """Runs one workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=["cpu", *LATER])
    parser.add_argument(
        "--model", type=Path, help="GGUF file or folder; the starter model if absent"
    )
    parser.add_argument("--device", default="cpu", help="only cpu so far")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each measurement")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    arguments = parser.parse_args()
    if arguments.workload in LATER:
        parser.exit(2, f"The workload {arguments.workload} is not there yet; there is: cpu.\n")
    if arguments.device != "cpu":
        parser.exit(2, f"The device {arguments.device} is not supported yet; there is: cpu.\n")

    from tests.benchmarks import cpu

    result = cpu.measure(arguments.model, arguments.repeats)
    text = json.dumps(result)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
