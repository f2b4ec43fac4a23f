"""Conversations and messages as rows of the database, and back. Qt-free."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.conversation import Conversation, Message, MessageStatus
from engine.api.errors import ErrorInfo
from engine.api.events import RequestUsage
from engine.api.params import OverflowPolicy, SamplingParams, TurnTokens

_LOG = logging.getLogger(__name__)

CONVERSATION_COLUMNS = (
    "conversation_id",
    "title",
    "title_is_automatic",
    "number",
    "system_prompt",
    "is_open",
    "active_leaf_id",
    "forked_from_id",
    "draft",
    "created_at",
    "updated_at",
    "overflow",
    "pinned",
    "archived",
    "folder",
    "tags",
    "deleted_at",
    "params",
    "prompt_id",
)
MESSAGE_COLUMNS = (
    "message_id",
    "conversation_id",
    "parent_id",
    "role",
    "content",
    "status",
    "created_at",
    "prompt_ids",
    "output_ids",
    "covered_chars",
    "fingerprint",
    "usage",
    "error",
    "params",
    "seed",
    "model",
    "finish_reason",
    "length_limit",
    "system_prompt_key",
    "num_dropped",
    "facts",
)


def upsert_sql(table: str, columns: Sequence[str]) -> str:
    """Inserts a row or changes it in place; the first column is the key.

    Not REPLACE, which would delete the row first and its children with it.
    """
    key, *others = columns
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    marks = ", ".join("?" * len(columns))
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) "
        f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
    )


def conversation_row(conversation: Conversation) -> tuple[Any, ...]:
    """Values of CONVERSATION_COLUMNS."""
    return (
        conversation.conversation_id,
        conversation.title,
        int(conversation.title_is_automatic),
        conversation.number,
        conversation.system_prompt,
        int(conversation.is_open),
        conversation.active_leaf_id,
        conversation.forked_from_id,
        conversation.draft,
        conversation.created_at,
        conversation.updated_at,
        conversation.overflow.value,
        int(conversation.pinned),
        int(conversation.archived),
        conversation.folder,
        _tags_text(conversation.tags),
        conversation.deleted_at,
        _params_text(conversation.params),
        conversation.prompt_id,
    )


def message_row(conversation_id: str, message: Message) -> tuple[Any, ...]:
    """Values of MESSAGE_COLUMNS."""
    turn = message.turn
    return (
        message.message_id,
        conversation_id,
        message.parent_id,
        message.role,
        message.content,
        message.status.value,
        message.created_at,
        None if turn is None else pack_ids(turn.prompt_ids),
        None if turn is None else pack_ids(turn.output_ids),
        None if turn is None else turn.covered_chars,
        None if turn is None else turn.fingerprint,
        None if message.usage is None else json.dumps(asdict(message.usage)),
        None if message.error is None else json.dumps(asdict(message.error)),
        _params_text(message.params),
        None if message.seed is None else str(message.seed),
        message.model,
        message.finish_reason,
        message.limit,
        message.system_prompt_key,
        message.num_dropped,
        json.dumps(message.facts, ensure_ascii=False),
    )


def conversation_from_row(row: sqlite3.Row) -> Conversation:
    """A conversation without its messages."""
    conversation = Conversation(
        conversation_id=row["conversation_id"],
        title=row["title"],
        title_is_automatic=bool(row["title_is_automatic"]),
        number=row["number"],
        system_prompt=row["system_prompt"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        is_open=bool(row["is_open"]),
        active_leaf_id=row["active_leaf_id"],
        forked_from_id=row["forked_from_id"],
        draft=row["draft"],
        overflow=_overflow(row["overflow"]),
        pinned=bool(row["pinned"]),
        archived=bool(row["archived"]),
        folder=row["folder"],
        tags=tags_from_text(row["tags"]),
        deleted_at=row["deleted_at"],
        prompt_id=row["prompt_id"],
    )
    _fill(conversation, conversation.conversation_id, _CONVERSATION_DETAILS, row)
    return conversation


def message_from_row(row: sqlite3.Row) -> Message:
    """A message. Its text always comes back; a detail that cannot be read is left out."""
    message = Message(
        role=row["role"],
        content=row["content"],
        parent_id=row["parent_id"],
        message_id=row["message_id"],
        status=MessageStatus.INTERRUPTED,
        created_at=row["created_at"],
        model=row["model"],
        finish_reason=row["finish_reason"],
        limit=row["length_limit"],
        system_prompt_key=row["system_prompt_key"],
        num_dropped=max(0, row["num_dropped"]),
    )
    _fill(message, message.message_id, _DETAILS, row)
    return message


def tags_from_text(text: str) -> tuple[str, ...]:
    """Tags as they are stored; none if they cannot be read."""
    if text == "[]":
        return ()
    try:
        return tuple(str(tag) for tag in json.loads(text))
    except (ValueError, TypeError) as error:
        _LOG.warning("tags left out: %s", error)
        return ()


def stored_value(name: str, value: Any) -> Any:
    """How an attribute of a conversation is stored in its column.

    Raises:
        ValueError: there is no such column, or it is the key.
    """
    if name not in CONVERSATION_COLUMNS[1:]:
        raise ValueError(f"a conversation has no column {name}")
    write = _CONVERSATION_VALUES.get(name)
    return value if write is None else write(value)


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids as bytes: the width of one id (2 or 4), then the ids, little-endian."""
    width = 2 if max(ids, default=0) < 1 << 16 else 4
    packed = array("H" if width == 2 else "I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return bytes([width]) + packed.tobytes()


def unpack_ids(blob: bytes) -> tuple[int, ...]:
    """Undoes ``pack_ids``.

    Raises:
        ValueError: these are not packed ids.
    """
    if not blob or blob[0] not in (2, 4) or (len(blob) - 1) % blob[0]:
        raise ValueError("not packed token ids")
    ids = array("H" if blob[0] == 2 else "I")
    ids.frombytes(blob[1:])
    if sys.byteorder == "big":
        ids.byteswap()
    return tuple(ids)


def _fill(
    target: Conversation | Message,
    key: str,
    details: Mapping[str, Callable[[sqlite3.Row], object]],
    row: sqlite3.Row,
) -> None:
    for name, read in details.items():
        try:
            setattr(target, name, read(row))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            _LOG.warning("%s: %s left out: %s", key, name, error)


def _overflow(value: str) -> OverflowPolicy:
    try:
        return OverflowPolicy(value)
    except ValueError:
        # Of a version with other policies; this one never drops anything.
        _LOG.warning("unknown overflow policy %r", value)
        return OverflowPolicy.STOP


def _turn(row: sqlite3.Row) -> TurnTokens | None:
    if row["prompt_ids"] is None or row["output_ids"] is None:
        return None
    prompt_ids, output_ids = unpack_ids(row["prompt_ids"]), unpack_ids(row["output_ids"])
    return TurnTokens(prompt_ids, output_ids, row["covered_chars"], row["fingerprint"])


def _usage(row: sqlite3.Row) -> RequestUsage | None:
    stored = _loaded(row["usage"])
    return None if stored is None else RequestUsage(**stored)


def _params(row: sqlite3.Row) -> SamplingParams | None:
    stored = _loaded(row["params"])
    if stored is None:
        return None
    return SamplingParams(**(stored | {"stop": tuple(stored["stop"])}))


def _params_text(params: SamplingParams | None) -> str | None:
    return None if params is None else json.dumps(asdict(params))


def _tags_text(tags: Sequence[str]) -> str:
    return json.dumps(list(tags), ensure_ascii=False)


def _facts(row: sqlite3.Row) -> dict[str, str | int | float]:
    return {str(name): value for name, value in json.loads(row["facts"]).items()}


def _error(row: sqlite3.Row) -> ErrorInfo | None:
    stored = _loaded(row["error"])
    if stored is None:
        return None
    numbers = tuple((str(name), value) for name, value in stored["numbers"])
    return ErrorInfo(stored["code"], stored["message"], stored["action"], numbers)


def _loaded(text: str | None) -> dict[str, Any] | None:
    return None if text is None else json.loads(text)


# What a damaged row, or one of a version with other fields, may fail at.
_CONVERSATION_VALUES: dict[str, Callable[[Any], Any]] = {
    "title_is_automatic": int,
    "is_open": int,
    "overflow": lambda overflow: overflow.value,
    "pinned": int,
    "archived": int,
    "tags": _tags_text,
    "params": _params_text,
}
_CONVERSATION_DETAILS: dict[str, Callable[[sqlite3.Row], object]] = {
    "params": _params,
}
_DETAILS: dict[str, Callable[[sqlite3.Row], object]] = {
    "status": lambda row: MessageStatus(row["status"]),
    "turn": _turn,
    "usage": _usage,
    "error": _error,
    "params": _params,
    "facts": _facts,
    "seed": lambda row: None if row["seed"] is None else int(row["seed"]),
}
