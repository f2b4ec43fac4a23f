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


def short_age_words(seconds: float) -> str:
    """The same for where there is little room."""
    days = int(seconds // 86400)
    if days < 1:
        return age_words(seconds)
    if days < 60:
        return tr("{n} d", n=days)
    return tr("{n} mo", n=days // 30) if days < 730 else tr("{n} y", n=days // 365)
