"""Conversations as ChatGPT exports them: a mapping from node ids to messages. Qt-free.

Nodes are of many kinds. Questions and answers in words are taken over; what lies between them
(system nodes, tools, the model's searches, empty nodes) is left out, and what follows it follows
the message before it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from app.conversation import ASSISTANT, USER, Conversation, Message, storable
from app.exporting_read import is_moment
from app.titles import clean_title, title_of


def is_chatgpt(entry: object) -> bool:
    """True for one conversation."""
    return isinstance(entry, dict) and "mapping" in entry


def chatgpt_conversation(entry: Mapping[str, Any]) -> Conversation:
    """One conversation, closed, with all branches that have messages in words.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: something is not as it should be.
    """
    mapping = entry["mapping"]
    if not isinstance(mapping, dict):
        raise TypeError("its mapping is not an object")
    created_at = _moment(entry.get("create_time"), time.time())
    conversation = Conversation(
        title=clean_title(storable(str(entry.get("title") or ""))),
        created_at=created_at,
        updated_at=_moment(entry.get("update_time"), created_at),
        pinned=entry.get("is_starred") is True,
        archived=entry.get("is_archived") is True,
        is_open=False,
    )
    tree = _Tree(mapping)
    for node_id in _parents_first(mapping):
        parent_id = tree.kept(mapping[node_id].get("parent"))
        before = None if parent_id is None else conversation.messages[parent_id]
        moment = created_at if before is None else before.created_at
        message = _message(mapping[node_id].get("message"), parent_id, moment)
        if message is None:
            tree.skip(node_id)
        elif before is not None and before.role == message.role and tree.is_only_way(node_id):
            # One answer in several nodes, with tools between them.
            before.content += f"\n\n{message.content}"
            tree.keep(node_id, before.message_id)
        else:
            conversation.messages[message.message_id] = message
            tree.keep(node_id, message.message_id)
    current = entry.get("current_node")
    conversation.active_leaf_id = tree.kept(current)
    if conversation.active_leaf_id is not None:
        conversation.active_leaf_id = conversation.newest_leaf(conversation.active_leaf_id)
    conversation.heal()
    if not conversation.title:
        conversation.title = title_of(m.content for m in conversation.path() if m.role == USER)
    return conversation


def _parents_first(mapping: Mapping[str, Any]) -> list[str]:
    """Node ids in an order in which every parent comes before its children.

    Raises:
        ValueError: a parent is missing, or nodes follow each other in a circle.
    """
    ordered: dict[str, None] = {}
    for start in mapping:
        chain: list[str] = []
        node_id: str | None = start
        while node_id is not None and node_id not in ordered:
            if node_id not in mapping:
                raise ValueError(f"the node {node_id} is missing")
            if len(chain) > len(mapping):
                raise ValueError("its messages follow each other in a circle")
            chain.append(node_id)
            node_id = mapping[node_id].get("parent")
        ordered.update(dict.fromkeys(reversed(chain)))
    return list(ordered)


class _Tree:
    """Which message each node became, or stands behind."""

    def __init__(self, mapping: Mapping[str, Any]) -> None:
        self._mapping = mapping
        self._messages: dict[str, str | None] = {}
        self._skipped: set[str] = set()
        self._following = Counter(node.get("parent") for node in mapping.values())

    def keep(self, node_id: str, message_id: str) -> None:
        self._messages[node_id] = message_id

    def skip(self, node_id: str) -> None:
        self._messages[node_id] = self.kept(self._mapping[node_id].get("parent"))
        self._skipped.add(node_id)

    def kept(self, node_id: str | None) -> str | None:
        """Id of the message at a node or next above it; None if there is none."""
        return None if node_id is None else self._messages.get(node_id)

    def is_only_way(self, node_id: str) -> bool:
        """True if no branch begins between the message above a node and the node."""
        above = self._mapping[node_id].get("parent")
        while above in self._skipped:
            if self._following[above] > 1:
                return False
            above = self._mapping[above].get("parent")
        return self._following[above] == 1


def _message(
    values: Mapping[str, Any] | None, parent_id: str | None, moment: float
) -> Message | None:
    """The message of a node; None if it is not one that was said in words."""
    if not values:
        return None
    role = values["author"]["role"]
    content = values.get("content") or {}
    is_said = role == USER or (role == ASSISTANT and values.get("recipient", "all") == "all")
    kinds = ("text", "multimodal_text")
    if not is_said or content.get("content_type") not in kinds:
        return None
    metadata = values.get("metadata") or {}
    if metadata.get("is_visually_hidden_from_conversation"):
        return None
    text = _words(content.get("parts") or [])
    if not text.strip():
        return None
    return Message(
        role,
        storable(text),
        parent_id,
        # Never before its parent: versions are shown in the order of their times.
        created_at=max(_moment(values.get("create_time"), moment), 0.0),
        model=storable(str(metadata.get("model_slug") or "")) if role == ASSISTANT else "",
    )


def _words(parts: list[Any]) -> str:
    """Texts of the parts; what is no text is named, so that nothing vanishes silently."""
    words = []
    for part in parts:
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, dict):
            text = part.get("text")
            kind = str(part.get("content_type") or "attachment")
            words.append(text if isinstance(text, str) else f"[{kind}]")
        else:
            raise TypeError(f"{part!r:.40} is not a part of a message")
    return "\n\n".join(word for word in words if word)


def _moment(value: object, otherwise: float) -> float:
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_moment(value):
        raise ValueError(f"{value!r:.40} is not a moment")
    return float(value)
