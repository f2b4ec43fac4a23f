"""The tour's own conversations: in memory only, and gone with the tour."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.bridge import Bridge
from app.conversation import Conversation
from app.gauges import Gauges
from app.session_signals import SessionSignals
from app.session_state import ModelState


@dataclass(slots=True, eq=False)
class Talk:
    """One conversation: a question, and the text of each answer so far by its request."""

    conversation: Conversation
    question: str
    answers: dict[str, str] = field(default_factory=dict)
    note: str = ""


class Talks(SessionSignals):
    """What the cache panel reads of a session, for conversations that nobody stores."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self.model_state = ModelState()
        self.gauges = Gauges(bridge, self)
        self.talks: dict[str, Talk] = {}

    @property
    def active_conversation_id(self) -> str:
        """None is in front: nobody writes a message here."""
        return ""

    def conversation(self, conversation_id: str) -> Conversation:
        """One of these. Raises KeyError for any other."""
        return self.talks[conversation_id].conversation

    def conversation_ids(self) -> list[str]:
        """All of them, in order."""
        return list(self.talks)

    def set_model_state(self, state: ModelState) -> None:
        """The tour's engine has told something about its model."""
        self.model_state = state
        self.model_state_changed.emit()

    def add(self, title: str, question: str) -> Talk:
        """One more conversation; its number is the next."""
        number = len(self.talks) + 1
        made = Talk(Conversation(title=title, number=number), question)
        self.talks[made.conversation.conversation_id] = made
        self.conversation_added.emit(made.conversation.conversation_id)
        return made

    def remove_all(self) -> None:
        """Empties the list."""
        for conversation_id in list(self.talks):
            del self.talks[conversation_id]
            self.conversation_closed.emit(conversation_id)
