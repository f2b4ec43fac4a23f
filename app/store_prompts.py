"""The library of named system prompts. Qt-free."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from app.conversation import new_id
from app.store_rows import upsert_sql
from app.store_writer import StoreWriter

_COLUMNS = ("prompt_id", "name", "text", "created_at", "updated_at")
_SAVE = upsert_sql("system_prompts", _COLUMNS)
_DEFAULT_STATE = "default_prompt_id"


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """A named system prompt. Times in seconds since the epoch."""

    name: str
    text: str
    prompt_id: str = field(default_factory=new_id)
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)


class StoredPrompts:
    """Named system prompts, one of which may be the default. Kept in memory, saved in passing."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        writer: StoreWriter,
        state: Callable[[str], str],
        set_state: Callable[[str, str], None],
    ) -> None:
        """Reads all from ``connection``. ``state``, ``set_state``: small texts by name."""
        self._writer = writer
        self._state = state
        self._set_state = set_state
        rows = connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM system_prompts")
        self._prompts = {
            row[0]: SystemPrompt(row[1], row[2], row[0], row[3], row[4]) for row in rows
        }

    def all(self) -> list[SystemPrompt]:
        """By name, whatever the case."""
        return sorted(self._prompts.values(), key=lambda p: (p.name.casefold(), p.created_at))

    def get(self, prompt_id: str) -> SystemPrompt | None:
        """The prompt with this id, or None."""
        return self._prompts.get(prompt_id)

    def save(self, prompt: SystemPrompt) -> None:
        """Adds a prompt or changes the one with its id."""
        self._prompts[prompt.prompt_id] = prompt
        values = tuple(getattr(prompt, name) for name in _COLUMNS)

        def job(connection: sqlite3.Connection) -> None:
            connection.execute(_SAVE, values)

        self._writer.put(("prompt", prompt.prompt_id), job)

    def delete(self, prompt_id: str) -> None:
        """Deletes a prompt; saving it again brings it back. Conversations keep their texts."""
        self._prompts.pop(prompt_id, None)

        def job(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM system_prompts WHERE prompt_id = ?", (prompt_id,))

        self._writer.put(("prompt", prompt_id), job)

    @property
    def default(self) -> SystemPrompt | None:
        """What new conversations begin with; None if no prompt of the library is chosen."""
        return self._prompts.get(self._state(_DEFAULT_STATE))

    def set_default(self, prompt_id: str) -> None:
        """Chooses the default; empty for none of the library."""
        self._set_state(_DEFAULT_STATE, prompt_id)
