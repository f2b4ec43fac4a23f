"""One message on the page: its blocks, a bubble for the user's, a line of figures below."""

from __future__ import annotations

from dataclasses import dataclass

from app.markdown import MarkdownStream
from app.markdown_blocks import Block
from app.widgets.transcript.boxes import PLAIN, BlockBox
from app.widgets.transcript.documents import DocumentFactory

USER_PAD_X, USER_PAD_Y = 14.0, 9.0
FOOTER_HEIGHT = 30.0
USER_FOOTER_HEIGHT = 22.0
USER_SHARE = 0.82
DIVIDER_HEIGHT = 36.0
_PLAIN_LINES = 40
_PLAIN_CHARS = 4000


@dataclass(frozen=True, slots=True)
class MessageView:
    """What the transcript shows of a message.

    ``footer``: figures or what the answer waits for; ``tone`` its colour token (``muted``,
    ``error``, ``warning``). ``version`` of ``num_versions``, from 1. ``is_open``: more text comes.
    ``divider``: words of a line above the message, if any.
    """

    message_id: str
    is_user: bool
    text: str
    footer: str = ""
    tone: str = "muted"
    version: int = 1
    num_versions: int = 1
    is_open: bool = False
    divider: str = ""


class MessageItem:
    """Geometry in pixels: ``top`` from the top of the page; ``height`` with footer."""

    def __init__(self, view: MessageView) -> None:
        self.view = view
        self.top = 0.0
        self.height = 0.0
        self.bubble_width = 0.0
        self.boxes: list[BlockBox] = []
        self._text = view.text
        self._stream: MarkdownStream | None = None
        self._num_closed = 0
        self._unparsed = True

    @property
    def text(self) -> str:
        """The whole text so far, as Markdown for answers."""
        return self._text

    @property
    def head_height(self) -> float:
        """Height of the line above the message."""
        return DIVIDER_HEIGHT if self.view.divider else 0.0

    @property
    def body_top(self) -> float:
        return self.head_height + self._pad_y

    @property
    def _pad_y(self) -> float:
        return USER_PAD_Y if self.view.is_user else 0.0

    @property
    def footer_height(self) -> float:
        """Height of the line of figures and buttons below the message."""
        return USER_FOOTER_HEIGHT if self.view.is_user else FOOTER_HEIGHT

    def append(self, text: str) -> None:
        """Adds streamed text; ``sync`` makes it visible."""
        self._text += text
        if self._stream is not None:
            self._stream.append(text)
        self._unparsed = True

    def update(self, view: MessageView) -> None:
        """Takes new figures, and the text if it is not the one that was streamed."""
        was_open, old_head = self.view.is_open, self.head_height
        self.view = view
        self._move_boxes(self.head_height - old_head)
        # While it streams, text comes through ``append`` alone: a state may arrive before its text.
        if not view.is_open and view.text != self._text:
            self._text = view.text
            self._stream = None
            self._num_closed = 0
            self.boxes = []
            self._unparsed = True
        elif was_open != view.is_open:
            self._unparsed = True

    def _move_boxes(self, by: float) -> None:
        for box in self.boxes:
            box.y += by
        self.height += by

    def sync(self, width: float, factory: DocumentFactory) -> None:
        """Parses what is new and brings the boxes in line; far boxes only get estimated heights."""
        if not self._unparsed:
            return
        self._unparsed = False
        blocks = self._plain_blocks() if self.view.is_user else self._parsed_blocks()
        for index in range(self._num_closed, len(blocks)):
            if index < len(self.boxes):
                box = self.boxes[index]
                if box.block != blocks[index]:
                    box.replace_block(blocks[index], factory)
                    if box.document is None:
                        box.estimate(self.content_width(width), factory)
                else:
                    box.block = blocks[index]
            else:
                box = BlockBox(blocks[index], self.boxes[-1] if self.boxes else None)
                box.estimate(self.content_width(width), factory)
                self.boxes.append(box)
        del self.boxes[len(blocks) :]
        num_closed = len(self._stream.closed) if self._stream is not None else 0
        for box in self.boxes[self._num_closed : num_closed]:
            box.close()
        self._num_closed = num_closed

    def content_width(self, width: float) -> float:
        """Width for the blocks on a column of ``width``."""
        return width * USER_SHARE - 2 * USER_PAD_X if self.view.is_user else width

    def estimate(self, width: float, factory: DocumentFactory) -> None:
        """Heights for a new column width, without laying anything out."""
        inner = self.content_width(width)
        if not self.boxes and self._unparsed:
            # Not even parsed: one guess for the whole text.
            guess = BlockBox(Block(PLAIN, html=self._text), None)
            guess.estimate(inner, factory)
            self.height = self.body_top + guess.height + self._pad_y + self.footer_height
            return
        for box in self.boxes:
            box.estimate(inner, factory)
        self.place()

    def place(self) -> None:
        """Stacks the boxes and sums up the height."""
        y = self.body_top
        for box in self.boxes:
            y += box.gap
            box.y = y
            y += box.height
        self.height = y + self._pad_y + self.footer_height

    def lay_out(self, width: float, top: float, bottom: float, factory: DocumentFactory) -> bool:
        """Lays out the boxes between ``top`` and ``bottom`` (from the message's top).

        True if a height changed.
        """
        self.sync(width, factory)
        inner = self.content_width(width)
        changed = False
        for box in self.boxes:
            if box.y + box.height >= top and box.y <= bottom:
                changed |= abs(box.lay_out(inner, factory)) > 0.01
        if self.view.is_user:
            self._fit_bubble(inner)
        old = self.height
        self.place()
        return changed or abs(self.height - old) > 0.01

    def release(self, top: float, bottom: float) -> bool:
        """Drops the documents outside ``top`` … ``bottom``. True if some are left."""
        is_left = False
        for box in self.boxes:
            if box.document is None:
                continue
            if box.y + box.height < top or box.y > bottom:
                box.release()
            else:
                is_left = True
        return is_left

    def _fit_bubble(self, inner: float) -> None:
        widest = 0.0
        for box in self.boxes:
            widest = max(widest, inner if box.document is None else box.document.idealWidth())
        self.bubble_width = min(inner, widest + 1.0) + 2 * USER_PAD_X

    def _parsed_blocks(self) -> list[Block]:
        if self._stream is None:
            self._stream = MarkdownStream(self._text)
        if self.view.is_open:
            self._stream.refresh()
        else:
            self._stream.finish()
        return self._stream.blocks

    def _plain_blocks(self) -> list[Block]:
        """The user's text in pieces that are quick to lay out."""
        lines = self._text.split("\n")
        blocks: list[Block] = []
        piece: list[str] = []
        size = 0
        for line in lines:
            if piece and (len(piece) >= _PLAIN_LINES or size > _PLAIN_CHARS):
                blocks.append(Block(PLAIN, html="\n".join(piece)))
                piece, size = [], 0
            piece.append(line)
            size += len(line)
        blocks.append(Block(PLAIN, html="\n".join(piece)))
        return blocks
