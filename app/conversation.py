"""Conversations as message trees. Qt-free."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum

from app.titles import is_small_talk, title_of
from engine.api.errors import ErrorInfo
from engine.api.events import RequestUsage
from engine.api.params import (
    ChatMessage,
    ContextPolicy,
    OverflowPolicy,
    SamplingParams,
    TurnTokens,
)

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
REPEATS = "repeats"
"""Fact of an answer: the id of the one that was run again."""


class MessageStatus(StrEnum):
    """``DONE`` for every user message. ``STOPPED``: by the user; ``INTERRUPTED``: the program
    ended.
    """

    DONE = "done"
    STREAMING = "streaming"
    INTERRUPTED = "interrupted"
    ERROR = "error"
    STOPPED = "stopped"


class UnknownMessageError(KeyError):
    """A message id that is not in this conversation."""


def new_id() -> str:
    """An id that is unique over all profiles."""
    return os.urandom(16).hex()


@dataclass(slots=True, eq=False)
class Message:
    """One node of a conversation's tree.

    ``parent_id`` is None for a first message. On answers: ``turn`` holds the exact ids of the turn,
    ``usage`` what it cost, ``finish_reason`` and ``limit`` as the engine reported them, ``seed``
    the seed that was used, ``model`` its name, ``system_prompt_key`` the system prompt it was
    made under, and ``num_dropped`` how many messages at the start of its branch were not read.
    ``facts``: what else is worth keeping about how it was made, by name. ``streamed_ids``: the ids
    of an answer's text so far, while it streams; they only grow.
    """

    role: str
    content: str
    parent_id: str | None = None
    message_id: str = field(default_factory=new_id)
    status: MessageStatus = MessageStatus.DONE
    created_at: float = field(default_factory=time.time)
    turn: TurnTokens | None = None
    usage: RequestUsage | None = None
    error: ErrorInfo | None = None
    params: SamplingParams | None = None
    seed: int | None = None
    model: str = ""
    finish_reason: str = ""
    limit: str = ""
    system_prompt_key: str = ""
    num_dropped: int = 0
    facts: dict[str, str | int | float] = field(default_factory=dict)
    streamed_ids: list[int] = field(default_factory=list, repr=False)

    def begin_stream(self, fingerprint: str) -> None:
        """Text comes from now on, in ids of the tokenizer with this fingerprint."""
        turn = self.turn if self.turn and self.turn.fingerprint == fingerprint else None
        self.streamed_ids = [] if turn is None else list(turn.output_ids)
        self.turn = TurnTokens((), tuple(self.streamed_ids), len(self.content), fingerprint)

    def partial_turn(self) -> TurnTokens | None:
        """The ids that came, for an answer that was cut off; the last of them may stand for text
        that did not come.
        """
        if self.turn is None or not self.streamed_ids:
            return self.turn
        fingerprint = self.turn.fingerprint
        return TurnTokens((), tuple(self.streamed_ids), len(self.content), fingerprint)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text that goes along with a draft. ``name``: of its file, empty for a paste."""

    name: str
    text: str


@dataclass(slots=True, eq=False)
class Conversation:
    """A tree of messages and the branch that is shown.

    ``number`` is 1-based, gives the hue, and does not change while the conversation is open.
    ``active_leaf_id``: last message of the shown branch, None while empty. ``forked_from_id``: the
    conversation it was copied from. ``draft``: text in the composer that is not sent yet.
    ``overflow``: what happens when it no longer fits into the model's context. ``params``: how its
    answers are sampled, None as the settings say. ``prompt_id``: the named system prompt that
    ``system_prompt`` was taken from, or empty. ``deleted_at``: None, or when it was deleted.
    ``attachments`` belong to the draft. ``shown_leaves``: by message id, the leaf that was shown
    when the branch through it was left, in this run.
    """

    conversation_id: str = field(default_factory=new_id)
    title: str = ""
    title_is_automatic: bool = True
    number: int = 1
    system_prompt: str = ""
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    is_open: bool = True
    active_leaf_id: str | None = None
    forked_from_id: str = ""
    draft: str = ""
    overflow: OverflowPolicy = OverflowPolicy.STOP
    pinned: bool = False
    archived: bool = False
    folder: str = ""
    tags: tuple[str, ...] = ()
    deleted_at: float | None = None
    params: SamplingParams | None = None
    prompt_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    messages: dict[str, Message] = field(default_factory=dict)
    shown_leaves: dict[str, str] = field(default_factory=dict, repr=False)

    def message(self, message_id: str) -> Message:
        """The message with this id.

        Raises:
            UnknownMessageError: it is not in this conversation.
        """
        try:
            return self.messages[message_id]
        except KeyError:
            raise UnknownMessageError(message_id) from None

    def path(self) -> list[Message]:
        """The shown branch, first message first."""
        return self.path_to(self.active_leaf_id)

    def path_to(self, message_id: str | None) -> list[Message]:
        """Messages from the first one down to ``message_id``, both included."""
        path: list[Message] = []
        seen: set[str] = set()
        while message_id is not None and message_id in self.messages and message_id not in seen:
            seen.add(message_id)
            message = self.messages[message_id]
            path.append(message)
            message_id = message.parent_id
        path.reverse()
        return path

    def children(self, message_id: str | None) -> list[Message]:
        """Messages that follow ``message_id`` (None: the first messages), oldest first."""
        found = [m for m in self.messages.values() if m.parent_id == message_id]
        return sorted(found, key=lambda m: m.created_at)

    def siblings(self, message_id: str) -> list[Message]:
        """All versions of a message, itself included, oldest first."""
        return self.children(self.message(message_id).parent_id)

    def newest_leaf(self, message_id: str) -> str:
        """Follows the newest child from ``message_id`` down to a leaf."""
        versions = self.versions()
        while following := versions.get(message_id):
            message_id = following[-1].message_id
        return message_id

    def versions(self) -> dict[str | None, list[Message]]:
        """All messages by what they follow, oldest first: ``children`` for whole branches."""
        found: dict[str | None, list[Message]] = {}
        for message in self.messages.values():
            found.setdefault(message.parent_id, []).append(message)
        for several in found.values():
            several.sort(key=lambda m: m.created_at)
        return found

    def show_version(self, message_id: str) -> None:
        """Shows this version of a message, and below it the branch that was shown there last.

        Raises:
            UnknownMessageError: it is not in this conversation.
        """
        self.message(message_id)
        if self.active_leaf_id is not None:
            for message in self.path():
                self.shown_leaves[message.message_id] = self.active_leaf_id
        leaf = self.shown_leaves.get(message_id, "")
        is_below = any(m.message_id == message_id for m in self.path_to(leaf))
        self.active_leaf_id = leaf if is_below else self.newest_leaf(message_id)

    def append(self, message: Message) -> Message:
        """Adds ``message`` below the active leaf, makes it the leaf, and names an unnamed
        conversation.
        """
        message.parent_id = self.active_leaf_id
        return self.insert(message)

    def insert(self, message: Message) -> Message:
        """Adds ``message`` below its own ``parent_id`` and makes it the active leaf.

        Raises:
            UnknownMessageError: the parent is not in this conversation.
        """
        if message.parent_id is not None:
            self.message(message.parent_id)
        self.messages[message.message_id] = message
        self.active_leaf_id = message.message_id
        self.updated_at = time.time()
        if message.role == USER and self.title_is_automatic and is_small_talk(self.title):
            self.title = title_of(m.content for m in self.path() if m.role == USER)
        return message

    def remove(self, message_id: str) -> None:
        """Takes a childless message out; if it was the active leaf, its newest sibling or parent
        is.

        Raises:
            UnknownMessageError: it is not in this conversation.
            ValueError: other messages follow it.
        """
        message = self.message(message_id)
        if self.children(message_id):
            raise ValueError(f"message {message_id} is followed by others")
        del self.messages[message_id]
        if self.active_leaf_id == message_id:
            others = self.children(message.parent_id)
            newest = self.newest_leaf(others[-1].message_id) if others else None
            self.active_leaf_id = newest or message.parent_id
        if not self.messages and self.title_is_automatic:
            self.title = ""

    def forget_title(self, text: str) -> None:
        """A message of the user's with this text was taken back: if it gave the title, those that
        are left give another.
        """
        if self.title_is_automatic and self.title and self.title == title_of([text]):
            self.title = title_of(m.content for m in self.path() if m.role == USER)

    def chat_messages(self, up_to: str | None = None) -> tuple[ChatMessage, ...]:
        """What the engine is asked to answer: the system prompt and the branch down to ``up_to``.

        ``up_to`` None means the active leaf. Exact ids go along only where they were made under the
        present system prompt: under another one they would put the old prompt back.
        """
        key = system_prompt_key(self.system_prompt)
        messages: list[ChatMessage] = []
        if self.system_prompt:
            messages.append(ChatMessage(SYSTEM, self.system_prompt))
        for message in self.path_to(self.active_leaf_id if up_to is None else up_to):
            turn = message.partial_turn() if message.system_prompt_key == key else None
            messages.append(ChatMessage(message.role, message.content, turn))
        return tuple(messages)

    def num_dropped(self, up_to: str | None = None) -> int:
        """How many messages at the start of the branch the model does not read.

        Each answer keeps what it was made with, so that another branch, or a fork, goes on from its
        own. ``up_to`` as in ``chat_messages``.
        """
        if self.overflow is OverflowPolicy.STOP:
            return 0
        path = self.path_to(self.active_leaf_id if up_to is None else up_to)
        return next((m.num_dropped for m in reversed(path) if m.role == ASSISTANT), 0)

    def context(self, up_to: str | None = None) -> ContextPolicy:
        """What the engine is told about the context limit, for what ``chat_messages`` gives."""
        return ContextPolicy(self.overflow, self.num_dropped(up_to))

    def orphans(self) -> list[Message]:
        """Messages that no branch reaches: what they stand below is not there."""
        return [
            message
            for message in self.messages.values()
            if message.parent_id is not None and message.parent_id not in self.messages
        ]

    def heal(self) -> bool:
        """Repairs what a crash can leave: a lost active leaf, messages left streaming. True if it
        did.
        """
        healed = False
        for message in self.messages.values():
            if message.status is MessageStatus.STREAMING:
                message.status = MessageStatus.INTERRUPTED
                healed = True
        if self.messages and self.active_leaf_id not in self.messages:
            newest = max(self.messages.values(), key=lambda m: m.created_at)
            self.active_leaf_id = self.newest_leaf(newest.message_id)
            healed = True
        elif not self.messages and self.active_leaf_id is not None:
            self.active_leaf_id = None
            healed = True
        return healed

    def fork(self, message_id: str | None, number: int) -> Conversation:
        """A new conversation with a copy of the branch down to ``message_id``, exact ids included.

        None copies the shown branch. A message that is still streaming is left out, and so is the
        question that it answers.
        """
        copied = self.path_to(self.active_leaf_id if message_id is None else message_id)
        while copied and copied[-1].status is MessageStatus.STREAMING:
            copied = copied[:-2]
        other = Conversation(
            title=self.title,
            title_is_automatic=not self.title,
            number=number,
            system_prompt=self.system_prompt,
            forked_from_id=self.conversation_id,
            overflow=self.overflow,
            folder=self.folder,
            tags=self.tags,
            params=self.params,
            prompt_id=self.prompt_id,
        )
        for message in copied:
            # Ids of other messages mean nothing in the copy.
            facts = {name: value for name, value in message.facts.items() if name != REPEATS}
            other.append(replace(message, message_id=new_id(), facts=facts))
        return other


def system_prompt_key(system_prompt: str) -> str:
    """Short digest that tells whether two answers were made under the same system prompt."""
    # Imported late: loading OpenSSL would delay the first paint.
    import hashlib

    return hashlib.sha256(system_prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def storable(text: str) -> str:
    """``text`` with lone surrogates replaced: neither SQLite nor a tokenizer takes them."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
