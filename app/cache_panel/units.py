"""Numbers with their units. Imports nothing heavy: the window uses it before its first paint."""

from __future__ import annotations

from app.i18n import tr, tr_n


def blocks(n: int) -> str:
    """``12 blocks``."""
    return tr_n("{n} block", "{n} blocks", n)


def tokens(n: int) -> str:
    """``12 tokens``."""
    return tr_n("{n} token", "{n} tokens", n)


def sequences(n: int) -> str:
    """``3 sequences``."""
    return tr_n("{n} sequence", "{n} sequences", n)


def megabytes(value: float) -> str:
    """``9.7 MB``, with more digits for small and fewer for large values; KB below 0.1 MB, GB from
    10,000 MB on.
    """
    if value >= 10_000:
        return tr("{value} GB", value=f"{value / 1000:,.1f}")
    if 0 < value < 0.1:
        return tr("{value} KB", value=f"{value * 1000:.{0 if value >= 0.01 else 1}f}")
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 1 else 2
    return tr("{value} MB", value=f"{value:,.{digits}f}")


def seconds(value: float) -> str:
    """``0.3 s``; milliseconds under a tenth of a second."""
    if value < 0.1:
        return tr("{value} ms", value=f"{value * 1000:.0f}")
    return tr("{value} s", value=f"{value:,.1f}" if value < 100 else f"{value:,.0f}")


def rate_words(steps_per_s: float | None) -> str:
    """``10 steps/s``, or words for no limit."""
    if steps_per_s is None:
        return tr("Full speed")
    if steps_per_s == int(steps_per_s):
        return tr_n("{n} step/s", "{n} steps/s", int(steps_per_s))
    return tr("{rate} steps/s", rate=f"{steps_per_s:g}")
