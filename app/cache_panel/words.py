"""The panel's figures and facts in words."""

from __future__ import annotations

from app.cache_panel import figures
from app.cache_panel.figures import Sharing
from app.cache_panel.names import Names
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import GhostTable
from app.cache_panel.strips import Strip
from app.cache_panel.units import blocks as blocks
from app.cache_panel.units import megabytes as megabytes
from app.cache_panel.units import seconds as seconds
from app.cache_panel.units import sequences as sequences
from app.cache_panel.units import tokens as tokens
from app.i18n import tr, tr_n
from engine.api.events import BlockState


def pool_size(model: PoolModel) -> str:
    """What the pool is, in one line."""
    return tr(
        "{blocks} × {tokens} · {size}",
        blocks=f"{model.num_blocks:,}",
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
        return tr_n(
            "{n} block in the cache serves {sharers}: {saved} saved.",
            "{n} blocks in the cache serve {sharers}: {saved} saved.",
            kept.shared_blocks,
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
    blocks_held = {block for table in model.tables.values() for block in table.blocks}
    held = len(blocks_held) * model.block_size
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


def owners(model: PoolModel, block_id: int) -> list[str]:
    """Conversations whose tables hold a block; of a cached one those that find it again, as far as
    it is known, or the one that used it last.
    """
    held = [table.conversation_id for table, _ in model.places_of(block_id)]
    if not held:
        held = [name for name, ghost in model.ghosts.items() if _is_kept(model, ghost, block_id)]
    owner = model.view(block_id).owner
    return list(dict.fromkeys(held)) or [o for o in (owner,) if o]


def whose(model: PoolModel, names: Names, block_id: int) -> str:
    """The conversations of a block; closed ones are named once."""
    found = [conversation(names, owner) for owner in owners(model, block_id)]
    return tr(", ").join(dict.fromkeys(found))


def token_range(model: PoolModel, block_id: int) -> str:
    """``16–31``: places in the sequence of the tokens in a block; empty for a free one."""
    view = model.view(block_id)
    if view.state is BlockState.FREE:
        return ""
    found = {index for _, index in model.places_of(block_id)} or _ghost_places(model, block_id)
    starts = [index * model.block_size for index in sorted(found)]
    return ", ".join(f"{start:,}–{start + max(view.fill, 1) - 1:,}" for start in starts)


def block(model: PoolModel, names: Names, block_id: int) -> list[str]:
    """Everything that is known of one block, one fact a line."""
    view = model.view(block_id)
    lines = [tr("Block {id}: {state}", id=f"{block_id:,}", state=state(model, block_id))]
    if view.state is BlockState.FREE:
        return lines
    places = model.places_of(block_id)
    lines.append(whose(model, names, block_id))
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
    source = model.copied_from.get(block_id, -1)
    if source >= 0:
        copied = tr("Began as a copy of block {source}, to be written on", source=f"{source:,}")
        lines.append(copied)
    lines.append(_steps(int(model.last_step[block_id]), int(model.last_use[block_id])))
    return [line for line in lines if line]


def gone(index: int) -> str:
    """For an entry of a finished conversation's table whose block is no longer there."""
    return tr(
        "Logical block {index} is gone: not full when the answer ended, or dropped since",
        index=f"{index:,}",
    )


def _steps(written: int, used: int) -> str:
    """When the block was written and last used; empty for never."""
    if written < 0:
        return ""
    if used <= written:
        return tr("Written in step {step}", step=f"{written:,}")
    return tr(
        "Written in step {step}, last used in step {used}", step=f"{written:,}", used=f"{used:,}"
    )


def _ghost_places(model: PoolModel, block_id: int) -> set[int]:
    ghosts = model.ghosts.values()
    return {g.blocks.index(block_id) for g in ghosts if _is_kept(model, g, block_id)}


def _is_kept(model: PoolModel, ghost: GhostTable, block_id: int) -> bool:
    """Whether a block still holds what a finished conversation left in it."""
    if block_id not in ghost.blocks:
        return False
    kept = ghost.hashes[ghost.blocks.index(block_id)]
    return kept != 0 and kept == int(model.block_hash[block_id])


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
