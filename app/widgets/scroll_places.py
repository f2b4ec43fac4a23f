"""Where each open conversation was scrolled to, kept from one start to the next."""

from __future__ import annotations

import json
import logging
from typing import Any

from app.session import Session
from app.stored_json import stored_object
from app.widgets.conversation_page import ConversationPage
from app.widgets.pages import Pages
from app.widgets.transcript.page import Anchor
from app.widgets.transcript.view import Transcript
from app.widgets.transcript.view_state import ViewState

_LOG = logging.getLogger(__name__)
_STATE = "scroll_places"


class ScrollPlaces:
    """Puts pages back to where they were when they are made. One that followed its end still
    does.
    """

    def __init__(self, session: Session, pages: Pages) -> None:
        self._session = session
        self._pages = pages
        self._kept = stored_object(session.window_state(_STATE))
        for page in pages:
            self._put_back(page)
        pages.page_made.connect(self._put_back)

    def save(self) -> None:
        """Keeps where the pages are now; those not shown in this run stay where they were."""
        kept = {}
        for conversation_id in self._session.conversation_ids():
            page = self._pages.get(conversation_id)
            if page is None:
                place = self._kept.get(conversation_id)
            else:
                place = _stored(page.transcript.view_state())
            if place is not None:
                kept[conversation_id] = place
        self._kept = kept
        self._session.set_window_state(_STATE, json.dumps(kept))

    def _put_back(self, page: ConversationPage) -> None:
        stored = self._kept.get(page.conversation_id)
        if stored is None:
            return
        try:
            place = _place(page.transcript, stored)
        except (TypeError, ValueError) as error:
            _LOG.warning("a place left out: %s", error)
            return
        if place is not None:
            page.transcript.restore_view_state(ViewState(False, place))


def _stored(state: ViewState) -> list[Any] | None:
    place = state.place
    if place is None or state.follows:
        return None
    numbers = (place.section, place.box, place.share, place.rest, place.char, place.line_offset)
    return [place.item.view.message_id, *numbers]


def _place(transcript: Transcript, stored: list[Any]) -> Anchor | None:
    """Raises TypeError or ValueError if it is not what ``_stored`` made."""
    message_id, section, box, share, rest, char, line_offset = stored
    for item in transcript.items:
        if item.view.message_id == message_id:
            whole = (int(section), int(box), float(share), float(rest), int(char))
            return Anchor(item, *whole, float(line_offset))
    return None
