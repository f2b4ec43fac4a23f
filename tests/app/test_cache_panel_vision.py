"""What the widgets really show is told apart without colour: both themes, at 100 % and 200 %."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QRect, QSize
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.cache_panel.grid_canvas import GridCanvas
from app.cache_panel.history import History, Moment
from app.cache_panel.looks import Looks
from app.cache_panel.meter import Meter
from app.cache_panel.pool_grid import PoolGrid
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import PoolCounts
from app.cache_panel.timeline import PLOT_HEIGHT, Timeline
from app.cache_panel.usage import BAR_HEIGHT, UsageBar
from app.theme import load_theme
from tests.helpers.scripted_pool import ScriptedPool
from tests.helpers.vision import VISIONS, Values, differing_share, lightness, pixels_in

THEMES = ("light", "dark")
RATIOS = (1.0, 2.0)


@pytest.fixture(params=RATIOS)
def ratio(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    found: float = request.param
    for kind in (GridCanvas, Timeline, UsageBar):
        monkeypatch.setattr(kind, "devicePixelRatioF", lambda _self: found)
    return found


def rendered(widget: QWidget, ratio: float) -> QImage:
    image = QImage(widget.size() * ratio, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(ratio)
    painter = QPainter(image)
    widget.render(painter, QPoint(0, 0))
    painter.end()
    return image


def patch_of(image: QImage, rect: QRect, ratio: float, vision: str) -> Values:
    scaled = QRect(rect.topLeft() * ratio, rect.size() * ratio)
    return lightness(pixels_in(image.copy(scaled)), vision)


def all_states() -> tuple[ScriptedPool, dict[str, int]]:
    """A pool with a block in each state, and which one that is."""
    scripted = ScriptedPool(64)
    assert scripted.admit("r1", "c1", range(100))
    scripted.compute("r1")
    assert scripted.admit("r2", "c1", [*range(64), *range(500, 540)])
    scripted.compute("r2")
    assert scripted.admit("r3", "c1", range(900, 970))
    scripted.compute("r3")
    cached = scripted.requests["r3"].block_table[0]
    scripted.finish("r3")
    pinned = scripted.requests["r1"].block_table[4]
    scripted.pool.pin(pinned, "c1")
    both = scripted.requests["r1"].block_table[1]
    scripted.pool.pin(both, "c1")
    blocks = {
        "free": 63,
        "private": scripted.requests["r2"].block_table[-2],
        "written": scripted.requests["r2"].block_table[-1],
        "shared": scripted.requests["r1"].block_table[0],
        "shared and pinned": both,
        "pinned": pinned,
        "cached": cached,
        "to be evicted": scripted.requests["r2"].block_table[-3],
    }
    assert len(set(blocks.values())) == len(blocks)
    return scripted, blocks


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_states_in_the_grid_are_told_apart(
    qtbot: QtBot, theme: str, vision: str, ratio: float
) -> None:
    scripted, blocks = all_states()
    grid = PoolGrid(Looks(lambda _c: 1), load_theme(theme), lambda _b: "", Meter())
    qtbot.addWidget(grid)
    grid.resize(200, 120)
    grid.set_model(PoolModel.from_snapshot(scripted.snapshot()))
    # The first picture settles the size, and a new size takes all rims away.
    rendered(grid, ratio)
    grid.refresh({blocks["written"]}, {blocks["written"]})
    grid.set_leaving([blocks["to be evicted"]])
    image = rendered(grid, ratio)
    grid.hide()
    side = int(grid.layout_in_use.side / ratio)
    seen = {
        name: patch_of(
            image, QRect(grid.rect_of(block).topLeft().toPoint(), QSize(side, side)), ratio, vision
        )
        for name, block in blocks.items()
    }
    for (one, first), (other, second) in itertools.combinations(seen.items(), 2):
        assert differing_share(first, second) > 0.04, f"{one} and {other}"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_layers_of_the_timeline_are_told_apart(
    qtbot: QtBot, theme: str, vision: str, ratio: float
) -> None:
    history = History()
    counts = PoolCounts(free=900, cached=30, private=30, shared=0, pinned=0)
    for second in range(61):
        history.mark(Moment(float(second), second, second, counts, 30))
    timeline = Timeline(load_theme(theme), Meter())
    qtbot.addWidget(timeline)
    timeline.resize(300, timeline.sizeHint().height())
    timeline.show_history(history, 990, 1, 60.0, None)
    image = rendered(timeline, ratio)
    top = timeline.top_blocks
    assert top == 108
    edges = [0, 30, 60, 90, top]
    seen = []
    for low, high in itertools.pairwise(edges):
        middle = PLOT_HEIGHT * (1 - (low + high) / 2 / top)
        seen.append(patch_of(image, QRect(100, round(middle) - 2, 60, 5), ratio, vision))
    for first, second in itertools.combinations(seen, 2):
        assert differing_share(first, second) > 0.04
    # Where two layers meet there is a line, darker or lighter than both.
    column = pixels_in(image)[: int(PLOT_HEIGHT * ratio), int(150 * ratio)]
    line = np.uint32(load_theme(theme).color("text").rgb())
    assert np.count_nonzero(column == line) >= 3


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_parts_of_the_usage_bar_are_told_apart(
    qtbot: QtBot, theme: str, vision: str, ratio: float
) -> None:
    bar = UsageBar(load_theme(theme))
    qtbot.addWidget(bar)
    bar.resize(500, bar.sizeHint().height())
    bar.set_counts(PoolCounts(20, 20, 20, 20, 20), 0)
    image = rendered(bar, ratio)
    seen = [
        patch_of(image, QRect(100 * part + 20, 6, 60, BAR_HEIGHT - 4), ratio, vision)
        for part in range(5)
    ]
    for first, second in itertools.combinations(seen, 2):
        assert differing_share(first, second) > 0.04
