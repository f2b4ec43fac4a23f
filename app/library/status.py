"""How a model of the library stands at the moment."""

from __future__ import annotations

from enum import StrEnum

from app.library.entry import ModelEntry
from app.session_state import ModelState, ModelStatus
from engine.api.errors import ErrorInfo


class Standing(StrEnum):
    """``NEXT``: loaded when the running answers have ended. ``ASLEEP``: let go, and loaded again by
    the next message. ``ABSENT``: the starter model, not fetched yet. ``FAILED``: could be read, but
    not loaded. ``PLAIN``: it fits, and nothing else is to be said.
    """

    LOADED = "loaded"
    LOADING = "loading"
    NEXT = "next"
    ASLEEP = "asleep"
    ABSENT = "absent"
    GONE = "gone"
    UNREADABLE = "unreadable"
    FAILED = "failed"
    TOO_LARGE = "too_large"
    UNKNOWN = "unknown"
    PLAIN = "plain"


def standing_of(
    entry: ModelEntry, load_path: str, state: ModelState, load_error: ErrorInfo | None
) -> Standing:
    """``load_path``: what the session calls it; ``load_error``: why its last load failed."""
    if state.next_path == load_path:
        return Standing.NEXT
    if state.path == load_path:
        now = {
            ModelStatus.LOADING: Standing.LOADING,
            ModelStatus.READY: Standing.LOADED,
        }.get(state.status)
        if now is not None:
            return now
    if not entry.exists:
        return Standing.ABSENT if entry.is_starter else Standing.GONE
    if entry.error is not None:
        return Standing.UNREADABLE
    if load_error is not None:
        return Standing.FAILED
    if state.is_asleep and state.path == load_path:
        return Standing.ASLEEP
    if entry.description is None:
        return Standing.UNKNOWN
    return Standing.PLAIN if entry.description.fits else Standing.TOO_LARGE
