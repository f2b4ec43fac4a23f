"""One conversation of our own JSON, read back. Qt-free.

Messages and conversations get new ids, so that a file may be read in twice, and beside the
conversation that it came from.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from app.conversation import (
    ASSISTANT,
    REPEATS,
    USER,
    Attachment,
    Conversation,
    Message,
    MessageStatus,
    new_id,
    storable,
)
from app.settings import require_types
from app.titles import clean_title
from engine.api.errors import ErrorInfo
from engine.api.events import RequestUsage
from engine.api.params import UINT64_MAX, OverflowPolicy, SamplingParams

MAX_MOMENT_S = 3.2e10
"""In the year 2984. Windows knows no local time after the year 3000."""
_MAX_COUNT = 2**31 - 1


def our_conversation(entry: Mapping[str, Any]) -> Conversation:
    """The conversation of an entry, closed.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, OverflowError, EngineError: something is
            not as it should be.
    """
    ids = {_text(values["id"]): new_id() for values in entry["messages"]}
    if len(ids) != len(entry["messages"]):
        raise ValueError("two messages have the same id")
    conversation = Conversation(
        title=clean_title(_text(entry["title"])),
        title_is_automatic=bool(entry.get("title_is_automatic", True)),
        system_prompt=_text(entry.get("system_prompt", "")),
        created_at=_moment(entry["created_at"]),
        updated_at=_moment(entry["updated_at"]),
        overflow=OverflowPolicy(entry.get("overflow", "stop")),
        draft=_text(entry.get("draft", "")),
        pinned=bool(entry.get("pinned", False)),
        archived=bool(entry.get("archived", False)),
        folder=clean_title(_text(entry.get("folder", ""))),
        tags=tuple(map(_text, entry.get("tags", ()))),
        params=_params(entry.get("params")),
        attachments=tuple(
            Attachment(_text(one["name"]), _text(one["text"]))
            for one in entry.get("attachments", ())
        ),
        is_open=False,
    )
    for values in entry["messages"]:
        message = _message(values)
        parent = values["parent"]
        if parent is not None and parent not in ids:
            raise ValueError(f"the message before {values['id']} is missing")
        message.message_id = ids[values["id"]]
        message.parent_id = None if parent is None else ids[parent]
        if REPEATS in message.facts:
            first = str(message.facts[REPEATS])
            message.facts[REPEATS] = ids.get(first, first)
        conversation.messages[message.message_id] = message
    require_tree(conversation)
    conversation.active_leaf_id = ids.get(entry.get("active_leaf") or "")
    conversation.heal()
    return conversation


def require_tree(conversation: Conversation) -> None:
    """Raises ValueError if messages follow each other in a circle."""
    reached = {message.message_id for message in conversation.children(None)}
    waiting: dict[str, list[str]] = {}
    for message in conversation.messages.values():
        if message.parent_id is not None:
            waiting.setdefault(message.parent_id, []).append(message.message_id)
    todo = list(reached)
    while todo:
        following = waiting.get(todo.pop(), [])
        reached.update(following)
        todo += following
    if len(reached) != len(conversation.messages):
        raise ValueError("its messages follow each other in a circle")


def _message(values: Mapping[str, Any]) -> Message:
    role = values["role"]
    if role not in (USER, ASSISTANT):
        raise ValueError(f"the role {role!r} is unknown")
    message = Message(
        role,
        _text(values["content"]),
        status=MessageStatus(values.get("status", "done")),
        created_at=_moment(values["created_at"]),
        model=_text(values.get("model", "")),
        finish_reason=_text(values.get("finish_reason", "")),
        limit=_text(values.get("limit", "")),
        system_prompt_key=_text(values.get("system_prompt_key", "")),
        num_dropped=max(0, int(values.get("num_dropped", 0))),
    )
    if message.num_dropped > _MAX_COUNT:
        raise ValueError(f"{message.num_dropped} messages cannot have been dropped")
    if values.get("seed") is not None:
        message.seed = int(values["seed"])
        if not 0 <= message.seed <= UINT64_MAX:
            raise ValueError(f"the seed {message.seed} is out of range")
    message.params = _params(values.get("params"))
    message.facts = {
        _text(name): _text(value) if isinstance(value, str) else _number(value)
        for name, value in values.get("facts", {}).items()
    }
    if values.get("usage") is not None:
        message.usage = RequestUsage(**{n: _number(v) for n, v in values["usage"].items()})
    if values.get("error") is not None:
        error = values["error"]
        numbers = tuple(
            (_text(name), _text(value) if isinstance(value, str) else _number(value))
            for name, value in error["numbers"]
        )
        message.error = ErrorInfo(
            _text(error["code"]), _text(error["message"]), _text(error["action"]), numbers
        )
    return message


def _params(values: Mapping[str, Any] | None) -> SamplingParams | None:
    if values is None:
        return None
    params = SamplingParams(**{**values, "stop": tuple(map(_text, values["stop"]))})
    require_types(params, "")
    return params


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return storable(value)


def _number(value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is not a number")
    return value


def is_moment(seconds: float) -> bool:
    """Whether seconds since the epoch can be shown as a date on every system."""
    return 0 <= seconds < MAX_MOMENT_S


def _moment(value: object) -> float:
    """Seconds since the epoch."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_moment(value):
        raise ValueError(f"{value!r:.40} is not a moment")
    return float(value) or time.time()
