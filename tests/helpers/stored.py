"""Conversations that a test has put into a store."""

from __future__ import annotations

import sqlite3

from app.conversation import ASSISTANT, USER, Conversation, Message
from app.store import Store


def saved(store: Store, *contents: str) -> Conversation:
    """A stored conversation with these messages, users and answers in turn."""
    conversation = Conversation(system_prompt="Be brief.")
    store.save_conversation(conversation)
    for n, content in enumerate(contents):
        role = ASSISTANT if n % 2 else USER
        message = conversation.append(Message(role, content, created_at=float(n)))
        store.save_message(conversation.conversation_id, message)
    store.save_conversation(conversation)
    return conversation


def loaded(store: Store, conversation: Conversation) -> Conversation:
    assert store.flush()
    found = store.load_conversation(conversation.conversation_id)
    assert found is not None
    return found


def contents(conversation: Conversation) -> list[str]:
    return [message.content for message in conversation.path()]


def back_to_schema_3(connection: sqlite3.Connection) -> None:
    """Takes away what schema 4 added, and says so."""
    added = {
        "conversations": (
            *("pinned", "archived", "folder", "tags", "deleted_at", "params", "prompt_id"),
        ),
        "messages": ("deleted_at", "facts"),
    }
    for table, columns in added.items():
        connection.execute(f"DROP INDEX {table}_deleted")
        for column in columns:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    for table in ("system_prompts", "draft_attachments"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA user_version = 3")
