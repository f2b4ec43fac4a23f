"""Storms for as long as one likes: ``python tests/soak.py --minutes 60``.

Each seed is one storm of commands against an engine, everything checked after every operation; see
``tests/helpers/storm.py``. A failure is cut down to its shortest recipe and printed with its seed
and the command that plays it again. Exit status 1 after a failure.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.helpers.storm_search import StormFailure, run_seed
from tests.helpers.storm_setup import Subject
from tests.helpers.storm_subjects import IntegerSubject, TinySubject

REPORT_EVERY_S = 10.0
LENGTHS = {"integer": 250, "tiny": 60}
BACKENDS = ("paged_reference", "contiguous", "dense")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    parser.add_argument("--storms", type=int, help="stop after so many seeds")
    parser.add_argument("--seed", type=int, help="the first seed; drawn if not given")
    parser.add_argument("--lag", type=int, choices=(0, 1), help="both in turn if not given")
    parser.add_argument(
        "--model", choices=sorted(LENGTHS), default="integer",
        help="integer: the fast exact one (default); tiny: a random Llama in float64",
    )  # fmt: skip
    parser.add_argument("--backend", choices=BACKENDS, default=BACKENDS[0], help="of --model tiny")
    parser.add_argument("--operations", type=int, help="commands a storm (250, tiny 60)")
    return parser.parse_args()


def subject_maker(model: str, backend: str) -> partial[Subject]:
    if model == "integer":
        return partial(IntegerSubject)
    import torch

    # Two threads wait for each other far longer than such small products take.
    torch.set_num_threads(1)
    return partial(TinySubject, backend=backend)


def main() -> int:
    args = arguments()
    make = subject_maker(args.model, args.backend)
    length = args.operations or LENGTHS[args.model]
    first = secrets.randbelow(10**9) if args.seed is None else args.seed
    lags = (0, 1) if args.lag is None else (args.lag,)
    print(f"{args.model} model, {length} commands a storm, first seed {first}", flush=True)
    started = reported = time.monotonic()
    operations = num_storms = 0
    while time.monotonic() - started < 60.0 * args.minutes and num_storms != args.storms:
        seed = first + num_storms
        for lag in lags:
            try:
                operations += run_seed(seed, lag, length, make).num_operations
            except StormFailure as failure:
                again = f"--model {args.model} --backend {args.backend} --operations {length}"
                print(f"FAILED after {operations} operations: {failure}")
                print(f"again: python tests/soak.py {again} --seed {seed} --lag {lag} --storms 1")
                return 1
        num_storms += 1
        if time.monotonic() - reported > REPORT_EVERY_S:
            reported = time.monotonic()
            minutes = (reported - started) / 60.0
            print(f"{minutes:.1f} min: seed {seed}, {operations} operations", flush=True)
    print(f"all well: {num_storms} seeds, {operations} operations", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
