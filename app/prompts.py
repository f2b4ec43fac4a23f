"""The library of named system prompts, and which conversations use them. GUI thread only."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.bridge import Bridge
from app.conversation import Conversation, storable
from app.i18n import tr
from app.prompt_costs import PromptCosts
from app.store import Store
from app.store_prompts import SystemPrompt
from app.titles import clean_title

if TYPE_CHECKING:
    from app.session import Session

_SEEDED_STATE = "prompts_begun"
_KEPT_DELETIONS = 20


@dataclass(frozen=True, slots=True)
class DeletedPrompt:
    """``was_default``: new conversations began with it."""

    prompt: SystemPrompt
    was_default: bool


class Prompts(QObject):
    """Conversations keep the text that they were given; only empty ones follow a prompt's changes.

    Signals:
        changed(): a prompt came, went, or reads differently, or another one is the default.
        library_requested(prompt_id): somebody wants to see the library; empty for no prompt of it.
    """

    changed = Signal()
    library_requested = Signal(str)

    def __init__(self, bridge: Bridge, store: Store, session: Session) -> None:
        super().__init__(session)
        self._stored = store.prompts
        self._session = session
        self._deleted: list[DeletedPrompt] = []
        self._bridge = bridge
        if not self._stored.all() and not store.state(_SEEDED_STATE):
            store.set_state(_SEEDED_STATE, "1")
            first = SystemPrompt(tr("Assistant"), session.default_system_prompt)
            self._stored.save(first)
            self._stored.set_default(first.prompt_id)
        session.default_system_prompt_changed.connect(self.changed)

    # --- reading ---

    def all(self) -> list[SystemPrompt]:
        """All prompts by name."""
        return self._stored.all()

    def get(self, prompt_id: str) -> SystemPrompt | None:
        """The prompt with this id, or None."""
        return self._stored.get(prompt_id)

    @property
    def default(self) -> SystemPrompt | None:
        """What new conversations begin with; None if that text is in no prompt of the library."""
        text = self._session.default_system_prompt
        chosen = self._stored.default
        if chosen is not None and chosen.text == text:
            return chosen
        return self.with_text(text)

    def with_text(self, text: str) -> SystemPrompt | None:
        """A prompt that reads so, or None."""
        return next((prompt for prompt in self.all() if prompt.text == text), None)

    def of(self, conversation: Conversation) -> SystemPrompt | None:
        """The prompt that a conversation was given, as it reads now, or None."""
        known = self._stored.get(conversation.prompt_id)
        return known or self.with_text(conversation.system_prompt)

    def sharers(self, text: str) -> list[Conversation]:
        """Open conversations that begin with ``text``: they share its blocks."""
        return [c for c in self._open() if c.system_prompt == text] if text else []

    def behind(self, prompt: SystemPrompt) -> list[Conversation]:
        """Open conversations that were given the prompt when it read differently."""
        given = (c for c in self._open() if c.prompt_id == prompt.prompt_id)
        return [c for c in given if c.system_prompt != prompt.text]

    def costs(self, owner: QObject) -> PromptCosts:
        """Answers questions of ``owner`` about what another prompt would cost, while it lives."""
        return PromptCosts(self._bridge, self._session, owner)

    # --- changing ---

    def add(self, name: str, text: str) -> SystemPrompt:
        """Adds a prompt; a name that is taken gets a number."""
        prompt = SystemPrompt(self._free_name(clean_title(storable(name))), storable(text))
        self._stored.save(prompt)
        self.changed.emit()
        return prompt

    def change(self, prompt_id: str, name: str, text: str) -> None:
        """Another name or text. Empty open conversations with the old text follow, and so does the
        default.
        """
        old = self._stored.get(prompt_id)
        if old is None:
            return
        name, text = clean_title(storable(name)) or old.name, storable(text)
        if (old.name, old.text) == (name, text):
            return
        was_default = self.default == old
        self._stored.save(replace(old, name=name, text=text, updated_at=time.time()))
        if was_default:
            self._stored.set_default(prompt_id)
            self._session.set_default_system_prompt(text)
        for conversation in list(self._open()):
            if conversation.messages or conversation.prompt_id != prompt_id:
                continue
            if conversation.system_prompt == old.text:
                self._session.use_system_prompt(conversation.conversation_id, text, prompt_id)
        self.changed.emit()

    def set_default(self, prompt_id: str) -> None:
        """New conversations begin with this prompt from now on."""
        prompt = self._stored.get(prompt_id)
        if prompt is not None:
            self._stored.set_default(prompt_id)
            self._session.set_default_system_prompt(prompt.text)
            self.changed.emit()

    def apply(self, prompt_id: str, conversation_ids: Iterable[str]) -> None:
        """Gives the prompt, as it reads now, to open conversations, from the next answer on."""
        prompt = self._stored.get(prompt_id)
        if prompt is not None:
            for conversation_id in conversation_ids:
                self._session.use_system_prompt(conversation_id, prompt.text, prompt_id)
            self.changed.emit()

    def delete(self, prompt_id: str) -> None:
        """Takes a prompt out of the library; conversations keep their texts."""
        prompt = self._stored.get(prompt_id)
        if prompt is not None:
            self._deleted.append(DeletedPrompt(prompt, self.default == prompt))
            del self._deleted[:-_KEPT_DELETIONS]
            self._stored.delete(prompt_id)
            self.changed.emit()

    def undo_delete(self) -> SystemPrompt | None:
        """Brings back the prompt that was deleted last; None if there is none."""
        if not self._deleted:
            return None
        deleted = self._deleted.pop()
        self._stored.save(deleted.prompt)
        if deleted.was_default:
            self._stored.set_default(deleted.prompt.prompt_id)
        self.changed.emit()
        return deleted.prompt

    def _open(self) -> list[Conversation]:
        return [self._session.conversation(i) for i in self._session.conversation_ids()]

    def _free_name(self, name: str) -> str:
        taken = {prompt.name.casefold() for prompt in self.all()}
        wanted = name or tr("New prompt")
        numbered = (f"{wanted} {n}" for n in range(2, len(taken) + 3))
        return next(n for n in (wanted, *numbered) if n.casefold() not in taken)
