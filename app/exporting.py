"""A conversation as a file: Markdown to read, JSON to keep. Qt-free.

The JSON holds the whole tree with the parameters of every answer; ``app.exporting_import`` reads it
back. Exact token ids stay out: they are of use to one model only, and the text gives them again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.conversation import USER, Conversation, Message

FORMAT = "quire-conversations"
FORMAT_VERSION = 1
_NAME_LENGTH = 80
_UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f]+')
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


def to_markdown(conversation: Conversation, you: str = "You", answer: str = "Answer") -> str:
    """The shown branch. ``you`` and ``answer`` head the messages.

    Messages are Markdown already; a code block that an answer left open is closed, so that it does
    not take the rest of the file in.
    """
    parts = [f"# {_one_line(conversation.title) or 'Quire'}"]
    if conversation.system_prompt:
        quoted = "\n".join(f"> {line}".rstrip() for line in conversation.system_prompt.splitlines())
        parts.append(quoted)
    for message in conversation.path():
        who = you if message.role == USER else answer
        details = [time.strftime("%Y-%m-%d %H:%M", time.localtime(message.created_at))]
        if message.model:
            details.insert(0, _one_line(message.model))
        parts.append(f"## {who}\n\n*{' · '.join(details)}*")
        if message.content:
            parts.append(_closed(message.content))
    return "\n\n".join(parts) + "\n"


def to_json(conversations: Sequence[Conversation]) -> str:
    """All branches of the conversations, as ``read_conversations`` takes them."""
    document = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "conversations": [_conversation(conversation) for conversation in conversations],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def file_name(conversation: Conversation, suffix: str) -> str:
    """A name that every system takes, from the title."""
    stem = _UNSAFE.sub(" ", conversation.title)
    stem = " ".join(stem.split())[:_NAME_LENGTH].strip(". ")
    # Windows keeps these names for its devices.
    if not stem or re.fullmatch(r"(?i)(con|prn|aux|nul|(com|lpt)[0-9])(\..*)?", stem):
        stem = f"Quire {stem}".strip()
    return f"{stem}{suffix}"


def _conversation(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.conversation_id,
        "title": conversation.title,
        "title_is_automatic": conversation.title_is_automatic,
        "system_prompt": conversation.system_prompt,
        "created_at": conversation.created_at,
        "updated_at": conversation.updated_at,
        "overflow": conversation.overflow.value,
        "draft": conversation.draft,
        "active_leaf": conversation.active_leaf_id,
        "messages": [_message(message) for message in conversation.messages.values()],
    }


def _message(message: Message) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": message.message_id,
        "parent": message.parent_id,
        "role": message.role,
        "content": message.content,
        "status": message.status.value,
        "created_at": message.created_at,
    }
    if message.role != USER:
        values |= {
            "model": message.model,
            "finish_reason": message.finish_reason,
            "limit": message.limit,
            "num_dropped": message.num_dropped,
            # Unsigned 64 bits, more than a number of other JSON readers holds.
            "seed": None if message.seed is None else str(message.seed),
            "params": None if message.params is None else asdict(message.params),
            "usage": None if message.usage is None else asdict(message.usage),
            "error": None if message.error is None else asdict(message.error),
        }
    return values


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _closed(content: str) -> str:
    content = content.rstrip()
    fence = ""
    for found in _FENCE.findall(content):
        if not fence:
            fence = found
        elif found[0] == fence[0] and len(found) >= len(fence):
            fence = ""
    return f"{content}\n{fence}" if fence else content
