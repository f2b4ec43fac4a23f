"""A step with decodes and prompts as two steps, one behind the other.

There are far fewer sizes of decodes and of prompts than of both together, so that each can have its
CUDA graph before it is needed. The weights are read twice.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.attention.prefill_tiles import NO_TILES
from engine.device_batch import HostStep
from engine.device_drawer import Drawn
from engine.step_inputs import Extras

Half = tuple[HostStep, Extras]


def halves(step: HostStep, extras: Extras) -> tuple[Half, Half]:
    """The decodes of a step, and its prompts. Neither has table entries to change."""
    count = step.num_decodes
    none = step.changed[:0]
    decodes = replace(
        step,
        ids=step.ids[:count],
        positions=step.positions[:count],
        slots=step.slots[:count],
        sample_rows=step.sample_rows[:count],
        sampled_rows=step.sampled_rows[:count],
        draws=step.draws[:count],
        changed=none,
        changes=none,
        spans=(),
        sampled=step.sampled[:count],
        ends=step.ends[:count],
    )
    prompts = replace(
        step,
        ids=step.ids[count:],
        positions=step.positions[count:],
        slots=step.slots[count:],
        lengths=step.lengths[:0],
        rows=step.rows[:0],
        sample_rows=step.sample_rows[count:] - count,
        sampled_rows=step.sampled_rows[count:],
        draws=step.draws[count:],
        changed=none,
        changes=none,
        spans=tuple(replace(span, first_row=span.first_row - count) for span in step.spans),
        sampled=step.sampled[count:],
        ends=step.ends[count:],
    )
    tiles = extras.tiles
    if len(tiles):
        tiles = tiles.copy()
        tiles[:, 0] -= count
    return (
        (decodes, Extras(NO_TILES, 0, extras.groups)),
        (prompts, replace(extras, tiles=tiles, groups=())),
    )


def kept(drawn: Drawn, count: int) -> Drawn:
    """A copy of the first samples: graphs share their memory, and the next one writes over it."""
    logprobs = None if drawn.logprobs is None else drawn.logprobs[:count].clone()
    return Drawn(drawn.tokens[:count].clone(), logprobs)


def joined(first: Drawn, second: Drawn, num_second: int) -> Drawn:
    """All samples of ``first``, then some of ``second``."""
    tokens = torch.cat((first.tokens, second.tokens[:num_second]))
    if first.logprobs is None or second.logprobs is None:
        return Drawn(tokens, None)
    return Drawn(tokens, torch.cat((first.logprobs, second.logprobs[:num_second])))
