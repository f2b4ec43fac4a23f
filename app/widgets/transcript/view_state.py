"""What the user sees of a transcript, to be seen again in another one with the same messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.widgets.transcript.page import Anchor
from app.widgets.transcript.selection import Position, Selection


@dataclass(frozen=True, slots=True)
class ViewState:
    """``place``: what is at the top of the view, None if it follows the end or is empty.
    ``selected``: anchor and caret, None if nothing is. ``folds``: the reasoning that the user
    folded or unfolded, by message id and number.
    """

    follows: bool
    place: Anchor | None = None
    selected: tuple[Position, Position] | None = None
    folds: dict[str, dict[int, bool]] = field(default_factory=dict)


def state_of(selection: Selection, place: Anchor | None, follows: bool) -> ViewState:
    """What is seen of a page from ``place`` on."""
    chosen = None
    if not selection.is_empty and selection.anchor is not None and selection.caret is not None:
        chosen = (selection.anchor, selection.caret)
    return ViewState(follows, place, chosen)
