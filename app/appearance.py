"""Fonts and density of the interface, as the theme manager applied them to the application."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from PySide6.QtCore import QLocale
from PySide6.QtGui import QFont, QFontDatabase, QFontInfo
from PySide6.QtWidgets import QApplication

COMFORTABLE, COMPACT = "comfortable", "compact"
POINT_SIZE = 10.0
"""Of buttons, lists and labels, unless the user chose another; the other sizes keep their ratio."""
BODY_POINT_SIZE = 10.5
CODE_POINT_SIZE = 9.5
TITLE_POINT_SIZE = 17.0
LINE_HEIGHT = 1.45
_APPEARANCE = "quire_appearance"
_HAN = (
    "Microsoft YaHei UI",
    "PingFang SC",
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Micro Hei",
)
_HAN_FIXED = ("Noto Sans Mono CJK SC",)


@dataclass(frozen=True, slots=True)
class Appearance:
    """Fonts and density. An empty family is the system's; ``font_size`` in points."""

    font_family: str = ""
    code_font_family: str = ""
    font_size: float = POINT_SIZE
    density: str = COMFORTABLE

    def scaled(self, point_size: float) -> float:
        """A size that was chosen for the usual font, for this one."""
        return round(point_size * self.font_size / POINT_SIZE * 2.0) / 2.0


USUAL = Appearance()


def apply(wanted: Appearance) -> None:
    """Gives the running application these fonts and this density."""
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    app.setProperty(_APPEARANCE, wanted)
    app.setFont(interface_font())


def appearance() -> Appearance:
    """What the theme manager applied to the running application."""
    app = QApplication.instance()
    applied = None if app is None else app.property(_APPEARANCE)
    return applied if isinstance(applied, Appearance) else USUAL


def interface_font() -> QFont:
    """The font of buttons, lists and labels."""
    return _font(QFontDatabase.SystemFont.GeneralFont, appearance().font_family, POINT_SIZE)


def body_font() -> QFont:
    """The font of messages."""
    return _font(QFontDatabase.SystemFont.GeneralFont, appearance().font_family, BODY_POINT_SIZE)


def code_font() -> QFont:
    """The font of code."""
    return _font(QFontDatabase.SystemFont.FixedFont, appearance().code_font_family, CODE_POINT_SIZE)


def number_font(point_size: float = 9.0) -> QFont:
    """The interface's font with digits of one width, for figures that change."""
    font = _font(QFontDatabase.SystemFont.GeneralFont, appearance().font_family, point_size)
    font.setFeature(QFont.Tag("tnum"), 1)
    return font


def row_height(usual: int) -> int:
    """The height of a list's row in pixels. ``usual``: with the usual font and density."""
    shown = appearance()
    share = 0.78 if shown.density == COMPACT else 1.0
    return round(usual * share * max(1.0, shown.font_size / POINT_SIZE))


def _font(kind: QFontDatabase.SystemFont, family: str, point_size: float) -> QFont:
    font = QFontDatabase.systemFont(kind)
    font.setFamilies(list(_families(kind, family)))
    font.setPointSizeF(appearance().scaled(point_size))
    return font


@cache
def _families(kind: QFontDatabase.SystemFont, family: str) -> tuple[str, ...]:
    """``family``, the system's and one for Chinese. Looked up once: a page asks a hundred times."""
    # The family that stands behind a generic name, after which others can follow. The system's stay
    # behind the user's, for the letters that it lacks.
    found = [family, QFontInfo(QFontDatabase.systemFont(kind)).family()]
    found.append(_han_family(fixed=kind is QFontDatabase.SystemFont.FixedFont))
    return tuple(name for name in found if name)


def _han_family(fixed: bool) -> str:
    """A family with the Chinese forms of Han characters, for letters that the others lack.

    Left to itself a system that speaks neither language shows the Japanese forms. Empty where
    there is none, or where the system's own language has forms of its own.
    """
    if QLocale.system().language() in (QLocale.Language.Japanese, QLocale.Language.Korean):
        return ""
    if QLocale.system().script() == QLocale.Script.TraditionalHanScript:
        return ""
    names = (*_HAN_FIXED, *_HAN) if fixed else _HAN
    return next((name for name in names if QFontDatabase.hasFamily(name)), "")
