"""What is inside a message, in its menu: its code to copy and its links to open. For the keyboard,
which cannot point at them.
"""

from __future__ import annotations

import re
from functools import partial
from html import unescape
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QMenu

from app.i18n import tr
from app.markdown_blocks import CODE
from app.markdown_inline import visible_text
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.message import MessageItem

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

MOST = 12
_LONGEST = 60
_HREF = re.compile(r'<a href="([^"]*)">')


def fill_menu(view: Transcript, menu: QMenu, message_id: str) -> None:
    """Adds what a message holds to its menu, if it holds anything."""
    item = view.item(message_id)
    if item is None or item.view.is_user:
        return
    codes, links = fences(item), link_addresses(item)
    if codes or links:
        menu.addSeparator()
    if codes:
        sub = menu.addMenu(tr("Copy code"))
        for box in codes:
            sub.addAction(_name(box), partial(view.copy_code, box))
    if links:
        sub = menu.addMenu(tr("Open link"))
        for url in links:
            sub.addAction(_shown(url), partial(view.link_activated.emit, url))


def fences(item: MessageItem) -> list[BlockBox]:
    """The first segments of the code that is shown and parsed, from top to bottom."""
    return [box for box in _shown_boxes(item) if box.block.kind == CODE and box.block.first][:MOST]


def link_addresses(item: MessageItem) -> list[str]:
    """Where the links that are shown lead, each once."""
    found: dict[str, None] = {}
    for box in _shown_boxes(item):
        for url in _HREF.findall(box.block.html) if box.block.kind != CODE else ():
            found.setdefault(unescape(url))
    return list(found)[:MOST]


def _shown_boxes(item: MessageItem) -> list[BlockBox]:
    return [box for s in item.sections if not s.is_folded for box in s.boxes]


def _name(box: BlockBox) -> str:
    line = next((text for text in box.block.code.split("\n") if text.strip()), "").strip()
    return _shown(f"{box.block.language}: {line}" if box.block.language else line)


def _shown(text: str) -> str:
    """As a menu shows it: short, and no letter of it is a key."""
    text = visible_text(text)
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return text.replace("&", "&&") or "…"
