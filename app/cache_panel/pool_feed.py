"""Joins snapshots and events into one consistent model, whatever the order of their arrival."""

from __future__ import annotations

from collections.abc import Iterable

from app.cache_panel.history import History
from app.cache_panel.pool_model import PoolModel
from engine.api.events import PoolEvent
from engine.api.snapshot import Snapshot


class PoolFeed:
    """Keeps ``model`` up to date, and starts it again from the next snapshot when it cannot be.

    The stream: after subscribing comes a snapshot with ``last_seq``, then events from
    ``last_seq`` + 1 on; newer snapshots follow now and then. ``restarts`` counts how often the
    model was inconsistent; ``trouble`` says why, the last time. ``newest``: the last snapshot seen.
    ``history`` is what was folded into the present model; it begins anew with each.
    """

    def __init__(self) -> None:
        self.model: PoolModel | None = None
        self.history = History()
        self.restarts = 0
        self.trouble = ""
        self._previous: PoolModel | None = None
        self.newest: Snapshot | None = None
        self._pending: list[PoolEvent] = []

    def remember(self, model: PoolModel) -> None:
        """What another panel knew of the same pool: whose the cached blocks are."""
        if self.model is None:
            self._previous = model

    def begin(self, stale: Snapshot | None) -> None:
        """A new subscription: waits for a snapshot other than ``stale``, the one before it."""
        self._previous = self.model or self._previous
        self.model = None
        self.newest = stale
        self._pending.clear()

    def forget_history(self) -> None:
        """Nobody can go back any more: the memory is given back."""
        self.history = History()

    def take(self, snapshot: Snapshot | None, events: Iterable[PoolEvent] = ()) -> bool:
        """Takes what has come. Returns True if ``model`` is another object than before."""
        before = self.model
        self._pending.extend(events)
        if snapshot is not None and snapshot is not self.newest:
            self.newest = snapshot
            if self._must_start_from(snapshot):
                self._start_from(snapshot)
            elif self.model is not None:
                self.model.note(snapshot)
        self._apply_pending()
        return self.model is not before

    def _must_start_from(self, snapshot: Snapshot) -> bool:
        """A snapshot is never older than events seen before it, unless the pool is a new one."""
        model = self.model
        return (
            model is None
            or bool(model.inconsistency)
            or snapshot.last_seq < model.last_seq
            or snapshot.num_blocks != model.num_blocks
            or snapshot.block_size != model.block_size
        )

    def _start_from(self, snapshot: Snapshot) -> None:
        self.model = PoolModel.from_snapshot(snapshot, self.model or self._previous)
        self._previous = None
        self.history = History()

    def _apply_pending(self) -> None:
        model = self.model
        if model is None or model.inconsistency:
            return
        if not model.apply(self._pending, self.history.add):
            self.restarts += 1
            self.trouble = model.inconsistency
            newest = self.newest
            if newest is None or newest.last_seq <= model.last_seq:
                return
            # The snapshot that came with these events already covers the trouble.
            self._start_from(newest)
            self._apply_pending()
        else:
            self._pending.clear()
