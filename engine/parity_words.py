"""The inspector's findings as sentences with their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from engine.parity_measure import Bounds, Difference
from engine.parity_source import PresentKV
from engine.parity_steps import ATTENTION, LayerFinding


def compared_words(
    names: Sequence[str],
    findings: Sequence[LayerFinding],
    bad_layer: int,
    block_id: int,
    slot: int,
    bounds: Bounds,
    logits: Difference,
    num_tokens: int,
) -> str:
    """The verdict on two backends, ``names[0]`` judged by ``names[1]``."""
    worst = max(finding.error for finding in findings)
    over = f"{num_tokens} tokens and {len(findings)} layers"
    if bad_layer < 0 and logits.first_row < 0:
        return (
            f"{names[0]} equals {names[1]} to {worst:.1e} over {over} (bound {bounds.attention:g}),"
            f" its logits to {logits.error:.1e} (bound {bounds.state:g}); first layer over the"
            " bound: none."
        )
    if bad_layer < 0:
        return (
            f"{names[0]} equals {names[1]} to {worst:.1e} in each layer by itself, but run as a"
            f" whole its logits differ by {logits.error:.1e} (bound {bounds.state:g})."
        )
    finding = findings[bad_layer]
    return (
        f"{names[0]} differs from {names[1]}: first layer over the bound of {bounds.attention:g} is"
        f" layer {bad_layer}, by {finding.error:.1e}. {_cause(finding)}"
        f"{_where(finding, block_id, slot)}. Layers over the bound: {_count(findings)}."
    )


def live_words(
    present: PresentKV,
    findings: Sequence[LayerFinding],
    bad_layer: int,
    block_id: int,
    slot: int,
    bound: float,
) -> str:
    """The verdict on what the pool holds."""
    holder = "a running request" if present.running else "the prefix cache"
    what = f"{len(present.token_ids)} tokens in {len(present.block_table)} blocks of {holder}"
    if bad_layer < 0:
        worst = max(finding.error for finding in findings)
        return (
            f"{what} equal a dense recomputation to {worst:.1e} (bound {bound:g}); first layer over"
            " the bound: none."
        )
    finding = findings[bad_layer]
    return (
        f"{what} differ from a dense recomputation: first layer over the bound of {bound:g} is"
        f" layer {bad_layer}, by {finding.error:.1e}. The {finding.part} are wrong from"
        f"{_where(finding, block_id, slot)} on. Layers over the bound: {_count(findings)}."
    )


def _cause(finding: LayerFinding) -> str:
    if finding.part == ATTENTION:
        return "What it stored is right and was read wrongly, first by"
    return f"The {finding.part} that it stored are wrong from"


def _where(finding: LayerFinding, block_id: int, slot: int) -> str:
    place = f", block {block_id}, slot {slot}" if block_id >= 0 else ""
    return f" position {finding.position}{place}"


def _count(findings: Sequence[LayerFinding]) -> str:
    return f"{sum(bool(finding.part) for finding in findings)} of {len(findings)}"
