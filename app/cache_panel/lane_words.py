"""What the scheduler does with each request, in words."""

from __future__ import annotations

from collections.abc import Iterable

from app.cache_panel import words
from app.cache_panel.lane import (
    DECODE,
    PAUSED,
    PREEMPTED,
    PREFILL,
    WAITING,
    LaneRow,
    StepWork,
    freed_by,
)
from app.cache_panel.names import Names
from app.cache_panel.pool_model import PoolModel
from app.i18n import tr, tr_n


def summary(work: StepWork, steps_per_s: float, num_waiting: int) -> str:
    """How many are computed together, and how much a step does."""
    if not work.width:
        idle = tr("Nothing is being computed.")
        return f"{idle} {_waiting_count(num_waiting)}".strip()
    together = tr_n("{n} request in each step", "{n} requests in each step", work.width)
    tokens = tr("{n} tokens a step", n=f"{work.tokens:,.1f}")
    parts = [together, tokens]
    if steps_per_s > 0:
        parts.append(tr("{rate} steps/s", rate=f"{steps_per_s:.0f}"))
    if num_waiting:
        parts.append(_waiting_count(num_waiting))
    return " · ".join(parts)


def _waiting_count(count: int) -> str:
    return tr("{n} waiting", n=f"{count:,}") if count else ""


def phase(row: LaneRow) -> str:
    """One or two words."""
    if row.step_tokens == 0:
        return tr("not in this step")
    return {
        WAITING: tr("waiting"),
        PREFILL: tr("reading (prefill)"),
        DECODE: tr("answering (decode)"),
        PREEMPTED: tr("preempted"),
        PAUSED: tr("paused"),
    }.get(row.phase, row.phase)


def sentence(row: LaneRow, rows: Iterable[LaneRow], model: PoolModel, names: Names) -> str:
    """What it is doing, or what it waits for and when that will be over."""
    if row.step_tokens >= 0:
        return _recorded(row)
    if row.phase == PREFILL:
        return _reading(row)
    if row.phase == DECODE:
        return tr(
            "{output} so far, after a prompt of {prompt}.",
            output=words.tokens(row.output),
            prompt=words.tokens(row.prompt),
        )
    if row.phase == PAUSED:
        return tr("Paused; its blocks stay while nobody needs them.")
    waits = _waits(row, rows, model, names)
    if row.phase == PREEMPTED:
        lost = tr("It gave up its blocks; it will be computed again.")
        # What it waits for first: there may be no room for all of it.
        return f"{waits} {lost}".strip()
    return waits or tr("Its turn comes with the next step.")


def _recorded(row: LaneRow) -> str:
    held = tr("{tokens} in its blocks", tokens=words.tokens(row.computed))
    if not row.step_tokens:
        return tr("Nothing computed in this step; {held}.", held=held)
    return tr(
        "{tokens} computed in this step; {held}.", tokens=words.tokens(row.step_tokens), held=held
    )


def _reading(row: LaneRow) -> str:
    done = tr("{done} of {total} tokens", done=f"{row.computed:,}", total=f"{row.prompt:,}")
    parts = [done]
    if row.chunks:
        chunk = tr("chunk {k} of {n}", k=row.chunk, n=row.chunks)
        parts.insert(0, chunk)
    if row.cached:
        parts.append(tr("{cached} from cache", cached=f"{row.cached:,}"))
    return " · ".join(parts)


def _waits(row: LaneRow, rows: Iterable[LaneRow], model: PoolModel, names: Names) -> str:
    if row.waits_for == "capacity":
        short = tr_n(
            "Pool full: {n} block short.", "Pool full: {n} blocks short.", row.blocks_short
        )
        return f"{short} {_when(freed_by(model, rows, row), names)}"
    if row.waits_for == "twin":
        # Where nobody told: it can only be one that reads.
        readers = {r.conversation_id for r in rows if r.phase == PREFILL and r is not row}
        other = row.waits_on or (readers.pop() if len(readers) == 1 else "")
        if not other:
            return tr("Waits for blocks that another request is computing: both will share them.")
        return tr(
            "Waits for blocks that {conversation} is computing: both will share them.",
            conversation=words.conversation(names, other),
        )
    return {
        "batch_full": tr("Waits for a place in the batch."),
        "paused": tr("Paused; its blocks stay while nobody needs them."),
        "engine_paused": tr("The engine is paused."),
        "loading": tr("Waits for the model to load."),
    }.get(row.waits_for, "")


def _when(conversations: tuple[str, ...], names: Names) -> str:
    if not conversations:
        return tr("Goes on when other requests end.")
    ends = tr(" and ").join(words.conversation(names, c) for c in conversations)
    return tr_n("Goes on when {who} ends.", "Goes on when {who} end.", len(conversations), who=ends)
