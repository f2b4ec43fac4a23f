"""What the transcript shows of each message of a conversation."""

from __future__ import annotations

from app.answer_facts import can_continue, why_not_repeat
from app.branches import MAX_ANSWERS
from app.conversation import USER, Conversation, Message, MessageStatus
from app.i18n import tr
from app.markdown_thoughts import THOUGHT_SECONDS
from app.session import Session
from app.widgets.answer_words import origin_words
from app.widgets.transcript.message import MessageView
from app.widgets.words import SEPARATOR, answer_footer, divider_words, request_words, shown_title

_EVER = ("copy_message", "message_menu")


class MessageViews:
    """``divider``: (id of the first message that the model reads, words above it)."""

    def __init__(self, session: Session, conversation_id: str) -> None:
        self._session = session
        self._conversation_id = conversation_id
        self.divider = ("", "")

    @property
    def _conversation(self) -> Conversation:
        return self._session.conversation(self._conversation_id)

    def all(self) -> list[MessageView]:
        """The shown branch."""
        conversation = self._conversation
        versions = conversation.versions()
        self.divider = self.find_divider()
        return [self._view(m, versions[m.parent_id]) for m in conversation.path()]

    def of(self, message: Message) -> MessageView:
        """One message."""
        return self._view(message, self._conversation.siblings(message.message_id))

    def find_divider(self) -> tuple[str, str]:
        """Where the line is now; empty if the model reads everything."""
        num_dropped = self._conversation.num_dropped()
        path = self._conversation.path()
        if not 0 < num_dropped < len(path):
            return "", ""
        return path[num_dropped].message_id, divider_words(num_dropped)

    def _view(self, message: Message, versions: list[Message]) -> MessageView:
        divider = self.divider[1] if message.message_id == self.divider[0] else ""
        footer, tone = "", "muted"
        is_user = message.role == USER
        if not is_user:
            footer, tone = self._footer(message)
        return MessageView(
            message.message_id,
            is_user,
            message.content,
            footer,
            tone,
            versions.index(message) + 1,
            len(versions),
            message.status is MessageStatus.STREAMING,
            divider,
            offers(message),
            float(message.facts.get(THOUGHT_SECONDS, 0.0)),
        )

    def _footer(self, message: Message) -> tuple[str, str]:
        state = self._session.request_state(self._conversation_id, message.message_id)
        footer, tone = answer_footer(message, request_words(state, self._title_of))
        origin = origin_words(self._conversation, message)
        return SEPARATOR.join(part for part in (origin, footer) if part), tone

    def _title_of(self, conversation_id: str) -> str:
        try:
            return shown_title(self._session.conversation(conversation_id).title)
        except KeyError:
            return tr("another tab")


def offers(message: Message) -> tuple[str, ...]:
    """What the buttons below a message offer."""
    if message.status is MessageStatus.STREAMING:
        return ("stop_message",)
    if message.role == USER:
        return ("edit_message", *_EVER)
    more = ("continue_answer",) if can_continue(message) else ()
    return (*more, "regenerate", "fork_message", *_EVER)


def menu_entries(
    session: Session, conversation: Conversation, message: Message
) -> list[tuple[str, ...]]:
    """Ids of the registry's actions for the menu of a message, in groups."""
    if message.status is MessageStatus.STREAMING:
        return [("stop",)]
    siblings = conversation.siblings(message.message_id)
    before = ("previous_version",) if siblings[0] is not message else ()
    after = ("next_version",) if siblings[-1] is not message else ()
    versions = (*before, *after)
    deleting = ("delete_message", "delete_pair")
    if message.role == USER:
        return [("edit_message", "regenerate", "fork_message"), versions, deleting]
    first = ("continue_answer",) if can_continue(message) else ()
    is_repeatable = not why_not_repeat(conversation, message, session.model_state.info)
    again = ("repeat_answer",) if is_repeatable else ()
    if len(siblings) > 1:
        versions = (*versions, "compare_versions")
    several = tuple(f"answers_{n}" for n in range(2, MAX_ANSWERS + 1))
    return [
        (*first, "regenerate", *again, *several),
        versions,
        ("edit_message", "fork_message", "message_facts"),
        deleting,
    ]
