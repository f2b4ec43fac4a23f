"""Groups of the side bar: pinned, open, folders, by age, archived, deleted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from app.i18n import tr

PINNED, OPEN, ARCHIVED, DELETED = "pinned", "open", "archived", "deleted"
TODAY, YESTERDAY, WEEK, MONTH = "today", "yesterday", "week", "month"
FOLDER = "folder:"
COLLAPSED_AT_FIRST = frozenset({ARCHIVED, DELETED})
_PLACES = {PINNED: 0, OPEN: 1, TODAY: 3, YESTERDAY: 4, WEEK: 5, MONTH: 6, ARCHIVED: 8, DELETED: 9}
_FOLDER_PLACE, _OLDER_PLACE = 2, 7


@dataclass(frozen=True, slots=True)
class Group:
    """A heading of the list. ``key``: a constant of this module, ``FOLDER`` and a name, or a month
    as ``2026-07``.
    """

    key: str
    count: int
    is_collapsed: bool

    @property
    def folder(self) -> str:
        """Name of the folder, or empty."""
        return self.key.removeprefix(FOLDER) if self.key.startswith(FOLDER) else ""


def tells_age(key: str) -> bool:
    """True if the heading says how old the conversations below it are."""
    if key.startswith(FOLDER):
        return False
    return key in (YESTERDAY, WEEK, MONTH) or key not in _PLACES


class Ages:
    """Tells the group of a moment, as seen from ``today``."""

    def __init__(self, today: date) -> None:
        self.today = today
        self._known: dict[int, str] = {}

    def group_of(self, moment_s: float) -> str:
        """``moment_s``: seconds since the epoch."""
        # Looked up by the quarter of an hour, which never lies in two days anywhere.
        quarter = int(moment_s // 900)
        key = self._known.get(quarter)
        if key is None:
            key = self._known[quarter] = self._key(date.fromtimestamp(quarter * 900))
        return key

    def _key(self, day: date) -> str:
        if day >= self.today:
            return TODAY
        if day == self.today - timedelta(days=1):
            return YESTERDAY
        if day > self.today - timedelta(days=7):
            return WEEK
        if day > self.today - timedelta(days=30):
            return MONTH
        return f"{day.year:04}-{day.month:02}"


def sort_key(key: str) -> tuple[int, str, int]:
    """Orders groups from top to bottom: folders by name, months from the latest back."""
    if key.startswith(FOLDER):
        return _FOLDER_PLACE, key.casefold(), 0
    if key in _PLACES:
        return _PLACES[key], "", 0
    return _OLDER_PLACE, "", -int(key.replace("-", ""))


def group_title(key: str) -> str:
    """The heading in words; plain text, as a folder's name may be anything."""
    if key.startswith(FOLDER):
        return key.removeprefix(FOLDER)
    words = {
        PINNED: tr("Pinned"),
        OPEN: tr("Open tabs"),
        TODAY: tr("Today"),
        YESTERDAY: tr("Yesterday"),
        WEEK: tr("Previous 7 days"),
        MONTH: tr("Previous 30 days"),
        ARCHIVED: tr("Archived"),
        DELETED: tr("Deleted"),
    }
    if key in words:
        return words[key]
    year, month = key.split("-")
    return tr("{month} {year}", month=_months()[int(month) - 1], year=year)


def _months() -> tuple[str, ...]:
    return (
        tr("January"),
        tr("February"),
        tr("March"),
        tr("April"),
        tr("May"),
        tr("June"),
        tr("July"),
        tr("August"),
        tr("September"),
        tr("October"),
        tr("November"),
        tr("December"),
    )
