"""What sending the draft would do to the pool, in words."""

from __future__ import annotations

from app.cache_panel import words
from app.cache_panel.names import Names
from app.gauges import Gauge
from app.i18n import tr, tr_n


def forecast_words(gauge: Gauge, names: Names) -> str:
    """Blocks that it needs and shares, whose cached blocks would go, whether it would wait."""
    if not gauge.blocks_needed or gauge.is_over:
        return ""
    parts = [
        tr(
            "Your draft, with the longest answer: {blocks}, {shared} of them already there.",
            blocks=words.blocks(gauge.blocks_needed),
            shared=f"{gauge.blocks_shared:,}",
        )
    ]
    if gauge.blocks_evicted:
        owners = [words.conversation(names, owner) for owner in gauge.evicted_ids if owner]
        parts.append(
            tr_n(
                "{n} cached block would be evicted (struck through): tokens of {owners}.",
                "{n} cached blocks would be evicted (struck through): tokens of {owners}.",
                gauge.blocks_evicted,
                owners=tr(", ").join(dict.fromkeys(owners)) or tr("a closed conversation"),
            )
        )
    if gauge.blocks_short:
        parts.append(
            tr_n(
                "{n} block short: it would wait until another answer ends.",
                "{n} blocks short: it would wait until another answer ends.",
                gauge.blocks_short,
            )
        )
    return " ".join(parts)
