"""How long ago something was, in words."""

from __future__ import annotations

from app.i18n import tr, tr_n


def age_words(seconds: float) -> str:
    """How long ago, in one unit."""
    if seconds < 3600:
        minutes = max(0, int(seconds // 60))
        return tr("{n} min", n=minutes) if minutes else tr("now")
    if seconds < 86400:
        return tr("{n} h", n=int(seconds // 3600))
    return tr_n("{n} day", "{n} days", int(seconds // 86400))
