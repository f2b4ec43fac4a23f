"""The scheduler lane: what each request is doing, and what the steps amount to. Free of Qt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import LiveTable
from engine.api.events import (
    BlockChanged,
    BlockEventKind,
    PoolEvent,
    PrefillProgress,
    RequestWaiting,
)
from engine.api.snapshot import RequestRow, Snapshot

WAITING, PREFILL, DECODE, PREEMPTED, PAUSED = "waiting", "prefill", "decode", "preempted", "paused"
RUNNING = (PREFILL, DECODE)
FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One request at one moment. Tokens: ``computed`` of ``prompt`` while it reads its prompt.

    ``chunk`` of ``chunks`` of the prompt, 0 where it is not known. ``waits_for`` and
    ``blocks_short`` as the engine tells; ``waits_on``: the conversation, if it is one. A recording
    knows only ``step_tokens``, computed in the step that is shown, and how many there are; -1
    elsewhere.
    """

    request_id: str
    conversation_id: str
    phase: str
    prompt: int
    computed: int
    cached: int
    output: int
    chunk: int = 0
    chunks: int = 0
    waits_for: str = ""
    blocks_short: int = 0
    step_tokens: int = -1
    waits_on: str = ""


@dataclass(frozen=True, slots=True)
class StepWork:
    """A step of lately, on average: requests computed together, and tokens computed."""

    width: int = 0
    tokens: float = 0.0


NO_WORK = StepWork()


class Lane:
    """Puts snapshots together: two of them tell what the steps between them did."""

    def __init__(self) -> None:
        self.rows: tuple[LaneRow, ...] = ()
        self.work = StepWork()
        self.steps_per_s = 0.0
        self._seen: Snapshot | None = None
        self._chunks: dict[str, _Chunks] = {}
        self._computed: dict[str, int] = {}
        self._waits_on: dict[str, str] = {}

    def note_progress(self, event: PrefillProgress) -> None:
        """One chunk of a prompt was computed."""
        chunks = self._chunks.get(event.request_id)
        if chunks is None or event.computed_tokens <= chunks.computed:
            # Its first chunk, or it begins again after a preemption.
            chunks = self._chunks[event.request_id] = _Chunks(event.cached_tokens)
        chunks.take(event.computed_tokens, event.prompt_tokens)

    def note_waiting(self, event: RequestWaiting) -> None:
        """A snapshot says for what a request waits, but not for whom."""
        self._waits_on[event.request_id] = event.waits_on_request_id

    def take(self, snapshot: Snapshot) -> None:
        """Takes the newest snapshot."""
        before, self._seen = self._seen, snapshot
        if before is snapshot:
            return
        # One that has ended is still there while a step in flight reads its blocks.
        requests = [r for r in snapshot.requests if r.phase != FINISHED]
        self._chunks = {r.request_id: c for r in requests if (c := self._chunks.get(r.request_id))}
        talks = {request.request_id: request.conversation_id for request in requests}
        self._waits_on = {r: other for r, other in self._waits_on.items() if r in talks}
        self.rows = tuple(self._row(request, talks) for request in requests)
        computed = {r.request_id: r.num_computed_tokens for r in requests}
        steps = snapshot.step - before.step if before is not None else 0
        if before is not None and steps > 0:
            tokens = snapshot.total_computed_tokens - before.total_computed_tokens
            # One that has just come began with what the cache had.
            width = sum(
                n > self._computed.get(r, n - 1 if n else 0) for r, n in computed.items()
            )  # fmt: skip
            self.work = StepWork(width, max(0, tokens) / steps)
            passed_s = snapshot.time_s - before.time_s
            self.steps_per_s = steps / passed_s if passed_s > 0 else 0.0
        elif not requests:
            self.work = StepWork()
        self._computed = computed

    def _row(self, request: RequestRow, talks: dict[str, str]) -> LaneRow:
        chunks = self._chunks.get(request.request_id)
        is_prefill = request.phase == PREFILL
        return LaneRow(
            request.request_id,
            request.conversation_id,
            request.phase,
            request.num_prompt_tokens,
            request.num_computed_tokens,
            request.num_cached_tokens,
            max(0, request.num_tokens - request.num_prompt_tokens),
            chunks.number if chunks and is_prefill else 0,
            chunks.total if chunks and is_prefill else 0,
            request.waits_for,
            request.blocks_short,
            waits_on=talks.get(self._waits_on.get(request.request_id, ""), ""),
        )


@dataclass(slots=True)
class _Chunks:
    """``number`` chunks were computed, of about ``total``: what is left is as large as the last."""

    computed: int
    number: int = 0
    total: int = 0

    def take(self, computed: int, prompt: int) -> None:
        size = max(1, computed - self.computed)
        self.computed = computed
        self.number += 1
        self.total = self.number - (-(prompt - computed) // size) if prompt > computed else 0
        self.total = max(self.total, self.number)


def recorded_lane(
    model: PoolModel, events: Iterable[PoolEvent]
) -> tuple[tuple[LaneRow, ...], StepWork]:
    """What the events of one step say of the requests that hold blocks after it."""
    tokens: dict[str, int] = {}
    for event in events:
        if isinstance(event, BlockChanged) and event.kind is BlockEventKind.FILLED:
            computed = max(0, event.after.fill - event.before.fill)
            tokens[event.request_id] = tokens.get(event.request_id, 0) + computed
    rows = []
    for table in model.tables.values():
        count = tokens.get(table.request_id, 0)
        phase = PREFILL if count > 1 else DECODE if count else WAITING
        held = int(model.fill[table.blocks].sum())
        cached = model.hit_tokens.get(table.request_id, 0)
        rows.append(
            LaneRow(
                table.request_id, table.conversation_id, phase, held, held, cached, 0,
                step_tokens=count,
            )
        )  # fmt: skip
    return tuple(rows), StepWork(len(tokens), sum(tokens.values()))


def freed_by(model: PoolModel, rows: Iterable[LaneRow], waiting: LaneRow) -> tuple[str, ...]:
    """Conversations whose end lets ``waiting`` go on: one if one is enough, the oldest first."""
    running = {row.request_id for row in rows if row.phase in RUNNING}
    tables = [table for table in model.tables.values() if table.request_id in running]
    room = [(table, _own_blocks(model, table)) for table in tables]
    for table, freed in room:
        if freed >= waiting.blocks_short:
            return (table.conversation_id,)
    needed: list[str] = []
    short = waiting.blocks_short
    for table, freed in room:
        if short <= 0:
            break
        needed.append(table.conversation_id)
        short -= freed
    return tuple(dict.fromkeys(needed)) if short <= 0 else ()


def _own_blocks(model: PoolModel, table: LiveTable) -> int:
    """Blocks that nobody else holds: they come free when the request ends."""
    held = model.ref_count[table.blocks].astype(int)
    return int((held == 1).sum())
