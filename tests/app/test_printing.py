"""Paper and PDF: no line is cut, the window goes on, a file is whole or not there."""

from __future__ import annotations

import re
import time
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from PySide6.QtGui import QPdfWriter
from PySide6.QtPrintSupport import QPrinter
from PySide6.QtWidgets import QApplication

from app.theme import ThemeManager
from app.widgets.transcript.message import MessageItem, MessageView
from app.widgets.transcript.printing import Printout, paper
from app.widgets.transcript.view import Transcript
from tests.helpers.window_stage import Stage, window_stage

CODE = "```python\n" + "\n".join(f"x_{n} = {n}" for n in range(120)) + "\n```"
ANSWER = f"<think>\nHm.\n</think>\n\nText with $x^2$.\n\n{CODE}\n\n| a | b |\n|---|---|\n| 1 | 2 |"


@pytest.fixture(autouse=True)
def theme(qapp: QApplication) -> ThemeManager:
    themes = ThemeManager("dark")
    themes.apply()
    return themes


def items(count: int, text: str = ANSWER) -> list[MessageItem]:
    return [MessageItem(MessageView(f"{n}", n % 2 == 0, text)) for n in range(count)]


def pdf(path: Path, messages: list[MessageItem]) -> Printout:
    writer = QPdfWriter(str(path))
    writer.setPageLayout(paper())
    writer.setResolution(300)
    printout = Printout(messages, "A title")
    for _done in printout.run(writer):
        QApplication.processEvents()
    return printout


def num_pages(path: Path) -> int:
    return len(re.findall(rb"/Type /Page\b[^s]", path.read_bytes()))


def drawing(path: Path) -> bytes:
    """What the pages of a PDF draw."""
    data, found = path.read_bytes(), b""
    for match in re.finditer(rb"stream\r?\n", data):
        unpacker = zlib.decompressobj()
        try:
            found += unpacker.decompress(data[match.end() :])
        except zlib.error:
            continue
    return found


def test_a_long_conversation_takes_several_pages(qtbot, tmp_path) -> None:
    pdf(tmp_path / "a.pdf", items(6))
    assert num_pages(tmp_path / "a.pdf") > 5
    assert (tmp_path / "a.pdf").read_bytes().rstrip().endswith(b"%%EOF")


def test_sheets_begin_at_the_top_of_a_line(qtbot, tmp_path) -> None:
    printout = pdf(tmp_path / "a.pdf", items(4))
    tops = printout._breaks(800.0)
    assert len(tops) > 3
    assert set(tops[1:]) <= set(printout._lines)
    assert all(b - a <= 800.0 for a, b in pairwise(tops))


def test_paper_has_the_light_colours_whatever_the_window_has(qtbot, tmp_path) -> None:
    pdf(tmp_path / "a.pdf", items(2, "Some text."))
    # text of the light theme, #1B1C1E
    assert b"0.105882354 0.109803922 0.117647059" in drawing(tmp_path / "a.pdf")


def test_formulas_are_drawn_as_lines_not_as_pixels(qtbot, tmp_path) -> None:
    pdf(tmp_path / "a.pdf", items(2, "plain")), pdf(tmp_path / "b.pdf", items(2, "$x^2+y$"))
    assert b"/Subtype /Image" not in (tmp_path / "b.pdf").read_bytes()
    curves = [drawing(tmp_path / name).count(b" c\n") for name in ("a.pdf", "b.pdf")]
    assert curves[1] > curves[0] + 20


def test_what_is_folded_stays_folded_on_paper(qtbot, tmp_path) -> None:
    text = "<think>\n" + "Hm.\n\n" * 400 + "</think>\n\nSaid."
    folded = items(2, text)
    unfolded = items(2, text)
    unfolded[1].thoughts.folds[1] = False
    pdf(tmp_path / "a.pdf", folded[1:]), pdf(tmp_path / "b.pdf", unfolded[1:])
    assert num_pages(tmp_path / "a.pdf") == 1
    assert num_pages(tmp_path / "b.pdf") > 5


def test_no_piece_of_a_large_printout_holds_the_window_up(qtbot, tmp_path) -> None:
    messages = items(40, "A paragraph with **some** words.\n\n" * 10)
    writer = QPdfWriter(str(tmp_path / "a.pdf"))
    writer.setPageLayout(paper())
    longest, before = 0.0, time.thread_time()
    for _done in Printout(messages, "T").run(writer):
        longest = max(longest, time.thread_time() - before)
        before = time.thread_time()
    assert longest < 0.15


def stage_with_answer(stage: Stage, qtbot) -> Transcript:
    stage.page.submit("Hello")
    qtbot.waitUntil(lambda: not stage.session.is_busy(stage.page.conversation_id), timeout=8000)
    return stage.page.transcript


def jobs(stage: Stage):
    return stage.window.reading.jobs


def test_a_pdf_file_is_written_and_said(qtbot, tmp_path) -> None:
    with window_stage(qtbot) as stage:
        view = stage_with_answer(stage, qtbot)
        said = []
        stage.session.notice_raised.connect(said.append)
        assert jobs(stage).write_pdf(view, "T", tmp_path / "x.pdf")
        assert not jobs(stage).write_pdf(view, "T", tmp_path / "y.pdf")
        qtbot.waitUntil(lambda: not jobs(stage).is_busy, timeout=20_000)
        assert [n.error.code for n in said] == ["print_running", "exported"]
    assert num_pages(tmp_path / "x.pdf") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.pdf"]


def test_a_stopped_pdf_leaves_nothing_behind(qtbot, tmp_path) -> None:
    with window_stage(qtbot) as stage:
        view = stage_with_answer(stage, qtbot)
        jobs(stage).write_pdf(view, "T", tmp_path / "x.pdf")
        jobs(stage).bar.button.click()
        assert not jobs(stage).is_busy
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_said(qtbot, tmp_path) -> None:
    with window_stage(qtbot) as stage:
        view = stage_with_answer(stage, qtbot)
        with qtbot.waitSignal(stage.session.notice_raised) as told:
            assert not jobs(stage).write_pdf(view, "T", tmp_path / "no" / "x.pdf")
        assert told.args[0].error.code == "export_file"


def test_a_printer_gets_the_same(qtbot, tmp_path) -> None:
    with window_stage(qtbot) as stage:
        view = stage_with_answer(stage, qtbot)
        printer = QPrinter(QPrinter.PrinterMode.HighResolution)
        printer.setOutputFormat(QPrinter.OutputFormat.PdfFormat)
        printer.setOutputFileName(str(tmp_path / "p.pdf"))
        printer.setPageLayout(paper())
        assert jobs(stage).print_to(view, "T", printer)
        qtbot.waitUntil(lambda: not jobs(stage).is_busy, timeout=20_000)
    assert num_pages(tmp_path / "p.pdf") == 1
