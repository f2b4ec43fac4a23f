"""What a step on a device reads, as one row of numbers of a fixed layout, padded where a CUDA graph
wants a fixed size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.attention.prefill_tiles import NO_TILES, TILE_WORDS
from engine.attention.prefix_groups import PrefixGroup, PrefixGroups
from engine.device_batch import HostStep, Ints
from engine.device_drawer import DRAW_WORDS, NOTHING_DRAWN
from kernels.launch import next_power_of_2


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of a step: of ``decodes``, of ``prompt`` tokens, of ``samples``, of attention ``tiles``
    of the prompts, and of ``groups`` of at most ``width`` decodes that begin with the same blocks.
    """

    decodes: int
    prompt: int
    samples: int
    tiles: int
    groups: int = 0
    width: int = 0

    @property
    def words(self) -> int:
        """int64 numbers that such a step is sent with."""
        return sum(self.parts)

    @property
    def parts(self) -> list[int]:
        """Sizes of ``StepInputs``' fields, one behind another. Tiles are two to a number."""
        tokens = self.decodes + self.prompt
        samples = self.samples
        return [
            *[tokens] * 3,
            *[self.decodes] * 2,
            *[samples] * 2,
            samples * DRAW_WORDS,
            self.tiles * TILE_WORDS // 2,
            self.groups * self.width,
            self.groups,
        ]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A step on the device: decodes' rows first, then the prompts'. See ``HostStep``.

    ``ids``, ``positions``, ``slots``: ``[tokens]``; ``lengths``, ``rows``: ``[decodes]``;
    ``sample_rows``, ``sampled_rows``: ``[samples]``; all int64. ``draws``:
    ``[samples, DRAW_WORDS]`` int64. ``tiles``: ``[tiles, TILE_WORDS]`` int32.
    ``groups``: which decodes share a beginning, None if that is of no use.
    """

    ids: Tensor
    positions: Tensor
    slots: Tensor
    lengths: Tensor
    rows: Tensor
    sample_rows: Tensor
    sampled_rows: Tensor
    draws: Tensor
    tiles: Tensor
    groups: PrefixGroups | None

    @classmethod
    def of(cls, pieces: Sequence[Tensor], num_groups: int) -> StepInputs:
        """From flat int64 pieces of the sizes ``Sizes.parts``."""
        ids, positions, slots, lengths, rows, sample_rows, sampled_rows, *rest = pieces
        draws, tiles, members, shared = rest
        return cls(
            ids=ids,
            positions=positions,
            slots=slots,
            lengths=lengths,
            rows=rows,
            sample_rows=sample_rows,
            sampled_rows=sampled_rows,
            draws=draws.view(-1, DRAW_WORDS),
            tiles=tiles.view(torch.int32).view(-1, TILE_WORDS),
            groups=PrefixGroups(members.view(num_groups, -1), shared) if num_groups else None,
        )


@dataclass(frozen=True, slots=True)
class Extras:
    """What attention wants to know of a step besides its rows, on the host.

    ``tiles``: ``[tiles, TILE_WORDS]`` of its prompts, cut for ``tiled_for`` tokens. ``groups``: of
    its decodes.
    """

    tiles: NDArray[np.int32]
    tiled_for: int = 0
    groups: tuple[PrefixGroup, ...] = ()

    @classmethod
    def none(cls) -> Extras:
        """Of a step without prompts and groups."""
        return cls(NO_TILES)


def group_sizes(groups: Sequence[PrefixGroup]) -> tuple[int, int]:
    """Groups and members of the largest, as powers of two: kernels are compiled for these."""
    if not groups:
        return 0, 0
    longest = max(len(group.rows) for group in groups)
    return next_power_of_2(len(groups)), next_power_of_2(longest)


def sizes_of(step: HostStep, extras: Extras) -> Sizes:
    """The sizes of a step as it is, but for its groups."""
    groups, width = group_sizes(extras.groups)
    return Sizes(
        decodes=step.num_decodes,
        prompt=len(step.ids) - step.num_decodes,
        samples=len(step.sampled_rows),
        tiles=len(extras.tiles),
        groups=groups,
        width=width,
    )


class Layout:
    """Writes steps as one row of numbers: ``sizes.words`` of them, the parts behind one another.

    What a step does not fill is padding: it writes nothing (slot −1), attends to nothing (length 0,
    tiles of zeros), draws nothing, and its table row is nobody's.
    """

    def __init__(self, sizes: Sizes, padding_row: int) -> None:
        self.sizes = sizes
        starts = np.concatenate(([0], np.cumsum(sizes.parts)))
        self._at = [int(start) for start in starts]
        self._padding = np.zeros(sizes.words, np.int64)
        at = self._at
        self._padding[at[2] : at[3]] = -1
        self._padding[at[4] : at[5]] = padding_row
        self._padding[at[6] : at[7]] = padding_row
        self._padding[at[7] : at[8]] = np.tile(NOTHING_DRAWN, sizes.samples)
        self._padding[at[9] : at[10]] = -1

    def write(self, step: HostStep, extras: Extras, out: Ints) -> None:
        """Fills ``out``, ``[sizes.words]``."""
        at, decodes, count = self._at, self.sizes.decodes, step.num_decodes
        if count == decodes == self.sizes.samples and not self.sizes.prompt:
            self._write_full(step, out)
        else:
            self._write_padded(step, out)
        if len(extras.tiles):
            words = extras.tiles.size // 2
            tiles = out[at[8] : at[8] + words].view(np.int32).reshape(-1, TILE_WORDS)
            tiles[:] = extras.tiles
            # Prompts begin behind the padded decodes.
            tiles[:, 0] += decodes - count
        for place, group in enumerate(extras.groups):
            first = at[9] + place * self.sizes.width
            out[first : first + len(group.rows)] = group.rows
            out[at[10] + place] = group.shared_blocks

    def _write_full(self, step: HostStep, out: Ints) -> None:
        """Decodes that fill the layout: nothing to pad, which is most steps of a few chats."""
        behind = self._at[8]
        parts = (step.ids, step.positions, step.slots, step.lengths, step.rows)
        rows = (step.sample_rows, step.sampled_rows, step.draws.reshape(-1))
        np.concatenate((*parts, *rows), out=out[:behind])
        if behind < len(out):
            out[behind:] = self._padding[behind:]

    def _write_padded(self, step: HostStep, out: Ints) -> None:
        at, decodes, count = self._at, self.sizes.decodes, step.num_decodes
        out[:] = self._padding
        self._split(out, at[0], step.ids, count)
        self._split(out, at[1], step.positions, count)
        self._split(out, at[2], step.slots, count)
        out[at[3] : at[3] + count] = step.lengths
        out[at[4] : at[4] + count] = step.rows
        self._split(out, at[5], step.sample_rows, count)
        chunks = len(step.sample_rows) - count
        out[at[5] + decodes : at[5] + decodes + chunks] += decodes - count
        self._split(out, at[6], step.sampled_rows, count)
        self._split(out, at[7], step.draws.reshape(-1), count, DRAW_WORDS)

    def _split(self, out: Ints, start: int, values: Ints, count: int, width: int = 1) -> None:
        """The values of ``count`` decodes at ``start``, the others behind the padded decodes."""
        cut, rest = count * width, len(values) - count * width
        out[start : start + cut] = values[:cut]
        if rest:
            behind = start + self.sizes.decodes * width
            out[behind : behind + rest] = values[cut:]
