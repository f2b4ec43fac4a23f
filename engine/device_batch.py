"""A step's inputs for a device that computes while the host prepares the next step.

On the device lie the block tables and each request's newest token, by table row. A step sends one
packed buffer: ids, positions, slots, what each row is drawn with, and the table entries that have
changed. A newest token that the host does not know yet is named by its row instead of its id.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine.device_drawer import DRAW_WORDS, PLACE, DeviceDrawer
from engine.request import PLACEHOLDER_TOKEN, Request
from engine.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.table_rows import TableRows

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DrawKind:
    """What drawing a step's tokens takes. ``filtered``: some row has top-k, top-p or min-p.
    ``counted``: some row has penalties. ``logprobs``: some row wants them.
    """

    filtered: bool = False
    counted: bool = False
    logprobs: bool = False


_KINDS = tuple(DrawKind(bool(n & 1), bool(n & 2), bool(n & 4)) for n in range(8))
_NOTHING: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class HostSpan:
    """One prefill chunk: see ``PrefillSpan``. ``row``: of its table, ``num_blocks`` of its entries
    count.
    """

    first_row: int
    num_tokens: int
    start: int
    row: int
    num_blocks: int
    request_id: str


@dataclass(frozen=True, slots=True)
class HostStep:
    """One step, on the host.

    ``ids``: ``[tokens]``; −1 − r stands for the newest token of table row r. ``positions``,
    ``slots``: ``[tokens]``. ``lengths``, ``rows``: ``[decodes]``, tokens to attend to and table
    rows. ``sample_rows``: ``[samples]`` rows of the step whose logits are wanted;
    ``sampled_rows``: table rows of their requests; ``draws``: ``[samples, DRAW_WORDS]``.
    ``changed``: flat places in the tables, and ``changes``: what stands there now.
    """

    ids: Ints
    positions: Ints
    slots: Ints
    lengths: Ints
    rows: Ints
    sample_rows: Ints
    sampled_rows: Ints
    draws: Ints
    kind: DrawKind
    changed: Ints
    changes: Ints
    spans: tuple[HostSpan, ...]
    sampled: tuple[Request, ...]
    ends: tuple[int, ...]

    @property
    def num_decodes(self) -> int:
        return len(self.rows)

    @classmethod
    def empty(cls) -> HostStep:
        """A step of nothing."""
        none = np.empty(0, np.int64)
        draws = np.empty((0, DRAW_WORDS), np.int64)
        return cls(
            ids=none,
            positions=none,
            slots=none,
            lengths=none,
            rows=none,
            sample_rows=none,
            sampled_rows=none,
            draws=draws,
            kind=DrawKind(),
            changed=none,
            changes=none,
            spans=(),
            sampled=(),
            ends=(),
        )


class DeviceBatch:
    """Lays out steps and keeps what stays on the device.

    ``tables``: ``[rows + 1, blocks]``, ``newest``: ``[rows + 1]``, both int64 on the device and
    replaced when they grow (``generation`` counts that); the last row is nobody's, for padding.

    Args:
        block_size: tokens a block.
        max_blocks: blocks of the longest sequence.
        max_requests: rows to begin with.
        device: where the model lies.
        drawer: knows what each request's tokens are drawn with.
    """

    def __init__(
        self,
        block_size: int,
        max_blocks: int,
        max_requests: int,
        device: torch.device,
        drawer: DeviceDrawer,
    ) -> None:
        self._block_size = block_size
        self._drawer = drawer
        self._device = device
        self._rows = TableRows(max_blocks, max_requests)
        rows = len(self._rows.tables)
        self._owners: list[Request | None] = [None] * rows
        self._draws: Ints = np.zeros((rows, DRAW_WORDS), np.int64)
        self._kinds = [0] * rows
        self.newest = torch.zeros(1, dtype=torch.int64, device=device)
        self.generation = -1
        self._grow()

    @property
    def padding_row(self) -> int:
        """The row that is nobody's."""
        return len(self.newest) - 1

    @property
    def num_rewrites(self) -> int:
        """How often a block table changed other than by growing, or left."""
        return self._rows.num_rewrites

    def host_tables(self, rows: Ints) -> Ints:
        """``[len(rows), blocks]``, the tables of some rows; behind their ends is junk."""
        return self._rows.tables[rows]

    def forget(self, request_id: str) -> None:
        """Frees the request's row; unknown ids are ignored."""
        row = self._rows.forget(request_id)
        if row is not None:
            self._owners[row] = None
        self._drawer.forget(request_id)

    def lay(self, output: SchedulerOutput) -> HostStep:
        """Lays out a step."""
        decodes, prefills = output.decodes, output.prefills
        count, total = len(decodes), output.num_tokens
        ids, positions, slots = np.empty((3, total), np.int64)
        chunks = (*decodes, *prefills)
        row_list = [self._row(chunk.request) for chunk in chunks]
        rows = np.array(row_list, np.int64)
        if self._rows.tables.shape != (len(self.newest) - 1, self.tables.shape[1]):
            self._grow()
        tables = self._rows.tables
        ids[:count] = [_id_at(chunk, row) for chunk, row in zip(decodes, row_list, strict=False)]
        positions[:count] = [chunk.start for chunk in decodes]
        blocks, offsets = np.divmod(positions[:count], self._block_size)
        slots[:count] = tables[rows[:count], blocks] * self._block_size + offsets
        lengths = positions[:count] + 1
        sampling, sample_rows, sampled, ends = chunks, list(range(count)), row_list, lengths
        spans: list[HostSpan] = []
        if prefills:
            spans = self._lay_prompts(prefills, row_list[count:], (ids, positions, slots), count)
            late = [place for place, chunk in enumerate(prefills) if chunk.samples]
            sampling = (*decodes, *(prefills[place] for place in late))
            sample_rows += [spans[place].first_row + spans[place].num_tokens - 1 for place in late]
            sampled = [*row_list[:count], *(row_list[count + place] for place in late)]
            ends = np.array([chunk.start + chunk.num_tokens for chunk in sampling], np.int64)
        sampled_rows = np.array(sampled, np.int64)
        draws = self._draws[sampled_rows]
        draws[:, PLACE] += ends
        kinds, kind = self._kinds, 0
        for row in sampled:
            kind |= kinds[row]
        changed, changes = self._take_changes()
        return HostStep(
            ids=ids,
            positions=positions,
            slots=slots,
            lengths=lengths,
            rows=rows[:count],
            sample_rows=np.array(sample_rows, np.int64),
            sampled_rows=sampled_rows,
            draws=draws,
            kind=_KINDS[kind],
            changed=changed,
            changes=changes,
            spans=tuple(spans),
            sampled=tuple([chunk.request for chunk in sampling]),
            ends=tuple(ends.tolist()),
        )

    def _lay_prompts(
        self,
        prefills: tuple[ScheduledChunk, ...],
        rows: list[int],
        out: tuple[Ints, Ints, Ints],
        first: int,
    ) -> list[HostSpan]:
        """Writes the prompts' ids, positions and slots behind the first ``first`` rows."""
        ids, positions, slots = out
        tables, spans = self._rows.tables, []
        for chunk, row in zip(prefills, rows, strict=True):
            end = first + chunk.num_tokens
            tokens = chunk.request.token_ids[chunk.start : chunk.start + chunk.num_tokens]
            tokens[-1] = _id_at(chunk, row)
            ids[first:end] = tokens
            places = np.arange(chunk.start, chunk.start + chunk.num_tokens)
            positions[first:end] = places
            blocks, offsets = np.divmod(places, self._block_size)
            slots[first:end] = tables[row, blocks] * self._block_size + offsets
            used = int(blocks[-1]) + 1
            spans.append(
                HostSpan(first, chunk.num_tokens, chunk.start, row, used, chunk.request.request_id)
            )
            first = end
        return spans

    def _row(self, request: Request) -> int:
        row = self._rows.row(request)
        if row >= len(self._owners):
            missing = len(self._rows.tables) - len(self._owners)
            self._owners.extend([None] * missing)
            self._draws = np.concatenate((self._draws, np.zeros((missing, DRAW_WORDS), np.int64)))
            self._kinds.extend([0] * missing)
        if self._owners[row] is not request:
            self._owners[row] = request
            self._draws[row] = self._drawer.words(request)
            params = request.params
            self._kinds[row] = (
                params.has_filter + 2 * params.has_penalty + 4 * (params.logprobs is not None)
            )
        return row

    def _take_changes(self) -> tuple[Ints, Ints]:
        written, self._rows.changes = self._rows.changes, []
        if not written:
            return _NOTHING, _NOTHING
        width, tables = self._rows.tables.shape[1], self._rows.tables
        changed = [np.arange(row * width + first, row * width + end) for row, first, end in written]
        changes = [tables[row, first:end] for row, first, end in written]
        return np.concatenate(changed), np.concatenate(changes)

    def _grow(self) -> None:
        """Makes the device's copies as large as the host's and sends all of it again."""
        host = self._rows.tables
        rows, width = host.shape
        # Both or neither: where memory runs out in between, the next step tries again.
        newest = torch.zeros(rows + 1, dtype=torch.int64, device=self._device)
        tables = torch.zeros((rows + 1, width), dtype=torch.int64, device=self._device)
        newest[: len(self.newest) - 1] = self.newest[:-1]
        tables[:rows] = torch.from_numpy(host)
        self.newest, self.tables = newest, tables
        self._rows.changes.clear()
        self.generation += 1


def _id_at(chunk: ScheduledChunk, row: int) -> int:
    """The chunk's last id; where only the device knows it, −1 − its table row."""
    token = chunk.request.token_ids[chunk.start + chunk.num_tokens - 1]
    return -1 - row if token == PLACEHOLDER_TOKEN else token
