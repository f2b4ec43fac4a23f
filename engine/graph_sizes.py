"""The sizes that graphs of steps come in: few, so that soon each is there."""

from __future__ import annotations

from engine.attention.prefill_tiles import Tiling
from engine.device_batch import DrawKind, HostStep
from engine.prompt_sizes import MAX_PROMPT_TOKENS, prompt_rows
from engine.step_inputs import Extras, Sizes, group_sizes
from kernels.launch import next_power_of_2

MAX_DECODES = 256
MAX_CHUNKS = 8

_EXPECTED_DECODES = 64
_FEW_DECODES = (1, 2, 4, 8)


def graph_sizes(step: HostStep, extras: Extras, tiling: Tiling | None) -> Sizes | None:
    """Sizes of the graph for a step; None if it is too large for one."""
    num_prompt = len(step.ids) - step.num_decodes
    too_large = step.num_decodes > MAX_DECODES or num_prompt > MAX_PROMPT_TOKENS
    if too_large or len(step.spans) > MAX_CHUNKS or (num_prompt and tiling is None):
        return None
    decodes = graph_rows(step.num_decodes)
    groups, width = group_sizes(extras.groups)
    if not num_prompt or tiling is None:
        return Sizes(decodes, 0, decodes, 0, groups, width)
    return with_prompt(decodes, prompt_rows(num_prompt), tiling, groups, width)


def with_prompt(
    decodes: int, prompt: int, tiling: Tiling, groups: int = 0, width: int = 0
) -> Sizes:
    """Sizes of a step with so many rows of decodes and of prompts."""
    tiles = tiling.most_tiles(prompt, MAX_CHUNKS, tiling.launch(prompt))
    return Sizes(decodes, prompt, decodes + MAX_CHUNKS, tiles, groups, width)


def graph_rows(count: int) -> int:
    """Rows of the graph for ``count`` decodes.

    Powers of two to 8, then steps of at most a third.
    """
    if count <= 8:
        return next_power_of_2(count) if count else 0
    step = max(4, next_power_of_2(count) // 8)
    return -(-count // step) * step


def expected_sizes(tiling: Tiling | None, shares: bool) -> list[tuple[Sizes, DrawKind]]:
    """Of steps that will come up, the last of the list first.

    Decodes and prompts apart: together they are run as two until there is time to capture them.

    Args:
        tiling: how the prompts' attention is cut; None: there are no graphs of prompts.
        shares: whether there will be decodes that share a beginning.
    """
    few = [Sizes(count, 0, count, 0) for count in _FEW_DECODES]
    first = []
    if tiling is not None:
        prompts = sorted({prompt_rows(count) for count in range(1, MAX_PROMPT_TOKENS + 1, 8)})
        first = [with_prompt(0, prompt, tiling) for prompt in prompts]
    shared = []
    if shares:
        # All that are decoded share one beginning: a system prompt, or what was split off.
        shared = [Sizes(count, 0, count, 0, 1, count) for count in _FEW_DECODES[1:]]
    counts = sorted({graph_rows(count) for count in range(9, _EXPECTED_DECODES + 1)})
    many = [Sizes(count, 0, count, 0) for count in counts]
    expected = [
        (sizes, kind)
        for kind in (DrawKind(), DrawKind(filtered=True))
        for sizes in (*few, *first, *shared, *many)
    ]
    return expected[::-1]
