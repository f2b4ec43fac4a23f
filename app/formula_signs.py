"""Chinese, Japanese and Korean signs in formulas, whose font has none. Qt-free.

A black square that the font does have keeps the place of each. Where the squares come to lie in
the picture, the signs are put as text, for Qt to draw with a font that has them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from html import escape
from xml.etree import ElementTree

_SQUARE = "\u25a0"
_CODE = re.compile(r"&#x0*([0-9A-Fa-f]{4,6});")
_TEXT = re.compile(r">([^<]+)<")
_PATH = re.compile(
    r'<path d="M ([\d.-]+) ([\d.-]+) L \1 \2 L ([\d.-]+) \2 L \3 ([\d.-]+) L \1 \4 Z "'
    r' fill="[^"]*" />'
)
# Width of the square, size of a sign, and how far a sign reaches above and below: in ems.
_WIDTH, _SIZE, _ABOVE, _BELOW = 0.84, 0.87, 0.78, 0.15
# Baseline of a sign below the middle of its square, in ems: there the two look alike in height.
_MIDDLE = 0.29
# The library draws what is above or beside a root before what the element begins or ends with.
_DRAWN = {"munderover": (0, 2, 1), "mroot": (1, 0)}


def is_wide(sign: str) -> bool:
    """True for a sign that fills a square; not for emoji."""
    return unicodedata.east_asian_width(sign) in "WF" and unicodedata.category(sign) != "So"


def with_squares(mathml: str) -> tuple[str, str]:
    """(MathML with squares in place of wide signs, those signs in the order of drawing).

    Raises:
        ValueError: it has wide signs and squares of its own.
    """
    plain = _CODE.sub(lambda code: _decoded(code.group(0), int(code.group(1), 16)), mathml)
    if not any(is_wide(sign) for sign in plain):
        return mathml, ""
    if _SQUARE in plain:
        raise ValueError("squares and wide signs")
    signs = "".join(filter(is_wide, "".join(_texts(ElementTree.fromstring(plain)))))
    squared = _TEXT.sub(
        lambda found: ">" + "".join(_SQUARE if is_wide(s) else s for s in found.group(1)) + "<",
        plain,
    )
    return squared, signs


def with_signs(svg: str, signs: str) -> tuple[str, float, float]:
    """(SVG with the signs in place of squares, how far they reach up, and down) from the baseline.

    Raises:
        ValueError: there are not as many squares as signs.
    """
    places = [found for found in _PATH.finditer(svg) if _is_square(found)] if signs else []
    if len(places) != len(signs):
        raise ValueError(f"{len(signs)} signs for {len(places)} squares")
    parts, at, up, down = [], 0, 0.0, 0.0
    for found, sign in zip(places, signs, strict=True):
        right, low, left, high = (float(number) for number in found.groups())
        em = (right - left) / _WIDTH
        baseline = (low + high) / 2.0 + _MIDDLE * em
        parts += [svg[at : found.start()], _text(sign, (left + right) / 2.0, baseline, em)]
        at = found.end()
        up, down = max(up, _ABOVE * em - baseline), max(down, _BELOW * em + baseline)
    return "".join([*parts, svg[at:]]), up, down


def _texts(element: ElementTree.Element) -> Iterator[str]:
    """Texts in the order in which the library draws them."""
    yield element.text or ""
    children = list(element)
    order = _DRAWN.get(element.tag.rpartition("}")[2], range(len(children)))
    for index in order:
        yield from _texts(children[index])


def _decoded(text: str, code: int) -> str:
    return chr(code) if code < 0x110000 and is_wide(chr(code)) else text


def _is_square(found: re.Match[str]) -> bool:
    right, low, left, high = (float(number) for number in found.groups())
    return low > high and abs((right - left) / (low - high) - 1.0) < 0.03


def _text(sign: str, middle: float, baseline: float, em: float) -> str:
    return (
        f'<text x="{middle:.2f}" y="{baseline:.2f}" font-size="{em * _SIZE:.2f}" '
        f'text-anchor="middle" fill="black">{escape(sign)}</text>'
    )
