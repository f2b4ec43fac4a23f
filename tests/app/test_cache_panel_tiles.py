"""Every state can be told apart without colour, in both themes, at each size with patterns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtGui import QGuiApplication

from app.cache_panel.grid_image import GridImage
from app.cache_panel.grid_layout import GridLayout
from app.cache_panel.looks import (
    CACHED_CELL,
    FREE_CELL,
    LOST,
    PRIVATE_CELL,
    SHARED_CELL,
    Looks,
    decode,
    encode,
)
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.tiles import TileAtlas, pixels_of
from app.theme import load_theme
from tests.helpers.scripted_pool import four_conversations
from tests.helpers.vision import VISIONS, differing_share, lightness

STATES = {
    "free": encode(FREE_CELL),
    "private": encode(PRIVATE_CELL, 1),
    "shared": encode(SHARED_CELL, 3),
    "cached": encode(CACHED_CELL, 1),
    "pinned": encode(PRIVATE_CELL, 1, pinned=True),
    "shared and pinned": encode(SHARED_CELL, 3, pinned=True),
    "lost": LOST,
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("side", "ratio"), [(6, 1.0), (9, 1.0), (16, 1.0), (24, 1.0), (32, 2.0)])
@pytest.mark.parametrize("vision", VISIONS)
def test_states_are_told_apart_without_colour(
    qapp: QGuiApplication, theme: str, side: int, ratio: float, vision: str
) -> None:
    atlas = TileAtlas(load_theme(theme), side, ratio)
    seen = {}
    for name, code in STATES.items():
        seen[name] = lightness(atlas.tile(code), vision)
    for (one, first), (other, second) in itertools.combinations(seen.items(), 2):
        if {one, other} == {"free", "lost"}:
            continue  # lost entries stand in tables only, where nothing is free
        assert differing_share(first, second) > 0.04, f"{one} and {other}"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("number", range(1, 9))
def test_private_and_cached_differ_for_every_hue(
    qapp: QGuiApplication, theme: str, number: int
) -> None:
    for side in (2, 6, 16):
        atlas = TileAtlas(load_theme(theme), side)
        private = lightness(atlas.tile(encode(PRIVATE_CELL, number)))
        cached = lightness(atlas.tile(encode(CACHED_CELL, number)))
        assert differing_share(private, cached) > 0.04


def test_number_stands_in_cells_from_14_pixels_on(qapp: QGuiApplication) -> None:
    """Numbers 1 and 9 have the same hue: only the number tells them apart."""
    one, nine = encode(PRIVATE_CELL, 1), encode(PRIVATE_CELL, 9)
    for ratio in (1.0, 2.0):
        small = TileAtlas(load_theme("light"), int(13 * ratio), ratio)
        assert np.array_equal(small.tile(one), small.tile(nine))
        large = TileAtlas(load_theme("light"), int(14 * ratio), ratio)
        assert not np.array_equal(large.tile(one), large.tile(nine))
        shared = large.tile(encode(SHARED_CELL, 2)), large.tile(encode(SHARED_CELL, 3))
        assert not np.array_equal(*shared)


@given(st.integers(0, 3), st.integers(0, 999), st.booleans())
def test_codes_can_be_read_back(kind: int, label: int, pinned: bool) -> None:
    assert decode(encode(kind, label, pinned=pinned)) == (kind, pinned, label)


def test_looks_of_a_real_pool() -> None:
    scripted = four_conversations()
    scripted.finish("r1")
    scripted.pool.pin(0, "c2")
    model = PoolModel.from_snapshot(scripted.snapshot())
    looks = Looks(lambda conversation_id: int(conversation_id[1:]))
    codes = looks.codes(model)
    for block in range(model.num_blocks):
        view = scripted.pool.view(block)
        sharers = view.ref_count - view.pins
        owner = int(view.owner[1:]) if view.owner else 0
        kind, label = {
            "free": (FREE_CELL, 0),
            "cached": (CACHED_CELL, owner),
            "used": (SHARED_CELL, view.ref_count) if sharers > 1 else (PRIVATE_CELL, owner),
        }[view.state.value]
        assert decode(int(codes[block])) == (kind, view.pins > 0, label)
    some = np.array([0, 5, 511])
    assert looks.codes(model, some).tolist() == codes[some].tolist()


@given(st.integers(1, 300_000), st.floats(0, 1), st.integers(1, 1200), st.integers(1, 1200))
def test_layout_fits_and_finds_its_blocks(
    num_blocks: int, touched: float, width: int, height: int
) -> None:
    num_touched = round(num_blocks * touched)
    layout = GridLayout.fit(num_blocks, num_touched, width, height, (10, 18))
    assert layout.width <= width
    assert layout.height <= height
    assert num_touched <= layout.num_blocks <= num_blocks
    assert layout.rows * layout.columns * layout.blocks_per_cell >= layout.num_blocks
    for block in {0, layout.num_blocks // 2, layout.num_blocks - 1}:
        x, y = layout.origin(block)
        found = layout.block_at(x + layout.side - 0.5, y + 0.5)
        assert found == block - block % layout.blocks_per_cell
    assert layout.block_at(-1, 0) == layout.block_at(layout.width, 0) == -1


def test_untouched_tail_is_left_out_only_where_cells_would_be_small() -> None:
    sides = (10, 18)
    assert GridLayout.fit(400, 10, 300, 300, sides).num_blocks == 400
    assert GridLayout.fit(400, 10, 300, 300, sides).side == 15
    large = GridLayout.fit(20_000, 100, 300, 300, sides)
    assert (large.side, large.num_blocks) == (18, 256)
    assert GridLayout.fit(20_000, 400, 300, 300, sides).side == 15
    assert GridLayout.fit(20_000, 20_000, 300, 300, sides).side == 2


@pytest.mark.parametrize("area", [(400, 400), (60, 60), (24, 12)])
def test_drawing_dirty_cells_gives_the_same_picture_as_drawing_all(
    qapp: QGuiApplication, area: tuple[int, int]
) -> None:
    scripted = four_conversations()
    scripted.drain()
    model = PoolModel.from_snapshot(scripted.snapshot())
    looks = Looks(lambda conversation_id: int(conversation_id[1:]))
    layout = GridLayout.fit(model.num_blocks, model.num_blocks, *area, (10, 18))
    picture = GridImage(layout, TileAtlas(load_theme("dark"), layout.side))
    picture.draw_all(looks.codes(model))
    before = pixels_of(picture.image)
    scripted.finish("r1")
    scripted.admit("r5", "c5", range(5000, 5100))
    assert model.apply(scripted.drain())
    dirty, _written = model.take_dirty()
    cells, members = picture.members(np.fromiter(dirty, np.int64))
    picture.draw(cells, looks.codes(model, members))
    whole = GridImage(layout, TileAtlas(load_theme("dark"), layout.side))
    whole.draw_all(looks.codes(model))
    assert np.array_equal(pixels_of(picture.image), pixels_of(whole.image))
    assert not np.array_equal(before, pixels_of(whole.image))
