"""The inspector's findings as sentences with their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from engine.parity_measure import Bounds, Difference
from engine.parity_source import PresentKV
from engine.parity_steps import ATTENTION, Fault, LayerFinding


def compared_words(
    names: Sequence[str],
    findings: Sequence[LayerFinding],
    fault: Fault | None,
    bounds: Bounds,
    logits: Difference,
    num_tokens: int,
) -> str:
    """The verdict on two backends, ``names[0]`` judged by ``names[1]``."""
    side, reference = names
    worst = max(finding.error for finding in findings)
    if fault is not None:
        return (
            f"{side} differs from {reference}: first layer over the bound of {bounds.attention:g} "
            f"is layer {fault.layer}, by {fault.error:.1e}. {_cause(fault)} {_where(fault)}. "
            f"Layers over the bound: {_count(findings)}."
        )
    if logits.first_row >= 0:
        return (
            f"{side} equals {reference} to {worst:.1e} in each layer by itself, but run as a whole "
            f"its logits differ by {logits.error:.1e} (bound {bounds.state:g})."
        )
    return (
        f"{side} equals {reference} to {worst:.1e} over {num_tokens} tokens and {len(findings)} "
        f"layers (bound {bounds.attention:g}), its logits to {logits.error:.1e} "
        f"(bound {bounds.state:g}); first layer over the bound: none."
    )


def live_words(
    present: PresentKV, findings: Sequence[LayerFinding], fault: Fault | None, bound: float
) -> str:
    """The verdict on what the pool holds."""
    holder = "a running request" if present.running else "the prefix cache"
    what = f"{len(present.token_ids)} tokens in {len(present.block_table)} blocks of {holder}"
    if fault is not None:
        return (
            f"{what} differ from a dense recomputation: first layer over the bound of {bound:g} is "
            f"layer {fault.layer}, by {fault.error:.1e}. The {fault.part} are wrong from "
            f"{_where(fault)} on. Layers over the bound: {_count(findings)}."
        )
    worst = max(finding.error for finding in findings)
    return (
        f"{what} equal a dense recomputation to {worst:.1e} (bound {bound:g}); first layer over "
        "the bound: none."
    )


def _cause(fault: Fault) -> str:
    if fault.part == ATTENTION and fault.block_id >= 0:
        return "What it stored is right and was read wrongly, first by"
    if fault.part == ATTENTION:
        return "Its attention is wrong, first at"
    return f"The {fault.part} that it stored are wrong from"


def _where(fault: Fault) -> str:
    place = f", block {fault.block_id}, slot {fault.slot}" if fault.block_id >= 0 else ""
    return f"position {fault.position}{place}"


def _count(findings: Sequence[LayerFinding]) -> str:
    return f"{sum(bool(finding.part) for finding in findings)} of {len(findings)}"
