"""The inspector's findings in the user's words, with their numbers."""

from __future__ import annotations

import math

from app.cache_panel import words
from app.i18n import tr, tr_n
from engine.api.events import ParityReport

BACKENDS = ("paged_reference", "paged_triton", "contiguous", "dense")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def backend(name: str) -> str:
    """What a backend does, in a few words; its own name if it is not known."""
    known = {
        "paged_reference": tr("paged (plain torch)"),
        "paged_triton": tr("paged (Triton kernels)"),
        "contiguous": tr("contiguous (one buffer each)"),
        "dense": tr("dense (no cache)"),
    }
    return known.get(name, name)


def short_backend(name: str) -> str:
    """One word for a backend, for sentences."""
    known = {
        "paged_reference": tr("paged"),
        "paged_triton": tr("paged (Triton)"),
        "contiguous": tr("contiguous"),
        "dense": tr("dense"),
    }
    return known.get(name, name)


def power(value: float) -> str:
    """``3.1·10⁻⁷``."""
    if value == 0.0 or not math.isfinite(value):
        return "0" if value == 0.0 else "∞"
    mantissa, exponent = f"{value:.1e}".split("e")
    mantissa = mantissa.removesuffix(".0")
    raised = str(int(exponent)).translate(_SUPERSCRIPTS)
    return f"10{raised}" if mantissa == "1" else f"{mantissa}·10{raised}"


def verdict(report: ParityReport, *, live: bool) -> str:
    """What was compared with what, and what came out."""
    worst = max(report.layer_errors, default=0.0)
    layers = tr_n("{n} layer", "{n} layers", len(report.layer_errors))
    if report.within_bound:
        if live:
            text = tr(
                "What the cache holds of this conversation equals a dense recomputation to {error} "
                "({tokens}, {layers}).",
                error=power(worst),
                tokens=words.tokens(report.num_tokens),
                layers=layers,
            )
        else:
            text = tr(
                "{side} equals {reference} to {error} ({tokens}, {layers}).",
                side=short_backend(report.backend),
                reference=short_backend(report.reference),
                error=power(worst),
                tokens=words.tokens(report.num_tokens),
                layers=layers,
            )
        none = tr("First layer over the bound of {bound}: none.", bound=power(report.bound))
        return f"{text} {none}"
    if report.first_bad_layer < 0:
        return tr(
            "Each layer by itself is within the bound of {bound}, but run as a whole the logits of "
            "{side} and {reference} differ by {error}.",
            bound=power(report.bound),
            side=short_backend(report.backend),
            reference=short_backend(report.reference),
            error=power(report.logits_error),
        )
    return _difference(report, live=live)


def _difference(report: ParityReport, *, live: bool) -> str:
    layer = report.first_bad_layer
    error = power(report.layer_errors[layer])
    num_over = sum(e > report.bound or not math.isfinite(e) for e in report.layer_errors)
    if live:
        text = tr(
            "What the cache holds of this conversation is wrong: first layer over the bound of "
            "{bound} is layer {layer}, by {error}.",
            bound=power(report.bound),
            layer=f"{layer}",
            error=error,
        )
    else:
        text = tr(
            "{side} differs from {reference}: first layer over the bound of {bound} is layer "
            "{layer}, by {error}.",
            side=short_backend(report.backend),
            reference=short_backend(report.reference),
            bound=power(report.bound),
            layer=f"{layer}",
            error=error,
        )
    place = (
        tr(
            "It begins at token {position}: block {block}, slot {slot}.",
            position=f"{report.bad_position:,}",
            block=f"{report.bad_block_id:,}",
            slot=f"{report.bad_slot:,}",
        )
        if report.bad_block_id >= 0
        else tr("It begins at token {position}.", position=f"{report.bad_position:,}")
    )
    over = tr(
        "Layers over the bound: {n} of {total}.",
        n=f"{num_over}",
        total=f"{len(report.layer_errors)}",
    )
    return " ".join((text, place, over))


def layer(report: ParityReport, index: int) -> str:
    """One layer's error, and whether it is over the bound."""
    error = report.layer_errors[index]
    if error > report.bound or not math.isfinite(error):
        return tr("Layer {layer}: {error}, over the bound", layer=f"{index}", error=power(error))
    return tr("Layer {layer}: {error}", layer=f"{index}", error=power(error))
