"""LaTeX to a picture of one colour, as SVG. Qt-free.

The library takes twice the time for each level of nesting, so that a formula is judged by its
nesting first. Its SVG is looked through: nothing in it may point anywhere.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from html import unescape

from app.formula_signs import with_signs, with_squares
from app.markdown_math import Formula

INK = "#010203"
"""The colour that whoever paints the picture replaces."""
EM = 40.0
"""Font size that the picture is made at, in its own units."""
X_HEIGHT = 0.467
"""Height of an x in the font of formulas, in ems."""
MAX_LENGTH = 1500
MAX_COST = 1000
WIDEST, HIGHEST = 90, 40
"""In ems. It is made smaller to fit into the column; a wider one could not be read then."""
_MARGIN = 1.0

_LEVELS = re.compile(r"\\left(?![a-z])|\\right(?![a-z])|\\begin|\\end|[{}]|\\[A-Za-z]+|\\.|\S")
_UNNEEDED = re.compile(
    r"\\label\{[^{}]*\}|\\nonumber|\\notag|\\(?:text)?color\{[^{}]*\}|\\begin\{equation\*?\}"
    r"|\\end\{equation\*?\}"
)
_TAG = re.compile(r"\\tag\{([^{}]*)\}")
_RAISED_MATRIX = re.compile(r"(\\begin\{([a-zA-Z]*matrix)\}.*?\\end\{\2\})(?=\s*[\^_])", re.DOTALL)
_UNKNOWN = re.compile(r">\s*\\")
_FOREIGN = re.compile(
    r"<(?!/?(?:svg|path|rect|g|title|line|polyline|text)[\s>/])|href|url\s*\(|style="
)
_SIZE = re.compile(r'width="[^"]*" height="[^"]*" viewBox="[^"]*"')
_MARKUP = re.compile(r"<[^>]*>")
_INVISIBLE = "\u200b\u2061\u2062\u2063\u2064\ufe0e\ufe0f \u00a0\u2003\u2002\u2009\u200a\n\t"
_FILL = re.compile(r'(fill|stroke)="(?!none")[^"]*"')
# One at a time: the library keeps the state of its numbering and styles in modules.
_LOCK = threading.Lock()


class FormulaError(ValueError):
    """Not LaTeX that can be drawn; its source is shown."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Sizes in ems of the font around it. ``ascent`` and ``descent`` from the baseline."""

    svg: str
    width: float
    ascent: float
    descent: float


def draw(formula: Formula) -> Picture:
    """The picture of a formula: some milliseconds, a second for one that only just may be drawn.

    Raises:
        FormulaError: it is too long, too deep, or not known LaTeX.
    """
    picture = _draw(formula.tex, formula.is_display)
    if picture is None:
        raise FormulaError(formula.source)
    return picture


def cost(tex: str) -> int:
    """How much work a formula is: its signs, each counted twice for every level it is inside."""
    level, total = 0, 0
    for sign in _LEVELS.findall(tex):
        if sign in ("{", "\\begin", "\\left"):
            level += 1
        elif sign in ("}", "\\end", "\\right"):
            level = max(0, level - 1)
        else:
            total += 1 << min(level, 20)
    return total


@lru_cache(maxsize=2000)
def _draw(tex: str, is_display: bool) -> Picture | None:
    if len(tex) > MAX_LENGTH or cost(tex) > MAX_COST:
        return None
    prepared = _TAG.sub(r"\\qquad (\1)", _UNNEEDED.sub("", tex))
    prepared = _RAISED_MATRIX.sub(r"{\1}", prepared)
    try:
        with _LOCK:
            svg, left, right, up, down = _render(prepared, is_display)
    # The library raises whatever comes up in it: assertions, look-ups, errors of the XML parser.
    except Exception:
        return None
    width, height = right - left, up + down
    if not (0 < width < WIDEST * EM and 0 < height < HIGHEST * EM) or _FOREIGN.search(svg):
        return None
    around = 2 * _MARGIN
    place = f"{left - _MARGIN} {-up - _MARGIN} {width + around} {height + around}"
    size = f'width="{width + around}" height="{height + around}" viewBox="{place}"'
    return Picture(
        _FILL.sub(rf'\1="{INK}"', _SIZE.sub(size, svg, count=1)),
        (width + around) / EM,
        (up + _MARGIN) / EM,
        (down + _MARGIN) / EM,
    )


def _render(tex: str, is_display: bool) -> tuple[str, float, float, float, float]:
    """The SVG, where it begins and ends, and how far it reaches above and below the baseline."""
    # Imported late: it reads a font of 1.5 MB.
    from ziamath.config import config
    from ziamath.tex import tex2mml
    from ziamath.zmath import Math

    config.svg2 = False
    mathml = tex2mml(tex, inline=not is_display)
    if _UNKNOWN.search(mathml) or "background" in mathml:
        raise FormulaError(tex)
    mathml, wide = with_squares(mathml)
    made = Math(mathml, size=EM, margin=_MARGIN)
    if any(made.font.glyphindex(sign) == 0 for sign in _written(mathml)):
        raise FormulaError(tex)
    box = made.node.bbox
    svg, up, down = with_signs(made.svg(), wide)
    return svg, box.xmin, box.xmax, max(up, box.ymax), max(down, -box.ymin)


def _written(mathml: str) -> set[str]:
    """The signs that need a letter of the font."""
    return set(unescape(_MARKUP.sub("", mathml))) - set(_INVISIBLE)
