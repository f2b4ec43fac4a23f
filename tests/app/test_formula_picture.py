"""LaTeX to pictures: what is known is drawn, all else is refused quickly."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest

from app.formula_picture import INK, MAX_COST, MAX_LENGTH, FormulaError, cost, draw
from app.markdown_math import Formula, formula_of

KNOWN = [
    r"E = mc^2",
    r"\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}",
    r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}^{-1}",
    r"\begin{aligned} a &= b \\ &= c \end{aligned}",
    r"\begin{cases} 1 & \text{if } x > 0 \\ 0 & \text{otherwise} \end{cases}",
    r"\text{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right)V",
    r"\begin{equation} x \label{eq:x} \tag{1} \end{equation}",
    r"\color{red}{x} + \textcolor{blue}{y}",
    r"\begin{cases} 1 & \text{若 } x > 0 \\ 0 & \text{否则} \end{cases}",
    r"\mathbb{R}^n \to \mathcal{L}, \quad \forall \varepsilon > 0",
]
REFUSED = [
    r"\unknown{x}",
    r"\frac{a}",
    r"_",
    r"a & b",
    r"\text{a<b & c}",
    r"\text{<image href='file:///etc/passwd'/>}",
    r"\colorbox{red}{x}",
    r"\text{■ 中}",
    r"\text{سلام} + x",
    r"😀",
    "x" * (MAX_LENGTH + 1),
    "{" * 60 + "x" + "}" * 60,
    r"\left(" * 40 + "x" + r"\right)" * 40,
]


@pytest.mark.parametrize("tex", KNOWN)
def test_known_latex_is_drawn(tex: str) -> None:
    picture = draw(Formula(f"$${tex}$$", True))
    assert picture.svg.startswith("<svg")
    assert picture.width > 0.5
    assert picture.ascent > 0.2


@pytest.mark.parametrize("tex", REFUSED)
def test_what_cannot_be_drawn_is_refused_at_once(tex: str) -> None:
    draw(formula_of("$x$"))
    started = time.thread_time()
    with pytest.raises(FormulaError):
        draw(formula_of(f"${tex}$"))
    assert time.thread_time() - started < 1.0


def test_pictures_have_one_colour_and_point_nowhere() -> None:
    svg = draw(
        formula_of(r"$\color{red}{x} + \textcolor{blue}{\frac{y}{2}} \href{http://h}{z}$")
    ).svg
    assert set(re.findall(r'(?:fill|stroke)="([^"]*)"', svg)) <= {INK, "none"}
    assert "href" not in svg
    assert "url" not in svg


def places(tex: str) -> dict[str, tuple[float, float]]:
    """Where each Chinese sign of a formula is, from the left and from the top."""
    svg = draw(Formula(f"$${tex}$$", True)).svg
    found = re.findall(r'<text x="([\d.-]+)" y="([\d.-]+)"[^>]*>(.)</text>', svg)
    return {sign: (float(x), float(y)) for x, y, sign in found}


@pytest.mark.parametrize(
    ("tex", "order"),
    [
        (r"x^{上}_{下}", "上下"),
        (r"\sum_{下}^{上} x", "上下"),
        (r"\frac{上}{下}", "上下"),
        (r"\overset{上}{\underset{下}{中}}", "上中下"),
        (r"\xrightarrow[下]{上}", "上下"),
        (r"\begin{pmatrix}上\\下\end{pmatrix}", "上下"),
    ],
)
def test_chinese_signs_stand_above_each_other(tex: str, order: str) -> None:
    found = places(tex)
    heights = [found[sign][1] for sign in order]
    assert heights == sorted(heights)
    # A sign takes some 35 units, or half of it where it is small.
    assert all(low - high > 20 for high, low in pairwise(heights))


@pytest.mark.parametrize(
    ("tex", "order"),
    [
        (r"\text{质量} = m", "质量"),
        (r"\sqrt[甲]{乙}", "甲乙"),
        (r"\text{（全角，标点）}", "（全角，标点）"),
        (r"\left(\frac{甲}{2}\right)^{乙} + \overline{丙}", "甲乙丙"),
    ],
)
def test_chinese_signs_stand_beside_each_other(tex: str, order: str) -> None:
    found = places(tex)
    assert "".join(sorted(found, key=lambda sign: found[sign][0])) == order


def test_chinese_signs_have_room_above_and_below() -> None:
    picture = draw(formula_of(r"$\text{中}$"))
    assert picture.width == pytest.approx(1.0, abs=0.15)
    assert picture.ascent > 0.7
    assert picture.descent > 0.1


def test_set_apart_is_larger_than_in_a_line() -> None:
    tex = r"\sum_{n=1}^N \frac{1}{n}"
    apart, inline = draw(Formula(f"$${tex}$$", True)), draw(Formula(f"${tex}$", False))
    assert apart.ascent + apart.descent > 1.3 * (inline.ascent + inline.descent)


def test_the_baseline_is_that_of_the_letters() -> None:
    flat, deep = draw(formula_of("$x$")), draw(formula_of("$y$"))
    assert flat.descent < 0.05
    assert 0.15 < deep.descent < 0.35


def test_nesting_costs_twice_a_level() -> None:
    assert [cost("x"), cost("{x}"), cost("{{x}}"), cost(r"\frac{1}{\sqrt{2}}")] == [1, 2, 4, 9]
    assert cost("x" * 500) < MAX_COST < cost("{" * 12 + "x" + "}" * 12)
