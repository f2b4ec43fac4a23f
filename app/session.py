"""The application's state: conversations, requests, the model. What the window shows and asks."""

from __future__ import annotations

import logging

from PySide6.QtCore import QObject, Slot

from app.answers import Answers
from app.bridge import Bridge
from app.conversation import (
    ASSISTANT,
    USER,
    Message,
    MessageStatus,
    storable,
)
from app.conversations import Conversations
from app.model_control import ModelControl, engine_died_error
from app.outlooks import Outlooks
from app.session_state import (
    ModelState,
    ModelStatus,
    Notice,
    Outlook,
    RequestState,
    Severity,
)
from app.settings import Settings
from app.store import Store
from engine.api.commands import SetFocus
from engine.api.errors import EmptyMessageError, EngineError, ErrorInfo, NoModelError
from engine.api.events import CommandFailed, Event, ModelInfo

_LOG = logging.getLogger(__name__)
_TABS_STATE = "open_tabs"
_ACTIVE_STATE = "active_tab"
_KEPT_CLOSED = 20


class Session(Conversations):
    """Owns the conversations and drives the engine through the bridge. GUI thread only.

    Widgets read the conversations that it hands out and never change them; every change goes
    through a method here and comes back as a signal of ``SessionSignals``.
    """

    def __init__(
        self,
        bridge: Bridge,
        store: Store,
        settings: Settings,
        models_dir: str,
        parent: QObject | None = None,
    ) -> None:
        """Opens the conversations that were open last time. ``models_dir``: the model folder."""
        super().__init__(store, settings, parent)
        self._bridge = bridge
        self._answers = Answers(bridge, store, self)
        self._outlooks = Outlooks(bridge, self)
        self._model = ModelControl(
            bridge,
            settings,
            models_dir,
            self,
            self._on_model_ready,
            self._answers.model_unavailable,
        )
        self._remembers_model = False
        bridge.engine_event.connect(self._on_bridge_engine_event)

    # --- reading ---

    @property
    def model_state(self) -> ModelState:
        return self._model.state

    def request_state(self, conversation_id: str) -> RequestState:
        """What the conversation's answer is doing; ``IDLE`` if there is none."""
        return self._answers.state(conversation_id)

    def is_busy(self, conversation_id: str) -> bool:
        """True while an answer is waited for or generated."""
        return self._answers.is_busy(conversation_id)

    def outlook(self, conversation_id: str) -> Outlook | None:
        """What came of the last ``ask_outlook``; None if nothing is known or it cannot matter."""
        return self._outlooks.of(conversation_id)

    def ask_outlook(self, conversation_id: str, text: str) -> bool:
        """Asks what sending ``text`` would do; ``outlook_changed`` follows. False if it surely
        fits, or no model is there to ask.
        """
        conversation = self._open[conversation_id]
        max_tokens = self._settings.values.sampling.max_tokens
        return self._outlooks.ask(conversation, text, self.model_state.info, max_tokens)

    # --- conversations ---

    def close_conversation(self, conversation_id: str) -> None:
        """Stops its answer and closes it; it stays stored, an empty one without a draft is
        deleted.
        """
        self._answers.abandon(conversation_id)
        self._outlooks.forget(conversation_id)
        super().close_conversation(conversation_id)

    def set_active_conversation(self, conversation_id: str) -> None:
        """Tells which conversation is in front; the engine serves it first. Empty for none."""
        if conversation_id != self._active_id:
            self._bridge.send(SetFocus(conversation_id))
            super().set_active_conversation(conversation_id)

    # --- answers ---

    def send(self, conversation_id: str, text: str) -> bool:
        """Adds a user message and asks for an answer.

        False, with a notice, if it was refused; the text then belongs back into the composer. A
        refusal that comes later from the engine takes both messages out again and emits
        ``draft_restored``.
        """
        text = storable(text)
        if not text.strip():
            self._refuse(EmptyMessageError("The message is empty."), conversation_id)
            return False
        if not self._can_ask(conversation_id):
            return False
        conversation = self._open[conversation_id]
        previous = conversation.active_leaf_id
        question = conversation.append(Message(USER, text))
        answer = conversation.append(self._empty_answer(conversation.num_dropped()))
        conversation.draft = ""
        self._store.save_conversation(conversation)
        for message in (question, answer):
            self._store.save_message(conversation_id, message)
            self.message_added.emit(conversation_id, message.message_id)
        if previous is None:
            self.conversation_changed.emit(conversation_id)
        self._answers.ask(conversation, answer, previous, text)
        return True

    def stop(self, conversation_id: str) -> None:
        """Stops the answer in any state; what has come stays. Does nothing if there is none."""
        self._answers.stop(conversation_id)

    def regenerate(self, conversation_id: str, message_id: str | None = None) -> bool:
        """Asks for another version of an answer (None: the last one). False, with a notice, if
        refused.
        """
        if not self._can_ask(conversation_id):
            return False
        conversation = self._open[conversation_id]
        path = conversation.path_to(message_id or conversation.active_leaf_id)
        while path and path[-1].role != USER:
            path.pop()
        if not path:
            self._refuse(EmptyMessageError("There is no answer to make again."), conversation_id)
            return False
        previous = conversation.active_leaf_id
        answer = self._empty_answer(conversation.num_dropped(path[-1].message_id))
        answer.parent_id = path[-1].message_id
        conversation.insert(answer)
        self._store.save_conversation(conversation)
        self._store.save_message(conversation_id, answer)
        self.path_changed.emit(conversation_id)
        self._answers.ask(conversation, answer, previous, None)
        return True

    def select_version(self, conversation_id: str, message_id: str) -> None:
        """Shows this version of a message, and the newest branch below it."""
        conversation = self._open[conversation_id]
        leaf = conversation.newest_leaf(conversation.message(message_id).message_id)
        if leaf != conversation.active_leaf_id:
            conversation.active_leaf_id = leaf
            self._store.save_conversation(conversation)
            self.path_changed.emit(conversation_id)

    # --- model ---

    def load_model(self, path: str = "", remember: bool = True) -> None:
        """Loads a GGUF file or model folder; empty means the starter model.

        ``remember``: the next start loads it too, if it can be loaded now.
        """
        self._remembers_model = remember
        self._answers.model_loading()
        self._model.load(path)

    def retry_model(self) -> None:
        """Asks again for the model that was asked for last, of a new engine if this one has died.

        Does nothing if only a new process would help (``device_lost``).
        """
        if self._model.is_dead:
            if not self._model.revive():
                return
            self._bridge.send(SetFocus(self._active_id))
        self.load_model(self._model.path, self._remembers_model)

    def restart_program(self) -> None:
        """Saves everything and asks for a new process in place of this one."""
        self.program_restart_requested.emit()

    def fetch_starter(self) -> None:
        """Fetches the starter model if it is absent, and loads it. The only thing that uses the
        network.
        """
        self._remembers_model = True
        self._answers.model_loading()
        self._model.load("", fetch_starter=True)

    def engine_died(self, message: str) -> None:
        """The engine thread ended by a fault: answers fail, the window stays."""
        # What the engine itself has said last knows more: texts, ids, the true reason.
        self._bridge.drain()
        self._model.engine_died(engine_died_error(message))

    # --- end ---

    def shut_down(self, timeout_s: float = 3.0) -> bool:
        """Marks running answers as interrupted and saves everything. False if that failed."""
        self._answers.interrupt_all()
        return self._store.flush(timeout_s)

    def _on_model_ready(self, info: ModelInfo) -> None:
        if self._remembers_model and self._settings.values.model_path != self._model.path:
            self.change_settings(model_path=self._model.path)
        self._answers.model_ready(info)

    def _empty_answer(self, num_dropped: int) -> Message:
        return Message(
            ASSISTANT,
            "",
            status=MessageStatus.STREAMING,
            params=self._settings.values.sampling,
            num_dropped=num_dropped,
        )

    def _can_ask(self, conversation_id: str) -> bool:
        if self._answers.is_busy(conversation_id):
            error = ErrorInfo(
                "answer_running",
                "This conversation is still being answered.",
                "Wait for the answer, or stop it.",
            )
            self.notice_raised.emit(Notice(Severity.WARNING, error, conversation_id))
            return False
        if self.model_state.status in (ModelStatus.NO_MODEL, ModelStatus.FAILED):
            self._refuse(NoModelError("No model is loaded."), conversation_id)
            return False
        return True

    def _refuse(self, error: EngineError, conversation_id: str) -> None:
        self.notice_raised.emit(Notice(Severity.WARNING, error.info(), conversation_id))

    @Slot(object)
    def _on_bridge_engine_event(self, event: Event) -> None:
        if self._model.handle(event) or self._answers.handle(event):
            return
        if self._outlooks.handle(event):
            return
        if isinstance(event, CommandFailed) and not event.command_id:
            _LOG.warning("%s failed: %s", event.command, event.error.message)
            self.notice_raised.emit(Notice(Severity.WARNING, event.error))
