"""Every tuning choice of the kernels in one place: tiles, warps, split counts."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch

from kernels.dependent_launch import can_pdl

MIN_DOT_ROWS = 16
"""A tensor-core product has at least this many rows."""

_FALLBACK_MULTIPROCESSORS = 1
_PROGRAMS_PER_MULTIPROCESSOR = 4
_DEEP_PROGRAMS_PER_MULTIPROCESSOR = 3
_SHARED_PROGRAMS_PER_MULTIPROCESSOR = 1
_OWN_PROGRAMS_PER_MULTIPROCESSOR = 2
"""Of the shared beginnings' kernel and the one that runs beside it, on one multiprocessor's memory.
"""
_MIN_PART_TOKENS = 64
_FIXED_PART_TOKENS = 512
_JOIN_ELEMENTS = 8192
_DESKTOP_SHARED_MEMORY = 99 * 1024
_LARGE_SHARED_MEMORY = 200_000
_WIDE_PREFILL_PAIRS = 4096
_CHUNK_PER_DRAWN_ROW = 32
_PREFILL_PER_MULTIPROCESSOR = 2
_SHARED_PREFIX_BYTES = 4096 * 4096
_LONG_PREFIX_BYTES = 1024 * 4096


@dataclass(frozen=True, slots=True)
class DecodeLaunch:
    """How decode steps of a shape are cut up.

    ``rows``: query heads of one KV head, padded. ``tile``: tokens a step of the loop.
    ``spread``: programs of one KV head that the device takes at once. ``part_share``: where there
    are more parts, a part has at most so many sixteenths of a program's share of all tiles.
    ``min_tiles``: tiles of the smallest part. ``fixed_tiles``: tiles of a part where it must not
    depend on other sequences. ``join_chunk``: parts that are joined at a time.
    ``early``: programs start while the kernel before still runs, and wait for it themselves.
    """

    rows: int
    tile: int
    spread: int
    part_share: int
    min_tiles: int
    fixed_tiles: int
    join_chunk: int
    num_warps: int
    num_stages: int
    early: bool


@dataclass(frozen=True, slots=True)
class SharedLaunch:
    """How the shared beginnings of a decode step are cut up; ``rows``: (sequence, head) pairs of
    one program, the rest as in ``DecodeLaunch``.
    """

    rows: int
    tile: int
    spread: int
    min_tiles: int
    num_warps: int
    num_stages: int
    early: bool


@dataclass(frozen=True, slots=True)
class PrefillLaunch:
    """``rows``: (token, head) pairs of one program. ``tile``: keys a step of the loop. ``spread``:
    parts that all keys together are cut into, besides one a tile of rows; 0 where there are enough
    of these.
    """

    rows: int
    tile: int
    num_warps: int
    num_stages: int
    spread: int = 0


@dataclass(frozen=True, slots=True)
class SampleLaunch:
    """``chunk``: tokens of a program, whole groups. ``draw_warps``: of the program that draws a row
    without cuts. ``list_size``: scores that one program sorts, with ``sort_warps``; rows with cuts
    are drawn with as many.
    """

    chunk: int
    list_size: int
    num_warps: int
    draw_warps: int
    sort_warps: int


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a CUDA device; 1 elsewhere (the interpreter)."""
    if device.type != "cuda":
        return _FALLBACK_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have; that of a desktop GPU for the interpreter."""
    if device.type != "cuda":
        return _DESKTOP_SHARED_MEMORY
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", _DESKTOP_SHARED_MEMORY))


def next_power_of_2(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()


def dot_width(head_dim: int) -> int:
    """Columns of a tile of keys or values; tensor cores take 16 at least."""
    return max(MIN_DOT_ROWS, next_power_of_2(head_dim))


def decode_launch(
    num_heads: int, num_kv_heads: int, head_dim: int, device: torch.device, batch: int = 1
) -> DecodeLaunch:
    """How decode steps of this shape are cut up.

    Four programs on a multiprocessor with one tile on its way each, or three with two: the latter
    where contexts as they are leave room for a fourth (34 to 49 of Qwen3-0.6B on an H200), and in
    several waves, where what is left at the end is sooner done.
    """
    few, deep = _decode_launches(num_heads, num_kv_heads, head_dim, device)
    room = few.spread // 2 < batch <= deep.spread
    return deep if room or batch > few.spread else few


@functools.cache
def _decode_launches(
    num_heads: int, num_kv_heads: int, head_dim: int, device: torch.device
) -> tuple[DecodeLaunch, DecodeLaunch]:
    group = num_heads // num_kv_heads
    tile = 32 if head_dim > 128 else 64

    def spread(programs: int) -> int:
        return max(1, programs * multiprocessors(device) // num_kv_heads)

    few = DecodeLaunch(
        rows=max(MIN_DOT_ROWS, next_power_of_2(group)),
        tile=tile,
        spread=spread(_PROGRAMS_PER_MULTIPROCESSOR),
        part_share=10,
        min_tiles=max(1, _MIN_PART_TOKENS // tile),
        fixed_tiles=_FIXED_PART_TOKENS // tile,
        join_chunk=join_chunk(group, head_dim),
        num_warps=2 if head_dim <= 128 and group <= 16 else 4,
        num_stages=2,
        early=can_pdl(device),
    )
    if shared_memory(device) <= _LARGE_SHARED_MEMORY:
        return few, few
    programs = spread(_DEEP_PROGRAMS_PER_MULTIPROCESSOR)
    return few, replace(few, spread=programs, part_share=12, num_stages=3)


@functools.cache
def shared_launch(
    width: int, num_heads: int, num_kv_heads: int, head_dim: int, device: torch.device
) -> SharedLaunch:
    """How the shared beginnings of groups of at most ``width`` sequences are cut up."""
    pairs = width * (num_heads // num_kv_heads)
    rows = min(64, max(MIN_DOT_ROWS, next_power_of_2(pairs)))
    tile = 32 if head_dim > 128 else 64
    # Two tiles on their way at once, where they fit in every dtype.
    deep = head_dim <= 128 and shared_memory(device) > _LARGE_SHARED_MEMORY
    programs = _SHARED_PROGRAMS_PER_MULTIPROCESSOR * multiprocessors(device)
    return SharedLaunch(
        rows=rows,
        tile=tile,
        spread=max(1, -(-programs // (num_kv_heads * -(-pairs // rows)))),
        min_tiles=max(1, _MIN_PART_TOKENS // tile),
        num_warps=4,
        num_stages=3 if deep else 2,
        early=can_pdl(device),
    )


def fitting_rows(launch: SharedLaunch, head_dim: int, itemsize: int, device: torch.device) -> int:
    """As many of a launch's rows as fit the device's shared memory in a dtype: in 32 bits a desktop
    GPU's takes half of them, of wide heads a quarter.

    A plan does not depend on the dtype, nor on how many programs share its rows.

    Args:
        launch: of ``shared_launch``.
        head_dim: of keys and values.
        itemsize: bytes of one of their elements.
        device: where they lie.
    """
    width, rows = dot_width(head_dim), launch.rows
    ahead = 2 * (launch.num_stages - 1) * launch.tile * width * itemsize
    # A query and its weights of a tile, as compiled for float32; those of 16 bits take less.
    row = width * itemsize + 4 * launch.tile + 4
    while rows > MIN_DOT_ROWS and ahead + rows * row > shared_memory(device):
        rows //= 2
    return rows


@functools.cache
def own_launch(
    num_heads: int, num_kv_heads: int, head_dim: int, device: torch.device
) -> DecodeLaunch:
    """How what sequences have of their own is cut up: half as fine as without shared beginnings,
    whose programs run at the same time.
    """
    launch = decode_launch(num_heads, num_kv_heads, head_dim, device)
    programs = _OWN_PROGRAMS_PER_MULTIPROCESSOR * multiprocessors(device)
    return replace(launch, spread=max(1, -(-programs // num_kv_heads)))


def join_chunk(group: int, head_dim: int) -> int:
    """Parts of one KV head's ``group`` query heads that fit a program's registers at once."""
    size = next_power_of_2(group) * dot_width(head_dim)
    return max(1, min(32, _JOIN_ELEMENTS // size))


def prefill_launch(
    num_tokens: int,
    group: int,
    head_dim: int,
    itemsize: int,
    device: torch.device,
    num_kv_heads: int | None = None,
) -> PrefillLaunch:
    """How prefill chunks of so many tokens together are cut up: the first choice that fits the
    device's shared memory.

    ``num_kv_heads`` None: their keys are not cut into parts.
    """
    pairs = num_tokens * group
    width = dot_width(head_dim)
    for most, tile, stages in ((128, 64, 3), (64, 64, 3), (64, 64, 2), (64, 32, 2), (32, 32, 1)):
        rows = min(most, max(MIN_DOT_ROWS, next_power_of_2(pairs)))
        if most > 64 and (pairs < _WIDE_PREFILL_PAIRS or head_dim > 128):
            continue
        # The queries, and keys and values of every stage.
        if (rows + 2 * stages * tile) * width * itemsize <= shared_memory(device):
            break
    spread = 0
    if num_kv_heads is not None:
        spread = _PREFILL_PER_MULTIPROCESSOR * multiprocessors(device) // num_kv_heads
    if -(-pairs // rows) >= spread:
        spread = 0
    warps = 8 if rows >= 128 else 4
    return PrefillLaunch(rows, tile, num_warps=warps, num_stages=stages, spread=spread)


def uses_shared_prefix(
    sequences: int, prefix_tokens: int, own_tokens: int, token_bytes: int
) -> bool:
    """Whether reading a shared beginning once pays for the second launch of each layer.

    It does where it saves at least three quarters of what is still read, and 17 MB a layer, or four
    times as much where the beginning has less than 4 MB: its few parts are then read by many
    programs. Times faster as a step of Qwen3-0.6B on an H200 (4096 bytes a token), 512 own tokens
    each:

    | sequences | 2 | 3 | 4 | 8 | 16 | 32 | 64 |
    |---|---|---|---|---|---|---|---|
    | 512 in common | 1.03 | 0.95 | 0.93 | 1.03 | 0.97 | 0.95 | 1.09 |
    | 1024 | 1.03 | 0.97 | 0.93 | 1.03 | 1.02 | 1.06 | 1.30 |
    | 2048 | 1.05 | 1.03 | 1.03 | 1.16 | 1.20 | 1.32 | 1.68 |
    | 4096 | 1.08 | 1.03 | 1.07 | 1.32 | 1.50 | 1.77 | 2.39 |

    Attention of 8 that share 2048 takes 0.70 / 0.92 / 1.04 times as long with 512 / 2048 / 6000
    tokens of their own: each by itself finds the others' beginning in the level-2 cache.

    Args:
        sequences: that share the beginning.
        prefix_tokens: of it.
        own_tokens: that all of them together have besides.
        token_bytes: keys and values of a token in one layer.
    """
    saved = (sequences - 1) * prefix_tokens
    long = prefix_tokens * token_bytes >= _LONG_PREFIX_BYTES
    least = _SHARED_PREFIX_BYTES if long else 4 * _SHARED_PREFIX_BYTES
    return saved * token_bytes >= least and 4 * saved >= 3 * (prefix_tokens + own_tokens)


def sample_launch(rows: int, filtered: bool, device: torch.device) -> SampleLaunch:
    """How so many rows of logits are cut up.

    Few rows are cut finer, to fill the device; the search for thresholds keeps more in registers.
    """
    if device.type != "cuda":
        # The interpreter's time goes by the number of operations and the length of a sort.
        return SampleLaunch(chunk=512, list_size=16, num_warps=4, draw_warps=4, sort_warps=4)
    chunk = 1024 if filtered else min(4096, max(1024, next_power_of_2(rows) * _CHUNK_PER_DRAWN_ROW))
    return SampleLaunch(chunk, list_size=512, num_warps=4, draw_warps=16, sort_warps=8)
