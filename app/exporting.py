"""A conversation as a file: Markdown to read, JSON to keep. Qt-free.

The JSON holds the whole tree with the parameters of every answer; ``app.exporting_import`` reads it
back. Exact token ids stay out: they are of use to one model only, and the text gives them again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from app.conversation import USER, Conversation, Message
from app.file_names import legal_name

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

FORMAT = "quire-conversations"
FORMAT_VERSION = 1


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
    return "".join(json_parts(conversations))


def json_parts(conversations: Iterable[Conversation]) -> Iterator[str]:
    """The same in parts, one for each conversation, for a file that is written bit by bit."""
    yield f'{{\n "format": {json.dumps(FORMAT)},\n "version": {FORMAT_VERSION},\n'
    yield ' "conversations": ['
    before = "\n"
    for conversation in conversations:
        yield before + json.dumps(_conversation(conversation), ensure_ascii=False, indent=1)
        before = ",\n"
    yield "\n ]\n}\n"


def file_name(conversation: Conversation, suffix: str) -> str:
    """A name that every system takes, from the title."""
    return legal_name(conversation.title, suffix)


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
        "attachments": [asdict(attachment) for attachment in conversation.attachments],
        "pinned": conversation.pinned,
        "archived": conversation.archived,
        "folder": conversation.folder,
        "tags": list(conversation.tags),
        "params": None if conversation.params is None else asdict(conversation.params),
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
            "system_prompt_key": message.system_prompt_key,
            "facts": message.facts,
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
    if "```" not in content and "~~~" not in content:
        return content
    tokens = _block_parser().parse(content)
    # What is open within a list or a quotation ends with it.
    fence = tokens[-1] if tokens else None
    if fence is None or fence.type != "fence" or fence.map is None:
        return content
    mark, (first, last) = fence.markup, fence.map
    end = re.escape(mark) + re.escape(mark[0])
    is_closed = last - first > 1 and re.fullmatch(f" {{0,3}}{end}*", content.split("\n")[-1])
    return content if is_closed else f"{content}\n{mark}"


@lru_cache(maxsize=1)
def _block_parser() -> MarkdownIt:
    """Tells blocks apart and does not look into them."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False})
    parser.core.ruler.disable("inline")
    return parser
