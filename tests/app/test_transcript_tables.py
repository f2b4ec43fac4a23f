"""Tables of the transcript: as wide as the column, and no word broken if that can be helped."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication

from app.markdown import split_blocks
from app.theme import ThemeManager
from app.widgets.transcript.documents import CELL_PADDING, TABLE_SCALES, DocumentFactory


@pytest.fixture
def factory(qapp: QApplication) -> DocumentFactory:
    themes = ThemeManager("light")
    themes.apply()
    return DocumentFactory(themes.theme)


def table(columns: int, word: str) -> str:
    cells = [f"{word}{n}" for n in range(columns)]
    return f"|{'|'.join(cells)}|\n|{'---|' * columns}\n|{'|'.join(cells)}|"


def laid_out(factory: DocumentFactory, text: str, width: float):
    document = factory.text(split_blocks(text)[0])
    factory.fit_table(document, width)
    return document


def is_broken(document) -> bool:
    """Whether a word goes on in the next line."""
    block = document.begin()
    while block.isValid():
        if block.layout().lineCount() > 1:
            return True
        block = block.next()
    return False


def scale(factory: DocumentFactory, document) -> float:
    return document.defaultFont().pointSizeF() / factory.body_font.pointSizeF()


def test_a_table_that_fits_keeps_its_size(factory: DocumentFactory) -> None:
    document = laid_out(factory, table(3, "word"), 700.0)
    assert scale(factory, document) == 1.0


def test_a_wide_table_gets_smaller_letters_and_no_broken_words(factory: DocumentFactory) -> None:
    document = laid_out(factory, table(8, "wordword"), 640.0)
    assert 0.7 < scale(factory, document) < 1.0
    assert document.size().width() <= 641.0
    assert not is_broken(document)


def test_letters_do_not_get_too_small_to_be_read(factory: DocumentFactory) -> None:
    document = laid_out(factory, table(30, "wordword"), 640.0)
    assert scale(factory, document) == pytest.approx(TABLE_SCALES[-1][0], abs=0.01)
    assert document.size().width() <= 641.0 or is_broken(document)


def test_a_wider_window_gives_the_size_back(factory: DocumentFactory) -> None:
    document = laid_out(factory, table(8, "wordword"), 640.0)
    factory.fit_table(document, 1200.0)
    assert scale(factory, document) == 1.0


HEBREW = "| אחת | שתיים | שלוש ארוכה |\n|---|---|---|\n| א | ב | API |\n"


def lefts(document) -> list[float]:
    """Where the text of each cell of the second row begins, from the left."""
    (table,) = document.rootFrame().childFrames()
    found = []
    for column in range(table.columns()):
        block = table.cellAt(1, column).firstCursorPosition().block()
        line = block.layout().lineAt(0).naturalTextRect()
        place = document.documentLayout().blockBoundingRect(block)
        found.append(place.x() + line.x())
    return found


def test_a_table_from_right_to_left_begins_at_the_right(factory: DocumentFactory) -> None:
    document = laid_out(factory, HEBREW, 700.0)
    (table,) = document.rootFrame().childFrames()
    words = [table.cellAt(1, n).firstCursorPosition().block().text() for n in range(3)]
    assert words == ["API", "ב", "א"]
    assert lefts(document) == sorted(lefts(document))
    assert lefts(document)[0] > 400.0
    last = table.cellAt(1, 2).firstCursorPosition().block()
    edge = document.documentLayout().blockBoundingRect(last).right() + CELL_PADDING
    assert edge == pytest.approx(700.0, abs=5.0)
    # The last letter stands at the right end of its cell, Latin ones too.
    line = table.cellAt(1, 0).firstCursorPosition().block().layout().lineAt(0)
    assert line.naturalTextRect().right() == pytest.approx(line.rect().right(), abs=1.0)
    assert line.x() + line.naturalTextRect().x() > line.rect().x() + 20.0


def test_columns_of_a_long_table_from_right_to_left_keep_their_widths(
    factory: DocumentFactory,
) -> None:
    rows = "".join(f"| {n} | x | words and words and words |\n" for n in range(60))
    first, *_ = split_blocks(HEBREW + rows)
    document = factory.text(first)
    document.setTextWidth(700.0)
    assert document.size().width() == pytest.approx(700.0, abs=1.0)
    (table,) = document.rootFrame().childFrames()
    widths = [
        document.documentLayout()
        .blockBoundingRect(table.cellAt(0, n).firstCursorPosition().block())
        .width()
        for n in range(3)
    ]
    assert widths[0] > 2 * widths[1]
