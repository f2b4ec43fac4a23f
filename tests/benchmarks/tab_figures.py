"""What a run of W2 comes to: first tokens, gaps between tokens, the cache."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tests.benchmarks.report import Row, percentile

if TYPE_CHECKING:
    from tests.benchmarks.tabs import Answer

COLUMNS = (
    *("tabs", "system", "ttft_p50_ms", "ttft_p95_ms", "itl_p50_ms", "itl_p95_ms"),
    *("idle_itl_ms", "paste_ttft_ms", "paste_gap_p99_ms", "paste_gap_max_ms"),
    *("later_cached_ratio", "recomputed_tokens", "pool_peak_blocks"),
)
PASTE_GAP_FACTOR = 3.0
PASTE_GAP_FLOOR_MS = 150.0
GPU_PASTE_GAP_MS = 8.0
"""On a GPU, the longest gap of the others (Qwen3-0.6B shape); on the CPU the 99th percentile may be
three times what it is without the paste, or 150 ms."""

Span = tuple[float, float]


def figures(answers: Sequence[Answer], block_size: int, on_gpu: bool = False) -> Row:
    """All figures of one run.

    TTFT runs from the moment of sending to the first visible text; the paste's own is kept apart.
    ITL is each gap between two tokens of an answer. *Idle* gaps are those before the paste in which
    no conversation waited for its first token. ``cached_ratio`` is over all prompts,
    ``first_cached_ratio`` over the full blocks that first turns have in common with earlier ones,
    ``later_cached_ratio`` over the full blocks of the history of later turns.
    """
    ordinary = [answer for answer in answers if not answer.is_paste]
    ttfts = [_ms(answer.first_text_s - answer.sent_s) for answer in ordinary]
    gaps = [_ms(end - start) for answer in answers for start, end in _gaps(answer)]
    first = sorted((a for a in answers if a.turn == 0), key=lambda answer: answer.sent_s)
    later = [answer for answer in answers if answer.turn > 0]
    return {
        "ttft_p50_ms": statistics.median(ttfts),
        "ttft_p95_ms": percentile(ttfts, 0.95),
        "ttft_by_turn_ms": _by_turn(ordinary),
        "itl_p50_ms": statistics.median(gaps),
        "itl_p95_ms": percentile(gaps, 0.95),
        **_paste(answers, on_gpu),
        "cached_ratio": _ratio(answers, sum(a.usage.prompt_tokens for a in answers)),
        "first_cached_ratio": _ratio(first, _shared_by_first(first, block_size)),
        "later_cached_ratio": _ratio(later, sum(answer.shareable_tokens for answer in later)),
        "recomputed_tokens": sum(answer.usage.recomputed_tokens for answer in answers),
        "output_tokens": sum(answer.usage.output_tokens for answer in answers),
    }


def _by_turn(answers: Sequence[Answer]) -> Row:
    by_turn: Row = {}
    for turn in sorted({answer.turn for answer in answers}):
        times = [_ms(a.first_text_s - a.sent_s) for a in answers if a.turn == turn]
        by_turn[str(turn + 1)] = {"p50": statistics.median(times), "p95": percentile(times, 0.95)}
    return by_turn


def longest_paste_gap(answers: Sequence[Answer]) -> Span | None:
    """Begin and end of the longest gap that the paste made in the others, None without one."""
    return max(_gaps_of_paste(answers), key=lambda gap: gap[1] - gap[0], default=None)


def _gaps_of_paste(answers: Sequence[Answer]) -> list[Span]:
    (paste,) = [answer for answer in answers if answer.is_paste]
    computed = [(paste.sent_s, paste.token_s[0])]
    return [gap for gap in _gaps_of_others(answers, paste) if _touches(gap, computed)]


def _gaps_of_others(answers: Sequence[Answer], paste: Answer) -> list[Span]:
    return [gap for answer in answers if answer.tab != paste.tab for gap in _gaps(answer)]


def _paste(answers: Sequence[Answer], on_gpu: bool) -> Row:
    """What the other conversations felt of the paste."""
    (paste,) = [answer for answer in answers if answer.is_paste]
    waits = [(answer.sent_s, answer.token_s[0]) for answer in answers]
    begin = paste.sent_s
    others = _gaps_of_others(answers, paste)
    idle = [_ms(b - a) for a, b in others if b <= begin and not _touches((a, b), waits)]
    during = [_ms(b - a) for a, b in _gaps_of_paste(answers)]
    row: Row = {
        "paste_prompt_tokens": paste.usage.prompt_tokens,
        "paste_ttft_ms": _ms(paste.first_text_s - begin),
        "idle_itl_ms": statistics.median(idle) if idle else None,
        "num_idle_gaps": len(idle),
        "paste_gap_p50_ms": statistics.median(during) if during else None,
        "paste_gap_p99_ms": percentile(during, 0.99) if during else None,
        "paste_gap_max_ms": max(during) if during else None,
        "num_paste_gaps": len(during),
    }
    if during and on_gpu:
        bound = GPU_PASTE_GAP_MS
        row |= {"paste_gap_bound_ms": bound, "paste_gap_ok": row["paste_gap_max_ms"] <= bound}
    elif idle and during:
        bound = max(PASTE_GAP_FACTOR * row["idle_itl_ms"], PASTE_GAP_FLOOR_MS)
        row |= {"paste_gap_bound_ms": bound, "paste_gap_ok": row["paste_gap_p99_ms"] <= bound}
    return row


def _shared_by_first(first: Sequence[Answer], block_size: int) -> int:
    """Tokens that first turns could take from prompts sent before theirs."""
    shared = 0
    for index, answer in enumerate(first):
        ids = answer.prompt_ids
        common = max((_common(ids, other.prompt_ids) for other in first[:index]), default=0)
        # The last token of a prompt is always computed.
        shared += min(common, len(ids) - 1) // block_size * block_size
    return shared


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    different = (place for place, (a, b) in enumerate(pairs) if a != b)
    return next(different, min(len(one), len(other)))


def _gaps(answer: Answer) -> list[Span]:
    return list(zip(answer.token_s, answer.token_s[1:], strict=False))


def _touches(span: Span, others: Iterable[Span]) -> bool:
    return any(span[0] < end and start < span[1] for start, end in others)


def _ratio(answers: Sequence[Answer], whole: int) -> float | None:
    cached = sum(answer.usage.cached_tokens for answer in answers)
    return cached / whole if whole else None


def _ms(seconds: float) -> float:
    return seconds * 1000.0
