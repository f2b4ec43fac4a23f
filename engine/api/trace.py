"""Recordings of the pool: one JSON object a line (NDJSON), readable without the engine.

The first line is a header, the second the snapshot at which the recording starts, each further one
a pool event. Folding the events over the snapshot gives the pool at every step.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

from engine.api.errors import TraceError
from engine.api.events import (
    BlockChanged,
    BlockEventKind,
    BlockState,
    BlockView,
    PoolEvent,
    TableChanged,
)
from engine.api.snapshot import USED, PoolColumns, RequestRow, Snapshot

FORMAT = "quire-trace"
VERSION = 1

# A recording may come from anywhere: whoever folds it keeps its numbers in columns of these widths.
_U16, _I32, _I64 = range(1 << 16), range(-1, 1 << 31), range(-1, 1 << 63)
_COUNT = range(1 << 31)
_COLUMN_BYTES = {
    "state": 1, "ref_count": 2, "pins": 2, "owner": 4, "fill": 2, "last_step": 4, "block_hash": 8,
}  # fmt: skip


class TraceWriter:
    """Writes a recording to an open text file. The caller closes the file."""

    def __init__(self, file: TextIO, snapshot: Snapshot) -> None:
        self._file = file
        self._seq = snapshot.last_seq
        self._write({"format": FORMAT, "version": VERSION})
        self._write({"snapshot": _snapshot_to_json(snapshot)})

    def write(self, events: Iterable[PoolEvent]) -> None:
        """Appends events; those that the snapshot contains already are left out.

        Raises:
            TraceError: an event is missing in between.
        """
        for event in events:
            if event.seq <= self._seq:
                continue
            if event.seq != self._seq + 1:
                raise TraceError(f"Event {event.seq} follows {self._seq}: some are missing.")
            self._seq = event.seq
            self._write(_event_to_json(event))

    def _write(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def read_trace(path: Path) -> tuple[Snapshot, Iterator[PoolEvent]]:
    """The snapshot and the events of a recording. Events are read as they are asked for.

    Raises:
        TraceError: not a recording, of a newer version, or damaged; the message names the line.
        OSError: the file cannot be read.
    """
    lines = _lines(path)
    number, header = next(lines, (1, {}))
    if header.get("format") != FORMAT:
        raise TraceError(f"{path.name} is not a recording of the cache.")
    if header.get("version") != VERSION:
        raise TraceError(
            f"{path.name} has version {header.get('version')}; this program reads {VERSION}."
        )
    number, first = next(lines, (2, {}))
    try:
        snapshot = _snapshot_from_json(first["snapshot"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"Line {number} of {path.name} is no snapshot: {error!r}.") from error
    return snapshot, _events(path.name, lines, snapshot.last_seq)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    # Decoded line by line: a text file decodes ahead and would blame a line far before the bad one.
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                value = json.loads(line.decode("utf-8"))
            except (RecursionError, ValueError) as error:
                raise TraceError(f"Line {number} of {path.name} is no JSON: {error}.") from error
            if not isinstance(value, dict):
                raise TraceError(f"Line {number} of {path.name} is no JSON object.")
            yield number, value


def _events(
    name: str, lines: Iterator[tuple[int, dict[str, Any]]], seq: int
) -> Iterator[PoolEvent]:
    for number, value in lines:
        try:
            event = _event_from_json(value)
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"Line {number} of {name} is no event: {error!r}.") from error
        seq += 1
        if event.seq != seq:
            raise TraceError(f"Line {number} of {name}: event {event.seq} where {seq} is due.")
        yield event


def _event_to_json(event: PoolEvent) -> dict[str, Any]:
    value = {field.name: getattr(event, field.name) for field in fields(event)}
    if isinstance(event, BlockChanged):
        value["before"], value["after"] = _view_to_json(event.before), _view_to_json(event.after)
    return value


def _event_from_json(value: dict[str, Any]) -> PoolEvent:
    _check(value, int, _I64, "seq")
    _check(value, int, _I32, "step")
    _check(value, str, None, "cause", "request_id", "conversation_id")
    if "kind" in value:
        _check(value, int, _COUNT, "block_id")
        _check(value, int, _I32, "source_block_id")
        value["kind"] = BlockEventKind(value["kind"])
        value["before"] = _view_from_json(value["before"])
        value["after"] = _view_from_json(value["after"])
        return BlockChanged(**value)
    _check(value, int, _COUNT, "start")
    value["removed"] = _block_ids(value["removed"], _COUNT)
    value["added"] = _block_ids(value["added"], _COUNT)
    return TableChanged(**value)


def _check(value: dict[str, Any], kind: type, limits: range | None, *names: str) -> None:
    """Each of these values has exactly this type, and lies within the limits.

    Raises:
        KeyError: one is missing.
        ValueError: one is of another type or beyond the limits.
    """
    for name in names:
        found = value[name]
        # A bool is no number, though Python takes it for one.
        if type(found) is not kind or (limits is not None and found not in limits):
            raise ValueError(f"{name} {found!r}")


def _check_rate(value: dict[str, Any], *names: str) -> None:
    """As ``_check``, of numbers that need not be whole. Python reads NaN and infinity too."""
    for name in names:
        found = value[name]
        if type(found) not in (int, float) or not 0 <= found < _I64.stop:
            raise ValueError(f"{name} {found!r}")


def _block_ids(value: list[Any], limits: range) -> tuple[int, ...]:
    for block_id in value:
        if type(block_id) is not int or block_id not in limits:
            raise ValueError(f"block {block_id!r}")
    return tuple(value)


def _view_to_json(view: BlockView) -> list[Any]:
    return [view.state, view.ref_count, view.block_hash.hex(), view.owner, view.fill, view.pins]


def _view_from_json(value: list[Any]) -> BlockView:
    state, ref_count, block_hash, owner, fill, pins = value
    numbers = {"ref_count": ref_count, "fill": fill, "pins": pins}
    _check(numbers, int, _U16, "ref_count", "fill", "pins")
    _check({"owner": owner}, str, None, "owner")
    packed = bytes.fromhex(block_hash)
    if len(packed) not in (0, _COLUMN_BYTES["block_hash"]):
        raise ValueError(f"block_hash {block_hash!r}")
    return BlockView(BlockState(state), ref_count, packed, owner, fill, pins)


def _snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    value = {field.name: getattr(snapshot, field.name) for field in fields(snapshot)}
    value["pool"] = {f.name: getattr(snapshot.pool, f.name).hex() for f in fields(PoolColumns)}
    value["requests"] = [
        {field.name: getattr(row, field.name) for field in fields(row)} for row in snapshot.requests
    ]
    return value


def _snapshot_from_json(value: dict[str, Any]) -> Snapshot:
    _check(value, int, _I64, "last_seq", "block_bytes", "total_computed_tokens")
    _check(value, int, _I64, "total_cached_tokens", "invariant_violations")
    _check(value, int, _I32, "step")
    _check(value, int, _COUNT, "num_blocks", "watermark_blocks", "context_length")
    _check(value, int, _COUNT, "num_used", "num_cached", "num_free")
    _check(value, int, _U16[1:], "block_size")
    _check(value, str, None, "invariant_message")
    _check_rate(value, "time_s", "decode_tokens_per_s", "prefill_tokens_per_s")
    owners = tuple(value["owners"])
    if not all(type(owner) is str for owner in owners):
        raise ValueError(f"owners {owners!r}")
    rows = [_row_from_json(row, value["num_blocks"]) for row in value["requests"]]
    changed = {
        "owners": owners,
        "pool": _columns_from_json(value["pool"], value["num_blocks"], len(owners)),
        "requests": tuple(rows),
    }
    return Snapshot(**{**value, **changed})


def _row_from_json(value: dict[str, Any], num_blocks: int) -> RequestRow:
    _check(value, str, None, "request_id", "conversation_id", "phase", "waits_for")
    _check(value, int, _COUNT, "num_tokens", "num_prompt_tokens", "num_computed_tokens")
    _check(value, int, _COUNT, "num_cached_tokens", "blocks_short")
    block_table = _block_ids(value["block_table"], range(num_blocks))
    return RequestRow(**{**value, "block_table": block_table})


def _columns_from_json(value: dict[str, str], num_blocks: int, num_owners: int) -> PoolColumns:
    columns = {name: bytes.fromhex(column) for name, column in value.items()}
    for name, width in _COLUMN_BYTES.items():
        if len(columns[name]) != num_blocks * width:
            raise ValueError(f"{name} has {len(columns[name])} bytes for {num_blocks} blocks")
    if max(columns["state"], default=0) > USED:
        raise ValueError(f"state {max(columns['state'])}")
    for owner in set(struct.unpack(f"<{num_blocks}i", columns["owner"])):
        if not -1 <= owner < num_owners:
            raise ValueError(f"owner {owner} of {num_owners}")
    return PoolColumns(**columns)
