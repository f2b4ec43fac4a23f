"""Who gives up its blocks when a decode finds none. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request

_SAFE_AFTER_PREEMPTIONS = 2


def choose_victim(
    request: Request, running: Sequence[Request], focus: str, block_size: int
) -> Request | None:
    """The request that is preempted so that ``request`` gets a block; it may be itself.

    Paused requests first, then the latest admitted one of another conversation than the focused;
    one that was preempted twice is spared until it has produced ``block_size`` tokens, so that no
    two take each other's blocks for ever.

    Returns None if it is alone and has outgrown the pool.
    """
    holders = [other for other in running if other.block_table]
    if not any(other is not request for other in holders):
        return None
    latest_first = sorted(holders, key=lambda other: other.admitted, reverse=True)
    paused = [other for other in latest_first if other.paused]
    unfocused = [other for other in latest_first if other.conversation_id != focus]
    exposed = [other for other in unfocused if not _is_safe(other, block_size)]
    groups = (paused, exposed, unfocused, latest_first)
    return next(candidates[0] for candidates in groups if candidates)


def _is_safe(request: Request, block_size: int) -> bool:
    return (
        request.num_preemptions >= _SAFE_AFTER_PREEMPTIONS
        and request.tokens_since_admission < block_size
    )
