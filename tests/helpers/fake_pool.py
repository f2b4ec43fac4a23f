"""The pool of the scripted engine: whole blocks that were computed before count as cached, those of
several answers as shared.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field

from engine.api.commands import Submit
from engine.api.events import EngineStats
from engine.api.snapshot import FREE, USED, PoolColumns, RequestRow, Snapshot

BLOCK_SIZE = 16
NUM_BLOCKS = 512


@dataclass(slots=True)
class Running:
    """One answer in progress. ``history``: tokens of the turns before. ``given``: tokens of the
    output that an answer had before it went on. ``index``: which of several answers.
    """

    submit: Submit
    prompt: list[int]
    cached: int
    words: list[str]
    started_s: float
    history: int
    output: list[int] = field(default_factory=list)
    first_s: float = 0.0
    chars: int = 0
    given: int = 0
    index: int = 0

    @property
    def request_id(self) -> str:
        return self.submit.request_ids[self.index]


class FakePool:
    """Remembers which beginnings of prompts were computed."""

    def __init__(self) -> None:
        # A chain, as the real cache's: looking up a long prompt must not cost its square.
        self._computed: dict[tuple[int, tuple[int, ...]], int] = {}
        self._by_request: dict[str, list[int]] = {}

    def cached(self, ids: list[int]) -> int:
        """Tokens of a prompt whose blocks were computed before."""
        cached, parent = 0, -1
        while (end := cached + BLOCK_SIZE) < len(ids):
            found = self._computed.get((parent, tuple(ids[cached:end])))
            if found is None:
                break
            cached, parent = end, found
        return cached

    def compute(self, ids: list[int]) -> list[int]:
        """The full blocks of these tokens are there from now on. Returns them."""
        blocks, parent = [], -1
        for end in range(BLOCK_SIZE, len(ids) + 1, BLOCK_SIZE):
            key = (parent, tuple(ids[end - BLOCK_SIZE : end]))
            parent = self._computed.setdefault(key, len(self._computed))
            blocks.append(parent % NUM_BLOCKS)
        return blocks

    def _tables(self, answers: list[Running]) -> dict[str, list[int]]:
        known = self._by_request
        self._by_request = {
            r.request_id: known.get(r.request_id) or self.compute(r.prompt) for r in answers
        }
        return self._by_request

    def stats(self, answers: list[Running], step: int) -> EngineStats:
        """What the status strip shows."""
        counts = self._counts(answers)
        used = sum(1 for count in counts if count)
        shared = sum(1 for count in counts if count > 1)
        running, free = len(answers), NUM_BLOCKS - used
        return EngineStats(step, running, 0, used, 0, free, shared, 100.0, 900.0, 0)

    def _counts(self, answers: list[Running]) -> array[int]:
        counts = array("H", [0] * NUM_BLOCKS)
        for table in self._tables(answers).values():
            for block_id in table:
                counts[block_id] += 1
        return counts

    def snapshot(self, answers: list[Running], step: int, context_length: int) -> Snapshot:
        """The pool as the cache panel gets it."""
        tables = self._tables(answers)
        counts = self._counts(answers)
        owners = [running.submit.conversation_id for running in answers]
        owner_column = array("i", [-1] * NUM_BLOCKS)
        for index, running in enumerate(answers):
            for block_id in tables[running.request_id]:
                owner_column[block_id] = index
        used = sum(1 for count in counts if count)
        pool = PoolColumns(
            state=bytes(USED if count else FREE for count in counts),
            ref_count=counts.tobytes(),
            pins=bytes(2 * NUM_BLOCKS),
            owner=owner_column.tobytes(),
            fill=array("H", [BLOCK_SIZE if count else 0 for count in counts]).tobytes(),
            last_step=array("i", [step if count else -1 for count in counts]).tobytes(),
            block_hash=bytes(8 * NUM_BLOCKS),
        )
        return Snapshot(
            last_seq=0,
            step=step,
            time_s=time.monotonic(),
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            block_bytes=1000,
            watermark_blocks=5,
            context_length=context_length,
            owners=tuple(owners),
            pool=pool,
            requests=tuple(_row(r, tables[r.request_id]) for r in answers),
            num_used=used,
            num_cached=0,
            num_free=NUM_BLOCKS - used,
            decode_tokens_per_s=100.0,
            prefill_tokens_per_s=900.0,
            total_computed_tokens=0,
            total_cached_tokens=0,
            invariant_violations=0,
        )


def _row(running: Running, table: list[int]) -> RequestRow:
    tokens = len(running.prompt) + len(running.output)
    return RequestRow(
        running.request_id,
        running.submit.conversation_id,
        "decode",
        tuple(table),
        tokens,
        len(running.prompt),
        tokens,
        running.cached,
        "",
        0,
    )
