"""The stored and open conversations: the half of the session that needs no engine."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Sequence

from PySide6.QtCore import QObject, Qt, Signal, Slot

from app.app_error import AppError
from app.conversation import Attachment, Conversation, storable
from app.session_signals import SessionSignals
from app.session_state import ConversationSummary, Notice, Severity
from app.settings import Settings
from app.store import Store
from engine.api.errors import ErrorInfo
from engine.api.params import OverflowPolicy, SamplingParams

_LOG = logging.getLogger(__name__)
_TABS_STATE = "open_tabs"
_ACTIVE_STATE = "active_tab"
_KEPT_CLOSED = 20


class Conversations(SessionSignals):
    """Opens, closes and changes conversations, and stores every change. GUI thread only."""

    _store_failed = Signal(object)
    _store_recovered = Signal()
    _store_found = Signal(object)

    def __init__(self, store: Store, settings: Settings, parent: QObject | None = None) -> None:
        """Opens the conversations that were open last time."""
        super().__init__(parent)
        self._store = store
        self._settings = settings
        self._open: dict[str, Conversation] = {}
        self._recently_closed: OrderedDict[str, Conversation] = OrderedDict()
        self._active_id = ""
        self._restore()
        queued = Qt.ConnectionType.QueuedConnection
        self._store_failed.connect(self._on_store_failed, queued)
        self._store_recovered.connect(self._on_store_recovered, queued)
        self._store_found.connect(self.search_finished, queued)
        store.on_found = self._store_found.emit
        store.on_error = self._store_failed.emit
        store.on_recovered = self._store_recovered.emit

    @property
    def active_conversation_id(self) -> str:
        """The conversation in front, or empty."""
        return self._active_id

    @property
    def default_system_prompt(self) -> str:
        """What new conversations begin with."""
        return self._settings.values.default_system_prompt

    def conversation_ids(self) -> list[str]:
        """Open conversations in the order of their tabs."""
        return list(self._open)

    def conversation(self, conversation_id: str) -> Conversation:
        """An open conversation. Raises KeyError for any other."""
        return self._open[conversation_id]

    def closed_conversations(self) -> list[ConversationSummary]:
        """Stored conversations that are not open, the latest used first."""
        return [s for s in self._store.summaries() if s.conversation_id not in self._open]

    def search(self, query: str) -> None:
        """Looks for messages with all the words of ``query``; ``search_finished`` follows, unless
        another question comes first.
        """
        self._store.search(storable(query))

    def stored_conversation(self, conversation_id: str) -> Conversation | None:
        """A conversation to read, open or not; None if it is not there."""
        held = self._open.get(conversation_id) or self._recently_closed.get(conversation_id)
        if held is not None:
            # What a full disk has not taken is only here.
            return held
        self._store.settle(conversation_id)
        return self._store.load_conversation(conversation_id)

    def store_imported(self, conversations: Sequence[Conversation]) -> bool:
        """Stores conversations from elsewhere, all or none, and waits until they are. Any thread.

        False if it takes more than a minute, or cannot be done.
        """
        written = self._store.add_conversations(conversations)
        return self._store.flush(60.0) and written.is_set()

    def show_imported(self, conversation_ids: Sequence[str]) -> None:
        """Lists what was stored, and opens a single conversation."""
        if len(conversation_ids) == 1:
            self.reopen_conversation(conversation_ids[0])
        else:
            self.stored_changed.emit()

    def new_conversation(self, system_prompt: str | None = None) -> str:
        """Opens an empty conversation; None takes the default system prompt. Returns its id."""
        prompt = self.default_system_prompt if system_prompt is None else storable(system_prompt)
        overflow = OverflowPolicy(self._settings.values.overflow)
        conversation = Conversation(
            number=self._free_number(),
            system_prompt=prompt,
            prompt_id=self._prompt_id(prompt),
            overflow=overflow,
        )
        return self._add(conversation)

    def close_conversation(self, conversation_id: str) -> None:
        """Closes it; it stays stored, but one into which nothing was written is deleted."""
        conversation = self._open.pop(conversation_id)
        conversation.is_open = False
        self._recently_closed[conversation_id] = conversation
        while len(self._recently_closed) > _KEPT_CLOSED:
            self._recently_closed.popitem(last=False)
        is_written = conversation.messages or conversation.draft or conversation.attachments
        if is_written or self._has_own_prompt(conversation):
            self._store.save_conversation(conversation)
        else:
            self._store.delete_conversation(conversation_id)
        self._save_order()
        self.conversation_closed.emit(conversation_id)

    def reopen_conversation(self, conversation_id: str) -> bool:
        """Opens a stored conversation again. False, with a notice, if it is not there."""
        if conversation_id in self._open:
            return True
        conversation = self._recently_closed.pop(conversation_id, None)
        if conversation is None:
            self._store.settle(conversation_id)
            conversation = self._store.load_conversation(conversation_id)
        if conversation is None:
            self.report("conversation_not_found", "This conversation is no longer stored.")
            return False
        conversation.is_open = True
        # What has a tab is not deleted, whatever was read: it would be erased with what is new.
        conversation.deleted_at = None
        taken = {c.number for c in self._open.values()}
        if conversation.number in taken:
            conversation.number = self._free_number()
        self._add(conversation)
        return True

    def fork(self, conversation_id: str, message_id: str | None = None) -> str:
        """Copies the branch down to ``message_id`` (None: to its end) into a new conversation.

        The exact ids go along, so that the copy is served from the prefix cache.
        """
        original = self._open[conversation_id]
        copy = original.fork(message_id, self._free_number())
        self._add(copy)
        for message in copy.path():
            self._store.save_message(copy.conversation_id, message)
        return copy.conversation_id

    def set_system_prompt(self, conversation_id: str, text: str) -> None:
        """Changes the system prompt from the next answer on."""
        text = storable(text)
        if self._open[conversation_id].system_prompt != text:
            self.use_system_prompt(conversation_id, text, self._prompt_id(text))

    def use_system_prompt(self, conversation_id: str, text: str, prompt_id: str) -> None:
        """The same with a prompt of the library."""
        conversation = self._open[conversation_id]
        if (conversation.system_prompt, conversation.prompt_id) != (text, prompt_id):
            conversation.system_prompt, conversation.prompt_id = text, prompt_id
            self._save_changed(conversation)

    def _prompt_id(self, text: str) -> str:
        """Id of the library's prompt that reads so, the default before others, or empty."""
        prompts = self._store.prompts
        default = prompts.default
        if default is not None and default.text == text:
            return default.prompt_id
        return next((p.prompt_id for p in prompts.all() if p.text == text), "")

    def _has_own_prompt(self, conversation: Conversation) -> bool:
        """Whether its system prompt was written for it, and is nowhere else."""
        text = conversation.system_prompt
        is_given = conversation.prompt_id or text == self.default_system_prompt
        return bool(text.strip()) and not is_given

    def set_overflow(self, conversation_id: str, overflow: OverflowPolicy) -> None:
        """Chooses what happens when the conversation no longer fits into the model's context.

        With *stop* all its messages count again from the next answer on.
        """
        conversation = self._open[conversation_id]
        if conversation.overflow is not overflow:
            conversation.overflow = overflow
            self._save_changed(conversation)

    def sampling(self, conversation_id: str) -> SamplingParams:
        """How answers of an open conversation are sampled from now on."""
        return self._open[conversation_id].params or self._settings.values.sampling

    def set_sampling(self, conversation_id: str, params: SamplingParams | None) -> None:
        """Chooses how the next answers are sampled; None as the settings say."""
        conversation = self._open[conversation_id]
        if conversation.params != params:
            conversation.params = params
            self._save_changed(conversation)

    def set_default_system_prompt(self, text: str) -> None:
        """Changes what new conversations begin with; empty open ones with the old one follow."""
        old, text = self.default_system_prompt, storable(text)
        if text == old:
            return
        self.change_settings(default_system_prompt=text)
        for conversation in self._open.values():
            if not conversation.messages and conversation.system_prompt == old:
                self.use_system_prompt(conversation.conversation_id, text, self._prompt_id(text))
        self.default_system_prompt_changed.emit(text)

    def set_active_conversation(self, conversation_id: str) -> None:
        """Tells which conversation is in front. Empty for none."""
        if conversation_id == self._active_id:
            return
        self._active_id = conversation_id
        self._store.set_state(_ACTIVE_STATE, conversation_id)
        self.active_conversation_changed.emit(conversation_id)

    def set_order(self, conversation_ids: list[str]) -> None:
        """Keeps the order of the tabs; ids not open are left out, missing ones come last."""
        ordered = [i for i in conversation_ids if i in self._open]
        ordered += [i for i in self._open if i not in ordered]
        if ordered != list(self._open):
            self._open = {i: self._open[i] for i in ordered}
            self._save_order()
            self.order_changed.emit()

    def set_draft(self, conversation_id: str, text: str) -> None:
        """Keeps the text of the composer; cheap enough for every key press."""
        conversation = self._open.get(conversation_id)
        if conversation is not None and conversation.draft != text:
            conversation.draft = storable(text)
            self._store.save_conversation_soon(conversation)

    def set_attachments(self, conversation_id: str, attachments: tuple[Attachment, ...]) -> None:
        """Keeps what goes along with the draft."""
        conversation = self._open.get(conversation_id)
        if conversation is not None and conversation.attachments != attachments:
            conversation.attachments = tuple(
                Attachment(storable(part.name), storable(part.text)) for part in attachments
            )
            self._store.save_attachments(conversation_id, conversation.attachments)

    # --- state of the window, settings, notices ---

    def set_window_state(self, name: str, value: str) -> None:
        """Keeps a small text (geometry, splitter) with the profile."""
        self._store.set_state(f"window.{name}", value)

    def window_state(self, name: str) -> str:
        """What was kept under ``name``, or empty."""
        return self._store.state(f"window.{name}")

    def change_settings(self, **changes: object) -> None:
        """Changes settings by name; a notice says if the file could not be written.

        Raises:
            InvalidValueError: an unknown name or a value out of range; nothing is changed then.
        """
        before = self._settings.values
        try:
            self._settings.change(**changes)
        except OSError as error:
            self.report("settings_write", f"The settings could not be saved: {error}")
        after = self._settings.values
        changed = {name for name in changes if getattr(before, name) != getattr(after, name)}
        if changed:
            self.settings_changed.emit(frozenset(changed))

    def report(
        self, code: str, message: str, action: str = "", severity: Severity = Severity.ERROR
    ) -> None:
        """Raises a notice for something that happened outside, and logs it."""
        _LOG.warning("%s: %s", code, message)
        self.notice_raised.emit(Notice(severity, ErrorInfo(code, message, action)))

    def raise_stored_problems(self) -> None:
        """Tells what was wrong with the profile when it was opened; for when the window can show
        it.
        """
        for problem in (*self._store.problems, *self._settings.problems):
            self.notice_raised.emit(Notice(Severity.WARNING, problem))

    def _restore(self) -> None:
        open_ids = self._store.open_ids()
        try:
            order = [str(i) for i in json.loads(self._store.state(_TABS_STATE) or "[]")]
        except (ValueError, TypeError):
            order = []
        position = {conversation_id: n for n, conversation_id in enumerate(order)}
        for conversation_id in sorted(open_ids, key=lambda i: position.get(i, len(order))):
            conversation = self._store.load_conversation(conversation_id)
            if conversation is not None:
                self._open[conversation_id] = conversation
        active = self._store.state(_ACTIVE_STATE)
        self._active_id = active if active in self._open else next(iter(self._open), "")

    def _add(self, conversation: Conversation) -> str:
        self._open[conversation.conversation_id] = conversation
        self._store.save_conversation(conversation)
        self._save_order()
        self.conversation_added.emit(conversation.conversation_id)
        return conversation.conversation_id

    def _save_order(self) -> None:
        self._store.set_state(_TABS_STATE, json.dumps(list(self._open)))

    def _save_changed(self, conversation: Conversation) -> None:
        self._store.save_conversation(conversation)
        self.conversation_changed.emit(conversation.conversation_id)

    def _free_number(self) -> int:
        """The smallest number that no conversation had that was open in this run."""
        seen = (*self._open.values(), *self._recently_closed.values())
        taken = {conversation.number for conversation in seen}
        return next(n for n in range(1, len(taken) + 2) if n not in taken)

    @Slot(object)
    def _on_store_failed(self, error: AppError) -> None:
        _LOG.error("%s: %s", error.code, error.message)
        self.notice_raised.emit(Notice(Severity.ERROR, error.info()))

    @Slot()
    def _on_store_recovered(self) -> None:
        self.report("store_recovered", "Saving works again.", severity=Severity.INFO)
