"""The panel's figures and facts in words."""

from __future__ import annotations

from app.cache_panel import figures
from app.cache_panel.figures import Sharing
from app.cache_panel.names import Names
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.strips import Strip
from app.i18n import tr, tr_n
from engine.api.events import BlockState


def blocks(n: int) -> str:
    """``12 blocks``."""
    return tr_n("{n} block", "{n} blocks", n)


def tokens(n: int) -> str:
    """``12 tokens``."""
    return tr_n("{n} token", "{n} tokens", n)


def megabytes(value: float) -> str:
    """``9.7 MB``, with more digits for small and fewer for large values; GB from 10,000 MB on."""
    if value >= 10_000:
        return tr("{value} GB", value=f"{value / 1000:,.1f}")
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 1 else 2
    return tr("{value} MB", value=f"{value:,.{digits}f}")


def seconds(value: float) -> str:
    """``0.3 s``; milliseconds under a tenth of a second."""
    if value < 0.1:
        return tr("{value} ms", value=f"{value * 1000:.0f}")
    return tr("{value} s", value=f"{value:,.1f}" if value < 100 else f"{value:,.0f}")


def pool_size(model: PoolModel) -> str:
    """What the pool is, in one line."""
    return tr(
        "{blocks} × {tokens} · {size}",
        blocks=blocks(model.num_blocks),
        tokens=tokens(model.block_size),
        size=megabytes(figures.megabytes(model, model.num_blocks)),
    )


def more_free(num_blocks: int) -> str:
    """What the grid leaves out; empty for nothing."""
    if not num_blocks:
        return ""
    return tr_n("and {n} more free block", "and {n} more free blocks", num_blocks)


def saved(model: PoolModel, num_blocks: int, num_tokens: int) -> str:
    """``27 blocks, 9.7 MB and ≈ 0.3 s of prefill``; without the time while no rate is known."""
    size = megabytes(figures.megabytes(model, num_blocks))
    time = figures.prefill_seconds(model, num_tokens)
    if time <= 0:
        return tr("{blocks} and {size}", blocks=blocks(num_blocks), size=size)
    return tr(
        "{blocks}, {size} and ≈ {time} of prefill",
        blocks=blocks(num_blocks),
        size=size,
        time=seconds(time),
    )


def savings(model: PoolModel, live: Sharing, kept: Sharing) -> str:
    """What sharing saves now; with nothing running, what the cache keeps for the next turn."""
    if live.saved_blocks:
        return tr(
            "{blocks} shared by {sharers}: {saved} saved.",
            blocks=blocks(live.shared_blocks),
            sharers=_sharers(live),
            saved=saved(model, live.saved_blocks, live.saved_tokens),
        )
    if kept.saved_blocks:
        return tr(
            "{blocks} in the cache serve {sharers}: {saved} saved.",
            blocks=blocks(kept.shared_blocks),
            sharers=_sharers(kept),
            saved=saved(model, kept.saved_blocks, kept.saved_tokens),
        )
    if model.counts.cached:
        time = figures.prefill_seconds(model, figures.cached_tokens(model))
        ready = tokens(figures.cached_tokens(model))
        if time <= 0:
            return tr("{tokens} are kept for the next turn.", tokens=ready)
        return tr(
            "{tokens} are kept for the next turn: ≈ {time} of prefill.",
            tokens=ready,
            time=seconds(time),
        )
    return tr("Nothing is shared yet. Conversations that begin alike share their first blocks.")


def _sharers(sharing: Sharing) -> str:
    if sharing.num_conversations > 1:
        n = sharing.num_conversations
        return tr_n("{n} conversation", "{n} conversations", n)
    return tr_n(
        "{n} answer of one conversation", "{n} answers of one conversation", sharing.num_tables
    )


def waste(model: PoolModel) -> str:
    """Unfilled slots in the last blocks of live tables."""
    slots = figures.waste_in_last_blocks(model)
    held = sum(len(table.blocks) for table in model.tables.values()) * model.block_size
    if not held:
        return ""
    return tr(
        "Unfilled in last blocks: {slots} of {held} ({percent} %).",
        slots=tr_n("{n} slot", "{n} slots", slots),
        held=f"{held:,}",
        percent=f"{100 * slots / held:.1f}",
    )


def conversation(names: Names, conversation_id: str) -> str:
    """``2 Title``, or words for one that is not open or has no title."""
    number = names.number_of(conversation_id)
    if not number:
        return tr("a closed conversation")
    if not names.keeps_titles:
        return tr("conversation {number}", number=number)
    return tr("{number} {title}", number=number, title=names.title_of(conversation_id)).strip()


def state(model: PoolModel, block_id: int) -> str:
    """One block's state, its references and pins."""
    view = model.view(block_id)
    if view.state is BlockState.FREE:
        return tr("free")
    if view.state is BlockState.CACHED:
        return tr("cached, in use by nobody")
    parts = [tr("shared") if view.ref_count - view.pins > 1 else tr("private")]
    if view.pins:
        parts.append(tr("pinned"))
    if view.ref_count > 1:
        parts.append(tr_n("{n} reference", "{n} references", view.ref_count))
    return ", ".join(parts)


def block(model: PoolModel, names: Names, block_id: int) -> list[str]:
    """Everything that is known of one block, one fact a line."""
    view = model.view(block_id)
    lines = [tr("Block {id}: {state}", id=f"{block_id:,}", state=state(model, block_id))]
    if view.state is BlockState.FREE:
        return lines
    places = model.places_of(block_id)
    owners = list(dict.fromkeys(table.conversation_id for table, _ in places)) or [view.owner]
    lines.append(", ".join(conversation(names, owner) for owner in owners if owner))
    indices = sorted({index for _, index in places} or _ghost_places(model, block_id))
    lines.extend(
        tr(
            "Tokens {first} to {last} (logical block {index})",
            index=index,
            first=f"{index * model.block_size:,}",
            last=f"{index * model.block_size + max(view.fill, 1) - 1:,}",
        )
        for index in indices
    )
    lines.append(
        tr(
            "Filled {fill} of {size} · {mb}",
            fill=view.fill,
            size=model.block_size,
            mb=megabytes(figures.megabytes(model, 1)),
        )
    )
    step = int(model.last_step[block_id])
    if step >= 0:
        lines.append(tr("Written in step {step}", step=f"{step:,}"))
    return [line for line in lines if line]


def _ghost_places(model: PoolModel, block_id: int) -> set[int]:
    return {
        index
        for ghost in model.ghosts.values()
        if block_id in ghost.blocks
        for index in (ghost.blocks.index(block_id),)
        if bool(model.ghost_alive(ghost)[index])
    }


def strip(strip_shown: Strip) -> str:
    """What a strip's right side says."""
    if not strip_shown.is_live:
        return tr(
            "{kept} of {blocks} cached",
            kept=f"{strip_shown.kept_blocks:,}",
            blocks=blocks(len(strip_shown.blocks)),
        )
    known = tokens(strip_shown.tokens)
    if not strip_shown.cached_tokens:
        return known
    cached = f"{strip_shown.cached_tokens:,}"
    return tr("{tokens}, {cached} from cache", tokens=known, cached=cached)


def untitled(strip_shown: Strip) -> str:
    """For a strip whose conversation has no title or is not open."""
    return tr("New conversation") if strip_shown.number else tr("A closed conversation")
