"""Formulas in the transcript: on the line, in the text's colour, sharp, and quick."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QSizeF
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QApplication

from app.markdown import split_blocks
from app.markdown_math import formula_of
from app.theme import ThemeManager, load_theme
from app.widgets.transcript.documents import DocumentFactory
from app.widgets.transcript.formulas import Formulas
from app.widgets.transcript.message import MessageView
from tests.helpers.transcript_stage import light_theme, shown_transcript


def drawn(qtbot, *sources: str) -> Formulas:
    formulas = Formulas()
    for source in sources:
        formulas.picture(formula_of(source))
    qtbot.waitUntil(lambda: not formulas.is_busy, timeout=20_000)
    return formulas


def shown(
    factory: DocumentFactory, text: str, ratio: float = 1.0, is_quiet: bool = False
) -> QImage:
    document = factory.text(split_blocks(text)[0], is_quiet)
    document.setTextWidth(400)
    image = QImage(round(400 * ratio), round(120 * ratio), QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(ratio)
    image.fill(QColor("#FFFFFF"))
    painter = QPainter(image)
    document.drawContents(painter)
    factory.draw_over(painter)
    painter.end()
    return image


def colors(image: QImage) -> set[str]:
    points = ((x, y) for x in range(image.width()) for y in range(image.height()))
    return {image.pixelColor(x, y).name() for x, y in points}


def rows_of_ink(image: QImage, left: int, right: int) -> list[int]:
    """Rows with something dark between two columns."""
    return [
        y
        for y in range(image.height())
        if any(image.pixelColor(x, y).lightness() < 110 for x in range(left, right))
    ]


@pytest.fixture
def themes(qapp: QApplication) -> ThemeManager:
    return light_theme()


def test_a_formula_stands_on_the_line_of_the_letters(qtbot, themes: ThemeManager) -> None:
    factory = DocumentFactory(themes.theme, drawn(qtbot, "$x$"))
    image = shown(factory, "x $x$", 4.0)
    gap = round((factory.body_metrics.horizontalAdvance("x ") + 1) * 4)
    letter, formula = rows_of_ink(image, 0, gap - 8), rows_of_ink(image, gap, gap + 80)
    assert abs(letter[-1] - formula[-1]) <= 3
    assert abs(letter[0] - formula[0]) <= 4


@pytest.mark.parametrize(("is_quiet", "token"), [(False, "text"), (True, "muted")])
@pytest.mark.parametrize("name", ["light", "dark"])
def test_a_formula_has_the_colour_of_the_text(
    qtbot, qapp: QApplication, name: str, is_quiet: bool, token: str
) -> None:
    theme = load_theme(name)
    factory = DocumentFactory(theme, drawn(qtbot, "$\\sqrt{x}+\\frac{1}{2}$"))
    found = colors(shown(factory, "$\\sqrt{x}+\\frac{1}{2}$", 2.0, is_quiet))
    assert theme.colors[token].lower() in found


def test_a_formula_is_sharp_on_a_dense_screen(qtbot, themes: ThemeManager) -> None:
    factory = DocumentFactory(themes.theme, drawn(qtbot, "$x$"))
    shown(factory, "$x$", 1.0)
    shown(factory, "$x$", 2.0)
    assert factory._object is not None
    widths = sorted(width for _svg, _color, width, _height in factory._object._images)
    assert len(widths) == 2
    assert widths[1] == pytest.approx(2 * widths[0], abs=1)


def test_a_formula_that_is_too_wide_is_made_smaller(qtbot, themes: ThemeManager) -> None:
    source = "$$\\frac{" + "+".join("abcdefghijklmnopqrstuvwxyz") + "}{2}$$"
    factory = DocumentFactory(themes.theme, drawn(qtbot, source))
    document = factory.text(split_blocks(source)[0])
    heights = []
    for width in (2000, 300):
        document.setTextWidth(width)
        assert document.idealWidth() <= width + 1
        heights.append(document.size().height())
    assert heights[1] < heights[0]


def test_selected_formulas_can_be_read(qtbot, themes: ThemeManager) -> None:
    view = shown_transcript(qtbot, themes, width=500, height=300)
    view.set_messages([MessageView("a", False, "$\\frac{aaaa}{bbbb}$")])
    qtbot.waitUntil(lambda: not view.content.is_drawing, timeout=20_000)
    view.selection.select_all()
    image = view.viewport().grab().toImage()
    assert themes.theme.colors["selection"].lower() in colors(image)
    assert themes.theme.colors["text"].lower() in colors(image)


def test_a_formula_is_drawn_once_and_not_on_the_windows_thread(qtbot, monkeypatch) -> None:
    import threading

    from app.widgets.transcript import formulas as module

    threads = []
    real = module.draw

    def draw(formula):
        threads.append(threading.current_thread().name)
        return real(formula)

    monkeypatch.setattr(module, "draw", draw)
    formulas = drawn(qtbot, "$a_1$", "$a_1$", "$\\bad{}$")
    for _ in range(3):
        assert formulas.picture(formula_of("$a_1$")) is not None
        assert formulas.picture(formula_of("$\\bad{}$")) is None
    assert threads == ["formulas", "formulas"]


def test_a_formula_takes_the_room_of_its_letters(qtbot, themes: ThemeManager) -> None:
    factory = DocumentFactory(themes.theme, drawn(qtbot, "$x$", "$\\frac{\\frac{a}{b}}{c}$"))
    heights = []
    for text in ("a x", "a $x$", "a $\\frac{\\frac{a}{b}}{c}$"):
        document = factory.text(split_blocks(text)[0])
        document.setTextWidth(400)
        heights.append(QSizeF(document.size()).height())
    assert heights[1] == pytest.approx(heights[0], abs=2)
    assert heights[2] > heights[0] + 5
