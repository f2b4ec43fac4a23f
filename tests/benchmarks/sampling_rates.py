"""Speed of the sampling kernels on a GPU: ``python tests/benchmarks/sampling_rates.py``.

One JSON line a row: microseconds a call (CUDA-graph replay, median), and how many tokens of some
calls differ from the reference's on the same logits (0 but for a cut within rounding).

On one H200, bfloat16 logits of 151,936 tokens, us for peaked / flat logits, as version 2 took them:

| rows | greedy | temperature | min-p | top-k 50 | top-p 0.95 |
|---|---|---|---|---|---|
| 1 | 4 | 10 / 12 | 17 / 18 | 43 / 44 | 42 / 49 |
| 8 | 5 | 15 / 20 | 28 / 31 | 79 / 80 | 68 / 246 |
| 64 | 18 | 62 / 99 | 112 / 141 | 394 / 399 | 283 / 798 |
| 256 | - | 224 / 368 | - | - | - |

By temperature alone, flat logits, at 1 / 8 / 64 / 256 rows:

| version | what changed | expected | found |
|---|---|---|---|
| 1 | 4096 tokens a program, one program a row looks for the cut | - | 13 / 23 / 109 / - |
| 2 | no penalties where there are none, 2048 tokens, cut by all programs | - / - / 60 / - | above |
| 3 | one pass for groups' sums, noise for them and in one | 8 / 8 / 12 / 30 | - / 9 / 15 / 33 |

Version 1's top-p took 848 / 882 / 1130. Of version 2 only peaked logits reached 60: a program's
registers left three of them a multiprocessor. The bytes of version 3 alone take 0.1 / 0.6 / 5 / 20;
8 rows were float32. Its rows of 64 with a cut: top-k 400 / 405, top-p 340 / 853, min-p 150 / 160.
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

from kernels.launch import SampleLaunch
from kernels.reference.sample import RowParameters, pack
from kernels.reference.sample import sample as reference
from kernels.sample import sample
from tests.benchmarks.attention_rows import microseconds

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
    shapes = [(rows, "temperature") for rows in (1, 8, 64, 256)]
    shapes += [(8, "top_p 0.95"), (64, "top_k 50, top_p 0.9")]
    for chunk, warps, draw_warps in [
        (1024, 1, 16),
        (1024, 4, 16),
        (1024, 4, 8),
        (2048, 4, 16),
        (4096, 4, 16),
        (4096, 4, 8),
        (8192, 8, 16),
    ]:
        choice = SampleLaunch(chunk, 512, num_warps=warps, draw_warps=draw_warps, sort_warps=8)
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
