"""Chinese text has its own letter forms, whatever language the system speaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QLocale
from PySide6.QtGui import QFont, QFontDatabase, QFontInfo, QTextLayout

from app import appearance

FAMILY = "Noto Sans CJK SC"
FONTS = [appearance.interface_font, appearance.body_font, appearance.number_font]


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    appearance._families.cache_clear()
    yield
    appearance._families.cache_clear()


def families_of(font: QFont, text: str) -> set[str]:
    """The families whose letters ``text`` is really set in."""
    layout = QTextLayout(text, font)
    layout.beginLayout()
    layout.createLine()
    layout.endLayout()
    return {run.rawFont().familyName() for run in layout.glyphRuns()}


@pytest.mark.parametrize("make", FONTS)
def test_chinese_is_set_in_chinese_forms_and_latin_as_ever(qtbot, make) -> None:
    if not QFontDatabase.hasFamily(FAMILY):
        pytest.skip(f"the font {FAMILY} is not installed")
    system = QFontInfo(QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)).family()
    assert families_of(make(), "\u5bf9\u8bdd") == {FAMILY}
    assert families_of(make(), "abc") == {system}


def test_without_such_a_font_the_system_chooses(qtbot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QFontDatabase, "hasFamily", lambda _name: False)
    system = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    assert appearance.interface_font().families() == [QFontInfo(system).family()]


@pytest.mark.parametrize("name", ["ja_JP", "ko_KR", "zh_TW"])
def test_a_system_with_forms_of_its_own_keeps_them(
    qtbot, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(QFontDatabase, "hasFamily", lambda _name: True)
    monkeypatch.setattr(QLocale, "system", lambda: QLocale(name))
    assert len(appearance.interface_font().families()) == 1
    appearance._families.cache_clear()
    monkeypatch.setattr(QLocale, "system", lambda: QLocale("zh_CN"))
    assert len(appearance.interface_font().families()) == 2
