"""A long text as the transcript reads it: in slices, each parsed alone."""

from __future__ import annotations

from app.markdown import MarkdownStream
from app.markdown_blocks import Block
from app.markdown_slices import slice_markdown


def sliced(text: str) -> list[Block]:
    """The blocks of the slices, each parsed alone."""
    blocks = []
    for place in slice_markdown(text):
        stream = MarkdownStream(text[place.start : place.end], place.state)
        stream.finish(place.fence_goes_on, place.columns)
        blocks += stream.closed
    return blocks
