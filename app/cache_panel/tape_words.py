"""Sentences for what happened to blocks: the engine's cause, in words."""

from __future__ import annotations

from app.cache_panel import words
from app.cache_panel.names import Names
from app.cache_panel.tape_rows import WRITING, TapeRow
from app.i18n import tr, tr_n
from engine.api.events import BlockEventKind


def sentence(row: TapeRow, names: Names) -> str:
    """What happened and why, in one or two short sentences."""
    blocks = words.blocks(row.num_blocks)
    if row.what == WRITING:
        return _writing(row)
    match row.what:
        case BlockEventKind.ALLOCATED:
            if row.cause == "prompt":
                return tr("{blocks} taken for its prompt.", blocks=blocks)
            if row.cause == "inspect":
                return tr("Parity inspector: {blocks} borrowed to compute in.", blocks=blocks)
        case BlockEventKind.HIT:
            return _hit(row, blocks)
        case BlockEventKind.COPIED:
            return tr(
                "Block {source} copied to block {block}: others use it too, and this one writes.",
                source=f"{row.source_block_id:,}",
                block=f"{row.block_id:,}",
            )
        case BlockEventKind.RELEASED:
            return _released(row, blocks)
        case BlockEventKind.REMOVED:
            return _removed(row, names, blocks)
        case BlockEventKind.PINNED:
            return tr("{blocks} pinned against eviction.", blocks=blocks)
        case BlockEventKind.UNPINNED:
            return tr("{blocks} no longer pinned.", blocks=blocks)
    # A cause that this window does not know: the engine's own words are better than none.
    return tr("{blocks}: {kind} ({cause}).", blocks=blocks, kind=row.what, cause=row.cause)


def _writing(row: TapeRow) -> str:
    parts = []
    if row.num_tokens:
        parts.append(tr("{tokens} computed", tokens=words.tokens(row.num_tokens)))
    if row.num_blocks:
        parts.append(tr("{blocks} taken to grow", blocks=words.blocks(row.num_blocks)))
    if row.num_full:
        parts.append(
            tr_n("{n} block full and ready to share", "{n} blocks full and ready to share",
                 row.num_full)
        )  # fmt: skip
    return tr("{parts}.", parts=" · ".join(parts)) if parts else tr("Computing.")


def _hit(row: TapeRow, blocks: str) -> str:
    if row.cause == "fork":
        return tr("Split off: {blocks} shared with the conversation it came from.", blocks=blocks)
    if row.cause == "inspect":
        return tr("Parity inspector: {blocks} held while it looks.", blocks=blocks)
    return tr(
        "{blocks} found in the cache: {tokens} need not be computed.",
        blocks=blocks,
        tokens=words.tokens(row.num_tokens),
    )


def _released(row: TapeRow, blocks: str) -> str:
    match row.cause:
        case "finish":
            return tr("Answer finished: {blocks} given back.", blocks=blocks)
        case "cancel":
            return tr("Stopped: {blocks} given back.", blocks=blocks)
        case "preempt":
            return tr(
                "Pool full: {blocks} given up for another conversation; it will be computed again.",
                blocks=blocks,
            )
        case "error":
            return tr("Answer failed: {blocks} given back.", blocks=blocks)
        case "recompute":
            return tr(
                "Begins again: {blocks} given back; it will be computed again.", blocks=blocks
            )
        case "inspect":
            return tr("Parity inspector: {blocks} given back.", blocks=blocks)
        case "truncate":
            return tr("Taken back to an earlier place: {blocks} given back.", blocks=blocks)
    return tr("{blocks} given back ({cause}).", blocks=blocks, cause=row.cause)


def _removed(row: TapeRow, names: Names, blocks: str) -> str:
    found = [words.conversation(names, owner) for owner in row.owners]
    owners = tr(", ").join(dict.fromkeys(found))
    if row.cause in ("prompt", "grow", "copy"):
        return tr(
            "{blocks} evicted from the cache to make room: tokens of {owners}.",
            blocks=blocks,
            owners=owners or tr("a closed conversation"),
        )
    if row.cause in ("restart", "reset"):
        return tr("{blocks} dropped: the whole cache was emptied.", blocks=blocks)
    if row.cause == "error":
        return tr("Answer failed: {blocks} dropped from the cache.", blocks=blocks)
    if row.cause == "out of memory":
        return tr("Memory ran out: {blocks} dropped from the cache.", blocks=blocks)
    return tr("{blocks} dropped from the cache ({cause}).", blocks=blocks, cause=row.cause)


def steps(row: TapeRow) -> str:
    """``Step 12``, or ``Steps 12–40``."""
    if row.first_step == row.last_step:
        return tr("Step {step}", step=f"{row.first_step:,}")
    return tr("Steps {first}–{last}", first=f"{row.first_step:,}", last=f"{row.last_step:,}")


def whose(row: TapeRow, names: Names) -> str:
    """The conversation, or empty where the event belongs to none."""
    return words.conversation(names, row.conversation_id) if row.conversation_id else ""
