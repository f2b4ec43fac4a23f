"""Recordings of the pool: one JSON object a line (NDJSON), readable without the engine.

The first line is a header, the second the snapshot at which the recording starts, each further one
a pool event. Folding the events over the snapshot gives the pool at every step.
"""

from __future__ import annotations

import json
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
from engine.api.snapshot import PoolColumns, RequestRow, Snapshot

FORMAT = "quire-trace"
VERSION = 1


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
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"Line {number} of {path.name} is no snapshot: {error!r}.") from error
    return snapshot, _events(path.name, lines, snapshot.last_seq)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    # Decoded line by line: a text file decodes ahead and would blame a line far before the bad one.
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                value = json.loads(line.decode("utf-8"))
            except ValueError as error:
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
    if "kind" in value:
        value["kind"] = BlockEventKind(value["kind"])
        value["before"] = _view_from_json(value["before"])
        value["after"] = _view_from_json(value["after"])
        return BlockChanged(**value)
    value["removed"], value["added"] = tuple(value["removed"]), tuple(value["added"])
    return TableChanged(**value)


def _view_to_json(view: BlockView) -> list[Any]:
    return [view.state, view.ref_count, view.block_hash.hex(), view.owner, view.fill, view.pins]


def _view_from_json(value: list[Any]) -> BlockView:
    state, ref_count, block_hash, owner, fill, pins = value
    return BlockView(BlockState(state), ref_count, bytes.fromhex(block_hash), owner, fill, pins)


def _snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    value = {field.name: getattr(snapshot, field.name) for field in fields(snapshot)}
    value["pool"] = {f.name: getattr(snapshot.pool, f.name).hex() for f in fields(PoolColumns)}
    value["requests"] = [
        {field.name: getattr(row, field.name) for field in fields(row)} for row in snapshot.requests
    ]
    return value


def _snapshot_from_json(value: dict[str, Any]) -> Snapshot:
    columns = {name: bytes.fromhex(column) for name, column in value["pool"].items()}
    rows = [
        RequestRow(**{**row, "block_table": tuple(row["block_table"])}) for row in value["requests"]
    ]
    changed = {
        "owners": tuple(value["owners"]),
        "pool": PoolColumns(**columns),
        "requests": tuple(rows),
    }
    return Snapshot(**{**value, **changed})
