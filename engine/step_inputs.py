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

    def group_numbers(self, sizes: Sizes) -> list[Ints]:
        """Members and shared blocks of the groups, filled up to ``sizes``."""
        members = np.full((sizes.groups, sizes.width), -1, np.int64)
        shared = np.zeros(sizes.groups, np.int64)
        for place, group in enumerate(self.groups):
            members[place, : len(group.rows)] = group.rows
            shared[place] = group.shared_blocks
        return [members, shared]


def sizes_of(step: HostStep, extras: Extras) -> Sizes:
    """The sizes of a step as it is."""
    return Sizes(
        decodes=step.num_decodes,
        prompt=len(step.ids) - step.num_decodes,
        samples=len(step.sampled_rows),
        tiles=len(extras.tiles),
        groups=len(extras.groups),
        width=max((len(group.rows) for group in extras.groups), default=0),
    )


def exact(step: HostStep, extras: Extras) -> list[Ints]:
    """A step's numbers as they are."""
    return [
        step.ids,
        step.positions,
        step.slots,
        step.lengths,
        step.rows,
        step.sample_rows,
        step.sampled_rows,
        step.draws,
        extras.tiles.view(np.int64),
        *extras.group_numbers(sizes_of(step, extras)),
    ]


def padded(step: HostStep, extras: Extras, sizes: Sizes, padding_row: int) -> list[Ints]:
    """A step's numbers filled up to ``sizes``.

    Padding writes nothing (slot −1), attends to nothing (length 0, tiles of zeros), draws nothing,
    and its table row is nobody's.
    """
    count, missing = step.num_decodes, sizes.decodes - step.num_decodes
    tail = sizes.prompt - (len(step.ids) - count)

    def tokens(values: Ints, filler: int) -> Ints:
        return np.concatenate(
            (values[:count], _fill(missing, filler), values[count:], _fill(tail, filler))
        )

    def decodes(values: Ints, filler: int) -> Ints:
        return np.concatenate((values, _fill(missing, filler)))

    sampled = len(step.sampled_rows)
    chunks = sampled - count
    gap = sizes.samples - sizes.decodes - chunks

    def samples(values: Ints, filler: Ints) -> Ints:
        return np.concatenate(
            (values[:count], _repeat(filler, missing), values[count:], _repeat(filler, gap))
        )

    # Prompts begin behind the padded decodes.
    sample_rows = step.sample_rows.copy()
    sample_rows[count:] += missing
    moved = extras.tiles.copy()
    moved[:, 0] += missing
    spare = np.zeros((sizes.tiles - len(moved), TILE_WORDS), np.int32)
    return [
        tokens(step.ids, 0),
        tokens(step.positions, 0),
        tokens(step.slots, -1),
        decodes(step.lengths, 0),
        decodes(step.rows, padding_row),
        samples(sample_rows, np.array(0)),
        samples(step.sampled_rows, np.array(padding_row)),
        samples(step.draws, NOTHING_DRAWN),
        np.concatenate((moved, spare)).view(np.int64),
        *extras.group_numbers(sizes),
    ]


def _repeat(row: Ints, count: int) -> Ints:
    return np.broadcast_to(row, (count, *row.shape))


def _fill(count: int, value: int) -> Ints:
    return np.full(count, value, np.int64)
