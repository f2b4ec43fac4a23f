"""Benchmarks of the engine: ``tests/benchmarks/engine.py WORKLOAD`` ends with a line of JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

# As a script this folder would be the first on the path, not the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.suite import PARTS

MODULES = {
    "cpu": "cpu",
    "seeds": "seeds",
    "W1": "throughput",
    "W2": "tabs",
    "W3": "shared_decode",
    "decode": "decode_steps",
    "prefill": "prefill_steps",
    "kernels": "kernel_rates",
    "quantized": "quantized_rates",
    "gui-tax": "gui_tax",
    "suite": "suite",
}
"""Workload -> module; its ``measure(options)`` prints the rows and returns the last object."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("workload", choices=MODULES)
    made.add_argument(
        "--model",
        default="",
        help="GGUF file, folder, or random:NAME; by default the starter model on the CPU and "
        "random:qwen3-0.6b on a GPU",
    )
    made.add_argument("--device", default="cpu", help="cpu or cuda")
    made.add_argument("--repeats", type=int, help="runs of each measurement")
    made.add_argument("--small", action="store_true", help="the least size, to try it")
    made.add_argument("--json", type=Path, help="write the result to this file too")
    engine = made.add_argument_group("engine")
    engine.add_argument("--num-blocks", type=int, help="blocks of the pool")
    engine.add_argument("--block-size", type=int, default=16, help="tokens a block")
    engine.add_argument("--token-budget", type=int, help="tokens of a step")
    engine.add_argument("--prefill-ms", type=float, help="time of prompts in a step with decodes")
    engine.add_argument("--lag", type=int, choices=(0, 1), help="steps that commit lags behind")
    engine.add_argument("--temperature", type=float, default=0.6, help="0 is greedy")
    engine.add_argument("--models-dir", type=Path, help="folder of the starter model")
    cells = made.add_argument_group("cells")
    for name, text in (
        ("tabs", "W2: numbers of conversations"),
        ("system", "W2, W3: lengths of the shared prompt"),
        ("batches", "W3, decode, kernels: numbers of sequences"),
        ("contexts", "decode, prefill, kernels: lengths"),
    ):
        cells.add_argument(f"--{name}", type=int, nargs="+", default=(), help=text)
    cells.add_argument("--peers", type=Path, help="kernels: folder of fa3_peer.py")
    cells.add_argument("--sweep", action="store_true", help="quantized: other launches too")
    suite = made.add_argument_group("suite")
    suite.add_argument("--parts", nargs="+", default=(), choices=PARTS, help="all by default")
    suite.add_argument("--seconds", type=float, default=720.0, help="of all parts together")
    return made


def main() -> int:
    """Runs one workload."""
    arguments = vars(parser().parse_args())
    workload, json_file = arguments.pop("workload"), arguments.pop("json")

    from tests.benchmarks.options import CannotRunHere, Options

    options = Options(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in arguments.items()
        }
    )
    module = importlib.import_module(f"tests.benchmarks.{MODULES[workload]}")
    try:
        result = module.measure(options)
    except CannotRunHere as error:
        sys.stderr.write(f"{error}\n")
        return 2
    text = json.dumps(result)
    if json_file is not None:
        json_file.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
