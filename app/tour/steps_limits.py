"""Steps of the lesson about a pool that gets full: eviction, preemption, and the way back."""

from __future__ import annotations

from app.cache_panel.words import blocks
from app.i18n import tr
from app.tour.prompts import DIARIST, GUIDE, PLACES, diary
from app.tour.rig import Rig
from app.tour.step import Step, Target
from engine.api.events import (
    BlockChanged,
    BlockEventKind,
    BlockState,
    Event,
    PoolEvent,
    RequestFinished,
    RequestPreempted,
    TokensGenerated,
)


class Eviction(Step):
    """Cached blocks make room."""

    target = Target.USAGE
    steps_per_s = 4.0

    @property
    def title(self) -> str:
        return tr("Finished, but not forgotten")

    @property
    def text(self) -> str:
        return tr(
            "The answers so far have been stopped, yet their full blocks were not thrown away: "
            "they are cached (the pale cells). If somebody goes on with such a conversation, its "
            "notes are still there and it starts at once.\n\n"
            "Cached blocks cost nothing, for they are given up as soon as somebody needs the room. "
            "That is eviction: those that have not been used for the longest time go first. Now a "
            "long text comes, a diary, and needs more blocks than are free."
        )

    @property
    def look(self) -> str:
        return tr("Watch the cached and the free blocks: the pale ones give way to the diary.")

    @property
    def waiting(self) -> str:
        return tr("Waiting until a cached block has been evicted…")

    def begin(self) -> None:
        self._evicted = 0
        self._requests: list[str] = []
        self._ask_next()

    def _ask_next(self) -> None:
        text = diary(PLACES[len(self._requests)])
        _, (name,) = self.rig.ask(tr("A long diary"), DIARIST, text, max_tokens=4)
        self._requests.append(name)

    def take(self, event: Event | PoolEvent) -> None:
        if getattr(event, "request_id", "") not in self._requests:
            return
        if _is_eviction(event):
            self._evicted += 1
            self.is_done = True
        elif (
            isinstance(event, RequestFinished)
            and not self.is_done
            and event.request_id == self._requests[-1]
            and len(self._requests) < len(PLACES)
        ):
            # The pool had room for all of it: another one.
            self._ask_next()

    def outcome(self) -> str:
        return tr(
            "{blocks} evicted so far. Nothing is lost that cannot be had again: if their "
            "conversation goes on, its notes are computed anew from its text, which only takes "
            "time.",
            blocks=blocks(self._evicted),
        )


class Preemption(Step):
    """Three answers outgrow the pool."""

    target = Target.GRID
    steps_per_s = 24.0
    starts_anew = True
    QUESTIONS = (
        "Tell me the story of a river from its spring to the sea.",
        "Tell me the story of a drop of rain on its way down.",
        "Tell me the story of a stone that travels in a glacier.",
    )
    MAX_TOKENS = 260

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self.victim = ""
        self.requests: list[str] = []
        self._freed = 0

    @property
    def title(self) -> str:
        return tr("When the pool is full")

    @property
    def text(self) -> str:
        return tr(
            "Three long answers run together, and the pool is too small for all three. At some "
            "point one of them needs a block, nothing is free, and nothing is cached that could be "
            "evicted. Stopping with an error would be bad, and so would everybody waiting for "
            "everybody.\n\n"
            "Instead one conversation steps back: it is preempted. The latest one, and never the "
            "one that you look at, gives up all its blocks, and the others take them as they need "
            "them. Its text stays; only the notes go."
        )

    @property
    def look(self) -> str:
        return tr("The grid fills up. Then all blocks of one number turn pale: they are given up.")

    @property
    def waiting(self) -> str:
        return tr("Waiting until a conversation has been preempted…")

    def begin(self) -> None:
        self.victim, self._freed = "", 0
        self.requests.clear()
        titles = (tr("A river"), tr("A raindrop"), tr("A stone"))
        for index, (title, question) in enumerate(zip(titles, self.QUESTIONS, strict=True)):
            talk, (name,) = self.rig.ask(title, GUIDE, question, max_tokens=self.MAX_TOKENS)
            self.requests.append(name)
            if index == 0:
                self.rig.focus(talk)

    def restart(self) -> None:
        """All of it once more."""
        self.is_done = False
        self.start()

    def take(self, event: Event | PoolEvent) -> None:
        if (
            isinstance(event, RequestPreempted)
            and event.request_id in self.requests
            and not self.is_done
        ):
            self.victim, self._freed = event.request_id, event.freed_blocks
            self.is_done = True

    def outcome(self) -> str:
        return tr(
            "Conversation {number} was preempted and gave up {blocks}. Now it waits; the two "
            "others go on as if nothing had happened.",
            number=self.rig.number_of(self.victim),
            blocks=blocks(self._freed),
        )


class Return(Step):
    """The preempted one comes back once there is room."""

    target = Target.TABLES
    steps_per_s = 8.0
    keeps_running = True
    TAKEN = 3

    def __init__(self, rig: Rig, before: Preemption) -> None:
        super().__init__(rig)
        self._before = before

    @property
    def title(self) -> str:
        return tr("And it comes back")

    @property
    def text(self) -> str:
        return tr(
            "The two others go on and take the given up blocks one by one. As soon as there is "
            "room again, the preempted conversation is let in. What is left of its notes it uses "
            "again, and its system prompt is still shared with the others; what was taken is "
            "computed anew from its text. Then it goes on with the very next word: none is lost "
            "and none comes twice. Preemption costs time, never text.\n\n"
            "To make room, the first conversation is stopped once three blocks have been taken."
        )

    @property
    def look(self) -> str:
        return tr("The strip of the preempted conversation comes back and goes on growing.")

    @property
    def waiting(self) -> str:
        return tr("Waiting until the preempted conversation goes on with its next word…")

    def begin(self) -> None:
        self._num_hits = self._num_taken = 0
        self._talks = self._is_lent = self._has_room = False
        if not self.rig.is_running(self._before.victim):
            # The step before was skipped, or all of it has ended since: it has to happen first.
            self._before.restart()
        self._lend()

    def _lend(self) -> None:
        """The others go on, once there is somebody who has given up its blocks."""
        if self._before.is_done and not self._is_lent:
            self._is_lent = True
            self.rig.go_on(self._before.steps_per_s)

    def take(self, event: Event | PoolEvent) -> None:
        name = getattr(event, "request_id", "")
        if not self._is_lent:
            self._before.take(event)
            self._lend()
        elif name == self._before.victim:
            self._look_at_victim(event)
        elif name in self._before.requests and isinstance(event, BlockChanged):
            # Once it is back its blocks are in use: what goes after that was somebody else's.
            self._num_taken += _is_eviction(event) and not self._num_hits
            if self._num_taken >= self.TAKEN:
                self._make_room()

    def _make_room(self) -> None:
        if not self._has_room:
            self._has_room = True
            self.rig.go_on(self.steps_per_s)
            self.rig.stop(self._before.requests[0])

    def _look_at_victim(self, event: Event | PoolEvent) -> None:
        if isinstance(event, BlockChanged) and event.kind is BlockEventKind.HIT:
            self._num_hits += 1
        elif isinstance(event, TokensGenerated):
            self._talks = True
        self.is_done = self._talks and self._num_hits > 0

    def outcome(self) -> str:
        return tr(
            "Conversation {number} is back: {blocks} of its notes were still there, shared or "
            "cached. What the others had taken was computed again ({taken}), and the answer goes "
            "on where it was.",
            number=self.rig.number_of(self._before.victim),
            blocks=blocks(self._num_hits),
            taken=blocks(self._num_taken),
        )


def _is_eviction(event: Event | PoolEvent) -> bool:
    """A block in use that only cannot be found any more makes no room."""
    return (
        isinstance(event, BlockChanged)
        and event.kind is BlockEventKind.REMOVED
        and event.after.state is not BlockState.USED
    )
