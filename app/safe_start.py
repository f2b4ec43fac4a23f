"""Whether the last start died of a conversation that it brought back. Qt-free.

A conversation that brings the window down would bring it down at every start: it is opened again
because it was open. So a start notes what it is about to show, and that it is shown when the window
has stood for a while; an end in order takes the note away. What the note names tells the next start
what to leave closed. Several runs in a row that did not end in order leave everything closed: some
faults take longer than that while.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from app.store import Store

_LOG = logging.getLogger(__name__)


MAX_DEATHS = 3
"""So many runs in a row without an end in order are no accident."""


class RestoreMark:
    """The note, a small file of the profile. Only the process that has the profile uses it."""

    def __init__(self, file: Path) -> None:
        """Reads what the last run has left."""
        self._file = file
        self._deaths = 0
        self._was_showing: list[str] = []
        if file.exists():
            self._deaths = 1
            self._read()

    def suspects(self, open_ids: Sequence[str]) -> list[str]:
        """Those of ``open_ids`` that the last run may have died of; none if it ended in order."""
        if self._deaths >= MAX_DEATHS:
            return list(open_ids)
        return [each for each in open_ids if each in self._was_showing]

    def set(self, conversation_ids: Iterable[str]) -> None:
        """Notes what is about to be shown. A disk that refuses is no reason not to start."""
        noted = {"showing": list(conversation_ids), "deaths": self._deaths}
        try:
            self._file.write_text(json.dumps(noted), encoding="utf-8")
        except OSError as error:
            _LOG.warning("no mark of the start: %s", error)

    def shown(self) -> None:
        """The window stands."""
        self.set(())

    def clear(self) -> None:
        """The run ends in order."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _read(self) -> None:
        try:
            noted = json.loads(self._file.read_text(encoding="utf-8"))
            self._was_showing = [str(each) for each in noted["showing"]]
            self._deaths = int(noted["deaths"]) + 1
        except (OSError, ValueError, TypeError, KeyError) as error:
            _LOG.warning("the mark of the start cannot be read: %s", error)


def leave_suspects_closed(store: Store, mark: RestoreMark) -> list[str]:
    """Closes the conversations that the last start may have died of. Returns their ids.

    They stay stored, with their drafts. To be called before anything is opened.
    """
    suspects = mark.suspects(store.open_ids())
    for conversation_id in suspects:
        store.change_conversation(conversation_id, is_open=False)
    if suspects:
        _LOG.warning("safe start: the last one died; %d conversations stay closed", len(suspects))
    return suspects
