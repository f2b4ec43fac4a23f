"""Tokens, contrast, and switching at run time."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication

from app import assets, theme
from app.theme import ThemeManager, blend, contrast, load_theme

APP = assets.RESOURCES.parent / "app"
GROUNDS = ("background", "surface", "raised", "hover", "accent_soft", "selection")
TEXT_PAIRS = [
    *[("text", ground) for ground in (*GROUNDS, "warning_soft", "error_soft")],
    *[("muted", ground) for ground in ("background", "surface", "raised")],
    *[("accent", ground) for ground in ("background", "surface")],
    *[(tone, ground) for tone in ("warning", "error") for ground in ("background", "surface")],
    ("warning", "warning_soft"),
    ("error", "error_soft"),
    ("on_accent", "accent"),
    ("on_accent", "accent_hover"),
]


class FakeSystem:
    def __init__(self, dark: bool) -> None:
        self.dark = dark
        self.listener: Callable[[], None] = lambda: None

    def is_dark(self) -> bool:
        return self.dark

    def on_change(self, listener: Callable[[], None]) -> None:
        self.listener = listener


@pytest.mark.parametrize("name", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), TEXT_PAIRS)
def test_text_pairs_are_readable(name: str, ink: str, ground: str) -> None:
    chosen = load_theme(name)
    assert contrast(chosen.color(ink), chosen.color(ground)) >= 4.5


@pytest.mark.parametrize("name", ["light", "dark"])
def test_code_colours_are_readable_on_the_code_ground(name: str) -> None:
    chosen = load_theme(name)
    for token, color in chosen.syntax.items():
        assert contrast(QColor(color), chosen.color("raised")) >= 4.5, token


@pytest.mark.parametrize("name", ["light", "dark"])
def test_numbers_are_readable_on_every_hue(name: str) -> None:
    chosen = load_theme(name)
    for color in [*map(QColor, chosen.hues), chosen.shared]:
        assert contrast(chosen.on(color), color) >= 4.5


@pytest.mark.parametrize("name", ["light", "dark"])
def test_hues_stand_out_from_the_ground(name: str) -> None:
    chosen = load_theme(name)
    for color in [*map(QColor, chosen.hues), chosen.shared]:
        assert contrast(color, chosen.color("surface")) >= 2.0


def test_hues_repeat_after_eight() -> None:
    light = load_theme("light")
    assert len(set(light.hues)) == 8
    assert light.hue(1).name().upper() == "#0072B2"
    assert light.hue(9) == light.hue(1)


def test_both_themes_have_the_same_tokens() -> None:
    light, dark = load_theme("light"), load_theme("dark")
    assert light.colors.keys() == dark.colors.keys()
    assert light.syntax.keys() == dark.syntax.keys()
    assert len(light.hues) == len(dark.hues)


def test_contrast_of_black_and_white_is_21() -> None:
    assert contrast(QColor("#000000"), QColor("#FFFFFF")) == pytest.approx(21.0)


def test_blend_half_way() -> None:
    mixed = blend(QColor("#000000"), QColor("#FFFFFF"), 0.5)
    assert mixed.red() == pytest.approx(128, abs=1)


def test_style_sheet_has_no_token_left() -> None:
    for name in ("light", "dark"):
        assert "$" not in load_theme(name).style_sheet()


def test_system_mode_follows_the_desktop(qapp: QApplication) -> None:
    system = FakeSystem(dark=False)
    manager = ThemeManager("system", system)
    assert not manager.theme.dark
    seen: list[bool] = []
    manager.changed.connect(lambda changed: seen.append(changed.dark))
    system.dark = True
    system.listener()
    assert manager.theme.dark
    assert seen == [True]


def test_a_chosen_mode_ignores_the_desktop(qapp: QApplication) -> None:
    system = FakeSystem(dark=True)
    manager = ThemeManager("light", system)
    system.listener()
    assert not manager.theme.dark


def test_switching_changes_palette_and_style_sheet(qapp: QApplication) -> None:
    manager = ThemeManager("light", FakeSystem(dark=False))
    manager.apply()
    light_sheet = qapp.styleSheet()
    manager.set_mode("dark")
    assert qapp.styleSheet() != light_sheet
    assert qapp.palette().window().color() == load_theme("dark").color("background")
    manager.set_mode("light")


def test_unknown_mode_is_refused(qapp: QApplication) -> None:
    with pytest.raises(ValueError, match="purple"):
        ThemeManager("purple", FakeSystem(dark=False))


def test_no_module_has_colours_of_its_own() -> None:
    """Only theme.py may name black and white, which it puts on hues; and a formula's picture has a
    mark in the place of a colour, for whoever paints it.
    """
    found = [
        f"{path.name}: {line.strip()}"
        for path in APP.rglob("*.py")
        if path.name not in ("theme.py", "formula_picture.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"[\"']#[0-9A-Fa-f]{3,8}[\"']|setStyleSheet|QColor\([0-9\"']", line)
    ]
    assert found == []


@pytest.mark.parametrize("path", sorted((assets.RESOURCES / "icons").glob("*.svg")), ids=str)
def test_icon_draws_in_the_asked_colour(qapp: QApplication, path) -> None:
    image = assets.icon_pixmap(path.stem, "#FF0000", 24).toImage()
    opaque = [
        image.pixelColor(x, y)
        for x in range(24)
        for y in range(24)
        if image.pixelColor(x, y).alpha() > 200
    ]
    assert opaque
    if path.stem != "quire":
        assert all(color.red() > 200 and color.green() < 40 for color in opaque)


def test_code_font_is_fixed_and_smaller(qapp: QApplication) -> None:
    assert theme.code_font().pointSizeF() == 9.5
    assert theme.body_font().pointSizeF() == 10.5
