"""The application's state: conversations, requests, the model. What the window shows and asks for."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.bridge import Bridge
from app.conversation import Conversation
from app.session_state import ConversationSummary, ModelState, RequestState
from app.settings import Settings
from app.store import Store


class Session(QObject):
    """Owns the conversations and drives the engine through the bridge. GUI thread only.

    Widgets read the conversations that it hands out and never change them; every change goes through
    a method here and comes back as a signal.

    Signals (ids are strings):
        conversation_added(conversation_id): new, opened or forked; it is open now.
        conversation_closed(conversation_id): its tab goes; ``reopen_conversation`` undoes it.
        conversation_changed(conversation_id): title, number or system prompt.
        active_conversation_changed(conversation_id)
        path_changed(conversation_id): the shown branch is another one; show it anew.
        message_added(conversation_id, message_id): at the end of the shown branch.
        message_removed(conversation_id, message_id): it was the last of the shown branch.
        text_appended(conversation_id, message_id, text): at most once a drain for each message.
        message_changed(conversation_id, message_id): status, usage, error or versions.
        request_state_changed(conversation_id): see ``request_state``.
        model_state_changed(): see ``model_state``.
        draft_restored(conversation_id, text): a message that could not be sent; put it into the composer.
        notice_raised(Notice)
        default_system_prompt_changed(text)
    """

    conversation_added = Signal(str)
    conversation_closed = Signal(str)
    conversation_changed = Signal(str)
    active_conversation_changed = Signal(str)
    path_changed = Signal(str)
    message_added = Signal(str, str)
    message_removed = Signal(str, str)
    text_appended = Signal(str, str, str)
    message_changed = Signal(str, str)
    request_state_changed = Signal(str)
    model_state_changed = Signal()
    draft_restored = Signal(str, str)
    notice_raised = Signal(object)
    default_system_prompt_changed = Signal(str)

    def __init__(
        self,
        bridge: Bridge,
        store: Store,
        settings: Settings,
        models_dir: str,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)

    # --- reading ---

    @property
    def model_state(self) -> ModelState: ...

    @property
    def active_conversation_id(self) -> str:
        """The conversation in front, or empty."""

    @property
    def default_system_prompt(self) -> str:
        """What new conversations begin with."""

    def conversation_ids(self) -> list[str]:
        """Open conversations in the order of their tabs."""

    def conversation(self, conversation_id: str) -> Conversation:
        """An open conversation. Raises KeyError for any other."""

    def closed_conversations(self) -> list[ConversationSummary]:
        """Stored conversations that are not open, the latest used first."""

    def request_state(self, conversation_id: str) -> RequestState:
        """What the conversation's answer is doing; ``IDLE`` if there is none."""

    def is_busy(self, conversation_id: str) -> bool:
        """True while an answer is waited for or generated."""

    # --- conversations ---

    def new_conversation(self, system_prompt: str | None = None) -> str:
        """Opens an empty conversation; None takes the default system prompt. Returns its id."""

    def close_conversation(self, conversation_id: str) -> None:
        """Stops its answer and closes it; it stays stored. An empty one without a draft is deleted."""

    def reopen_conversation(self, conversation_id: str) -> bool:
        """Opens a stored conversation again. False, with a notice, if it is not there."""

    def rename(self, conversation_id: str, title: str) -> None:
        """Sets the title; an empty one brings back the automatic title."""

    def fork(self, conversation_id: str, message_id: str | None = None) -> str:
        """Copies the branch down to ``message_id`` (None: to its end) into a new conversation."""

    def set_system_prompt(self, conversation_id: str, text: str) -> None:
        """Changes the system prompt from the next answer on."""

    def set_default_system_prompt(self, text: str) -> None:
        """Changes what new conversations begin with, and empty open ones that had the old default."""

    def set_active_conversation(self, conversation_id: str) -> None:
        """Tells which conversation is in front; the engine serves it first. Empty for none."""

    def set_order(self, conversation_ids: list[str]) -> None:
        """Keeps the order of the tabs."""

    def set_draft(self, conversation_id: str, text: str) -> None:
        """Keeps the text of the composer; cheap enough for every key press."""

    # --- answers ---

    def send(self, conversation_id: str, text: str) -> bool:
        """Adds a user message and asks for an answer.

        False, with a notice, if it was refused; the text then belongs back into the composer. A refusal
        that comes later from the engine takes both messages out again and emits ``draft_restored``.
        """

    def stop(self, conversation_id: str) -> None:
        """Stops the answer in any state; what has come stays. Does nothing if there is none."""

    def regenerate(self, conversation_id: str, message_id: str | None = None) -> bool:
        """Asks for another version of an answer (None: the last one). False, with a notice, if refused."""

    def select_version(self, conversation_id: str, message_id: str) -> None:
        """Shows this version of a message, and the newest branch below it."""

    # --- model ---

    def load_model(self, path: str = "") -> None:
        """Loads a GGUF file or model folder; empty means the starter model."""

    def fetch_starter(self) -> None:
        """Fetches the starter model if it is absent, and loads it. The only thing that uses the network."""

    # --- state of the window, end ---

    def set_window_state(self, name: str, value: str) -> None:
        """Keeps a small text (geometry, splitter) with the profile."""

    def window_state(self, name: str) -> str:
        """What was kept under ``name``, or empty."""

    def report(self, code: str, message: str, action: str = "") -> None:
        """Raises an error notice for something that happened outside, and logs it."""

    def shut_down(self) -> None:
        """Marks running answers as interrupted and saves everything. The session ends with it."""
