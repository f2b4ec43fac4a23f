"""Speed of the sampling kernels on a GPU: ``python tests/benchmarks/sampling_rates.py``.

One JSON line a row: microseconds a call (CUDA-graph replay, median), and how many tokens of some
calls differ from the reference's on the same logits (0 but for a cut within rounding).

On one H200, bfloat16 logits of 151,936 tokens, us for peaked / flat logits:

| rows | greedy | temperature | min-p | top-k 50 | top-p 0.95 |
|---|---|---|---|---|---|
| 1 | 4 | 10 / 12 | 17 / 18 | 43 / 44 | 42 / 49 |
| 8 | 5 | 15 / 20 | 28 / 31 | 79 / 80 | 68 / 246 |
| 64 | 18 | 62 / 99 | 112 / 141 | 394 / 399 | 283 / 798 |
| 256 | - | 224 / 368 | - | - | - |

Version 1 (4096 tokens a program, one program a row looks for the cut): temperature 13 / 23 / 109
at 1 / 8 / 64 flat rows, top-p 848 / 882 / 1130. Version 2 (penalties compiled out where there are
none, 2048 tokens, the cut's rounds over all programs): as above; expected were 60 for 64 rows by
temperature, which only peaked logits reach: a program's registers leave three of them a
multiprocessor.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

# As a script this folder would be the first on the path, not the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from kernels.launch import SampleLaunch, multiprocessors
from kernels.reference.sample import RowParameters, pack
from kernels.reference.sample import sample as reference
from kernels.sample import sample
from tests.benchmarks.attention_rates import microseconds

VOCAB = 151_936
KINDS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.6},
    "top_k 50": {"top_k": 50},
    "top_p 0.95": {"top_p": 0.95},
    "top_k 50, top_p 0.9": {"top_k": 50, "top_p": 0.9, "temperature": 0.7},
    "min_p 0.05": {"min_p": 0.05},
}


def logits_of(rows: int, kind: str, vocab: int = VOCAB) -> Tensor:
    """Flat: normal. Peaked: a few tokens far above the rest, as of a trained model."""
    flat = torch.randn((rows, vocab), device="cuda") * 2.0
    if kind == "peaked":
        steps = torch.arange(1, 2001, device="cuda").log() * 2.5
        for row in flat:
            row[torch.randperm(vocab, device="cuda")[:2000]] = 24.0 - steps
    return flat


def parameters_of(rows: int, choices: dict[str, float], draw: int) -> Tensor:
    return torch.from_numpy(
        pack(
            [
                RowParameters(seed=i * 7919 + 2**63, output_index=draw, **choices)
                for i in range(rows)
            ]
        )
    ).cuda()


def row(
    batch: int, kind: str, shape: str, dtype: torch.dtype, launch: SampleLaunch | None = None
) -> dict[str, object]:
    choices = KINDS[kind]
    filtered = any(name != "temperature" for name in choices)
    sets = [logits_of(batch, shape).to(dtype) for _ in range(4)]
    packed = [parameters_of(batch, choices, draw) for draw in range(4)]

    def call(i: int) -> Tensor:
        return sample(sets[i], packed[i], filtered=filtered, launch=launch).tokens

    different = 0
    for i in range(0 if launch else 2 if batch <= 8 else 1):
        drawn = call(i)
        expected = reference(sets[i], packed[i]).tokens
        different += int((drawn != expected).sum())
    spent = microseconds([lambda i=i: call(i) for i in range(4)])
    return {
        "part": "sample", "batch": batch, "kind": kind, "logits": shape,
        "dtype": str(dtype).removeprefix("torch."), "us": round(spent, 1), "different": different,
    }  # fmt: skip


def sweep() -> None:
    """Prints what other launch choices take."""
    shapes = [(8, "temperature"), (64, "temperature"), (64, "greedy"), (64, "top_k 50, top_p 0.9")]
    for chunk, warps, each in [(4096, 8, 3), (2048, 4, 6), (2048, 4, 3), (1024, 4, 6)]:
        programs = each * multiprocessors(torch.device("cuda", 0))
        choice = SampleLaunch(chunk, programs, list_size=512, num_warps=warps, sort_warps=8)
        times = [row(*shape, "flat", torch.bfloat16, choice)["us"] for shape in shapes]
        print(json.dumps({"sweep": str(choice), "us": times}), flush=True)


def main() -> int:
    """Prints all rows."""
    as_it_stands = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_it_stands)
    parser.add_argument("--sweep", action="store_true", help="other launches first")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.sweep:
        sweep()
    cases = [
        (batch, kind, shape, torch.bfloat16)
        for batch in (1, 8, 64, 256)
        for kind in KINDS
        for shape in ("peaked", "flat")
        if batch < 256 or kind == "temperature"
    ]
    cases += [(8, kind, "flat", torch.float32) for kind in ("temperature", "top_k 50, top_p 0.9")]
    for case in cases:
        try:
            print(json.dumps(row(*case)), flush=True)
        except Exception as error:
            print(json.dumps({"case": str(case), "failed": repr(error)[:1500]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
