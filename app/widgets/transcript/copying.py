"""What is selected, as the clipboard takes it: plain text, Markdown, and simple HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData
from PySide6.QtGui import QGuiApplication

from app.markdown_blocks import CODE, FORMULA, HEADING, PLAIN, RULE, TABLE, Block
from app.markdown_math import PLACEHOLDER
from app.markdown_thoughts import answer_text
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.selection import Chosen, Selection

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

_INDENT = "  "
_CELL = re.compile(r"<(t[dh])\b.*?</\1>")


def mime_data(selection: Selection) -> QMimeData:
    """The selection in every form; a program takes the one that it likes best."""
    data = QMimeData()
    data.setText(selection.text())
    data.setHtml(html(selection))
    data.setData("text/markdown", markdown(selection).encode())
    return data


def markdown(selection: Selection) -> str:
    """Whole messages and blocks as their source, so that fences and LaTeX are kept; parts of a
    block as they are shown.
    """
    return "\n\n".join(
        source for item, chosen in selection.chosen() if (source := _message_markdown(item, chosen))
    )


def copy_markdown(view: Transcript) -> None:
    """Puts the Markdown of what is selected on the clipboard; nothing if nothing is."""
    if not view.selection.is_empty:
        QGuiApplication.clipboard().setText(markdown(view.selection))


def message_markdown(item: MessageItem) -> str:
    """The source of a message, without reasoning unless it is unfolded."""
    if item.view.is_user or item.thoughts.any_unfolded:
        return item.text
    return answer_text(item.text)


def html(selection: Selection) -> str:
    """As simple HTML, everything escaped."""
    return "\n".join(_box_html(piece) for _item, chosen in selection.chosen() for piece in chosen)


def _message_markdown(item: MessageItem, chosen: list[Chosen]) -> str:
    shown = sum(1 for section in item.sections if not section.is_folded for _ in section.boxes)
    num_headers = sum(1 for section in item.sections if section.is_header)
    if len(chosen) == shown - num_headers and all(piece.is_whole for piece in chosen):
        return message_markdown(item).strip("\n")
    if item.view.is_user:
        return "".join(f"{piece.separator}{piece.text}" for piece in chosen)
    parts: list[str] = []
    was_item = False
    for unit in _units(chosen):
        source = _unit_markdown(unit)
        is_item = unit[0].box.block.indent > 0
        if parts:
            parts.append("\n" if is_item and was_item else "\n\n")
        parts.append(source)
        was_item = is_item
    return "".join(parts)


def _units(chosen: list[Chosen]) -> Iterator[list[Chosen]]:
    """Pieces of one block of the source together."""
    unit: list[Chosen] = []
    for piece in chosen:
        if unit and _begins_unit(piece.box):
            yield unit
            unit = []
        unit.append(piece)
    if unit:
        yield unit


def _begins_unit(box: BlockBox) -> bool:
    block = box.block
    if block.source:
        return True
    # A fence that streamed has no source of its own; its lines give it again.
    return block.kind == CODE and block.first and not block.indent and not block.quote


def _unit_markdown(unit: list[Chosen]) -> str:
    first = unit[0].box.block
    if all(piece.is_whole for piece in unit):
        if first.source and _is_complete(unit):
            return first.source
        if first.kind == CODE:
            code = "\n".join(piece.box.block.code for piece in unit)
            return fenced(code, first.language)
    return "\n".join(_piece_markdown(piece) for piece in unit)


def _is_complete(unit: list[Chosen]) -> bool:
    """False if the source has blocks below the last one of ``unit``."""
    last = unit[-1].box
    following = last.section.boxes[last.index + 1 : last.index + 2]
    return not following or _begins_unit(following[0])


def _piece_markdown(piece: Chosen) -> str:
    block = piece.box.block
    if block.kind == CODE and piece.is_whole:
        return _indented(fenced(block.code, block.language), block.indent)
    mark = f"{block.marker} " if block.marker and piece.starts else ""
    return _indented(mark.replace("•", "-") + piece.text, max(0, block.indent - 1))


def fenced(code: str, language: str) -> str:
    """``code`` in a fence that nothing in it closes."""
    fence = "```"
    while fence in code:
        fence += "`"
    return f"{fence}{language}\n{code}\n{fence}"


def _indented(text: str, depth: int) -> str:
    return "\n".join(_INDENT * depth + line for line in text.split("\n")) if depth else text


def _box_html(piece: Chosen) -> str:
    block = piece.box.block
    if block.kind == CODE:
        return f"<pre><code>{escape(piece.text)}</code></pre>"
    if block.kind == PLAIN or not piece.is_whole:
        return f"<p>{escape(piece.text)}</p>".replace("\n", "<br>")
    if block.kind == RULE:
        return "<hr>"
    inner = _with_formulas(block)
    if block.kind == TABLE and block.mirrored:
        rows = (_CELL.finditer(row) for row in inner.split("</tr>")[:-1])
        cells = (reversed([cell[0] for cell in row]) for row in rows)
        inner = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
        return f'<table border="1" dir="rtl">{inner}</table>'
    if block.kind == TABLE:
        return f'<table border="1">{inner}</table>'
    if block.kind == HEADING:
        return f"<h{block.level}>{inner}</h{block.level}>"
    if block.marker:
        return f"<p>{escape(block.marker)} {inner}</p>"
    return f"<p>{inner}</p>" if block.kind != FORMULA else f"<p><code>{inner}</code></p>"


def _with_formulas(block: Block) -> str:
    inner = block.html
    for formula in block.formulas:
        inner = inner.replace(PLACEHOLDER, escape(formula.source), 1)
    return inner
