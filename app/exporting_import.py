"""Conversations from a file: our own JSON, or ChatGPT's ``conversations.json``. Qt-free.

A file is read whole or not at all. Messages and conversations get new ids, so that a file may be
read in twice, and beside the conversation that it came from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.app_error import AppError
from app.conversation import (
    ASSISTANT,
    USER,
    Conversation,
    Message,
    MessageStatus,
    automatic_title,
    new_id,
    storable,
)
from app.exporting import FORMAT, FORMAT_VERSION
from app.exporting_chatgpt import chatgpt_conversation, is_chatgpt
from engine.api.errors import EngineError, ErrorInfo
from engine.api.events import RequestUsage
from engine.api.params import UINT64_MAX, OverflowPolicy, SamplingParams

MAX_BYTES = 1 << 30


class ImportFileError(AppError):
    code = "import_file"
    action = (
        "Nothing was changed. Choose a file that Quire exported, or the conversations.json of a "
        "ChatGPT export."
    )


def read_file(path: Path) -> list[Conversation]:
    """The conversations of a file, closed, with ids of their own.

    Raises:
        ImportFileError: it cannot be read, or something in it is not as it should be.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ImportFileError(f"{path.name} is larger than 1 GB.", path=str(path))
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ImportFileError(f"{path.name} cannot be read: {reason}.", path=str(path)) from error
    try:
        return read_conversations(data)
    except ImportFileError as error:
        raise ImportFileError(f"{path.name}: {error.message}", path=str(path)) from error


def read_conversations(data: bytes) -> list[Conversation]:
    """The same for what was in a file.

    Raises:
        ImportFileError: as above.
    """
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ImportFileError(f"This is not JSON: {error}", reason=str(error)) from error
    if isinstance(document, dict) and "format" in document:
        found = _ours(document)
    elif is_chatgpt(document):
        entries = document if isinstance(document, list) else [document]
        found = _each(entries, chatgpt_conversation)
    else:
        raise ImportFileError("These are not conversations in a form that Quire knows.")
    found = [conversation for conversation in found if conversation.messages]
    if not found:
        raise ImportFileError("There are no messages in it.")
    return found


def _ours(document: dict[str, Any]) -> list[Conversation]:
    if document["format"] != FORMAT:
        raise ImportFileError("These are not conversations in a form that Quire knows.")
    version = document.get("version")
    if version != FORMAT_VERSION:
        raise ImportFileError(
            f"It is of version {version} of the format; this Quire knows {FORMAT_VERSION}."
        )
    entries = document.get("conversations")
    if not isinstance(entries, list):
        raise ImportFileError("It has no list of conversations.")
    return _each(entries, _conversation)


def _each(entries: list[Any], read: Any) -> list[Conversation]:
    found = []
    for number, entry in enumerate(entries, 1):
        try:
            found.append(read(entry))
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
            EngineError,
        ) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ImportFileError(
                f"Conversation {number} of {len(entries)} is not as it should be: {what}",
                number=number,
                reason=what,
            ) from error
    return found


def _conversation(entry: Mapping[str, Any]) -> Conversation:
    ids = {_text(values["id"]): new_id() for values in entry["messages"]}
    if len(ids) != len(entry["messages"]):
        raise ValueError("two messages have the same id")
    conversation = Conversation(
        title=automatic_title(_text(entry["title"])),
        title_is_automatic=bool(entry.get("title_is_automatic", True)),
        system_prompt=_text(entry.get("system_prompt", "")),
        created_at=_moment(entry["created_at"]),
        updated_at=_moment(entry["updated_at"]),
        overflow=OverflowPolicy(entry.get("overflow", "stop")),
        draft=_text(entry.get("draft", "")),
        is_open=False,
    )
    for values in entry["messages"]:
        message = _message(values)
        parent = values["parent"]
        if parent is not None and parent not in ids:
            raise ValueError(f"the message before {values['id']} is missing")
        message.message_id = ids[values["id"]]
        message.parent_id = None if parent is None else ids[parent]
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
        num_dropped=max(0, int(values.get("num_dropped", 0))),
    )
    if values.get("seed") is not None:
        message.seed = int(values["seed"])
        if not 0 <= message.seed <= UINT64_MAX:
            raise ValueError(f"the seed {message.seed} is out of range")
    if values.get("params") is not None:
        message.params = SamplingParams(
            **(values["params"] | {"stop": tuple(map(_text, values["params"]["stop"]))})
        )
    if values.get("usage") is not None:
        message.usage = RequestUsage(**{n: _number(v) for n, v in values["usage"].items()})
    if values.get("error") is not None:
        error = values["error"]
        numbers = tuple(
            (_text(name), value if isinstance(value, str) else _number(value))
            for name, value in error["numbers"]
        )
        message.error = ErrorInfo(
            _text(error["code"]), _text(error["message"]), _text(error["action"]), numbers
        )
    return message


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return storable(value)


def _number(value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is not a number")
    return value


def _moment(value: object) -> float:
    """Seconds since the epoch."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise ValueError(f"{value!r:.40} is not a moment")
    return float(value) or time.time()
