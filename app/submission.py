"""What is asked of the engine at once, and what to go back to if nothing comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.conversation import Conversation, Message, new_id, system_prompt_key
from app.session_signals import SessionSignals
from app.session_state import IDLE, RequestState
from app.store import Store
from engine.api.commands import Continue, Submit
from engine.api.events import ModelInfo
from engine.api.params import ContextPolicy


@dataclass(slots=True, eq=False)
class Answer:
    """One request, and the message that it fills. ``first_text_at``: on the monotonic clock, 0
    before. ``prompt_tokens``: once the engine has counted them, the ``given_tokens`` of an answer
    whose rest this is among them.
    """

    submission: Submission
    message: Message
    request_id: str = field(default_factory=new_id)
    state: RequestState = IDLE
    first_text_at: float = 0.0
    prompt_tokens: int = 0
    given_tokens: int = 0

    @property
    def conversation(self) -> Conversation:
        return self.submission.conversation

    @property
    def conversation_id(self) -> str:
        return self.submission.conversation.conversation_id

    @property
    def has_text(self) -> bool:
        """Whether any text came of this request."""
        before = self.submission.before
        given = 0 if before is None else len(before.content)
        return len(self.message.content) > given

    @property
    def num_tokens(self) -> int:
        """Prompt and answer as far as it has come; 0 while the prompt is not counted."""
        if not self.prompt_tokens:
            return 0
        return self.prompt_tokens + len(self.message.streamed_ids) - self.given_tokens


@dataclass(slots=True, eq=False)
class Submission:
    """An answer, several answers to one question, or the rest of an answer.

    ``previous_leaf_id``: the shown leaf before it. ``draft``: the question if it was typed for it.
    ``before``: the answer as it was, if this is to be its rest. ``context``: None as the
    conversation has it. ``answers``: those still wanted before it is submitted, then all of them.
    ``unwanted``: those that were stopped or deleted before; they keep their question in the tree.
    """

    conversation: Conversation
    previous_leaf_id: str | None = None
    draft: str | None = None
    before: Message | None = None
    context: ContextPolicy | None = None
    is_submitted: bool = False
    answers: list[Answer] = field(default_factory=list)
    unwanted: list[Answer] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        conversation: Conversation,
        messages: Sequence[Message],
        previous_leaf_id: str | None,
        draft: str | None = None,
        context: ContextPolicy | None = None,
    ) -> Submission:
        """For ``messages``: empty answers to one question, in the tree."""
        made = cls(conversation, previous_leaf_id, draft, context=context)
        made.answers = [Answer(made, message) for message in messages]
        return made

    @classmethod
    def rest_of(cls, conversation: Conversation, message: Message) -> Submission:
        """For the rest of an answer."""
        made = cls(conversation, conversation.active_leaf_id, before=replace(message))
        made.answers = [Answer(made, message)]
        return made

    def command(self, model: ModelInfo) -> Submit | Continue:
        """What to send; the messages learn what they are made with."""
        self.is_submitted = True
        conversation, first = self.conversation, self.answers[0].message
        continues = self.before is not None
        up_to = first.message_id if continues else first.parent_id
        messages = conversation.chat_messages(up_to=up_to)
        context = self.context or conversation.context(up_to)
        for answer in self.answers:
            message = answer.message
            message.model = model.name
            message.system_prompt_key = system_prompt_key(conversation.system_prompt)
            message.num_dropped = context.num_dropped
            # Of an answer that goes on: what was told of its beginning is not true of the whole.
            message.usage, message.finish_reason, message.limit = None, "", ""
            message.begin_stream(model.fingerprint)
        params, request_id = first.params, self.answers[0].request_id
        assert params is not None
        conversation_id = conversation.conversation_id
        if continues:
            # With its own seed it goes on as it would have gone on.
            params = replace(params, seed=first.seed if first.seed is not None else params.seed)
            return Continue(
                request_id, conversation_id, messages, params, context, command_id=request_id
            )
        request_ids = tuple(answer.request_id for answer in self.answers)
        return Submit(
            request_ids, conversation_id, messages, params, context, command_id=request_id
        )

    def restore(self, message: Message) -> None:
        """Makes a message what it was before its rest was asked for."""
        before = self.before
        assert before is not None
        message.status, message.error = before.status, before.error
        message.model, message.system_prompt_key = before.model, before.system_prompt_key
        message.num_dropped, message.params = before.num_dropped, before.params
        message.facts, message.turn = before.facts, before.turn
        message.usage, message.seed = before.usage, before.seed
        message.finish_reason, message.limit = before.finish_reason, before.limit


def withdraw(answer: Answer, store: Store, signals: SessionSignals) -> None:
    """Takes an answer that never began out of the tree; with the last of its submission the
    question goes too if it was typed for it, and no other answer below it can come back.
    """
    submission, conversation = answer.submission, answer.conversation
    submission.answers.remove(answer)
    message, conversation_id = answer.message, answer.conversation_id
    withdrawn = [message.message_id]
    is_last = not submission.answers and not submission.unwanted
    gives_draft_back = submission.draft is not None and is_last
    if gives_draft_back and message.parent_id is not None:
        withdrawn.append(message.parent_id)
    was_shown = conversation.active_leaf_id == message.message_id
    for message_id in withdrawn:
        conversation.remove(message_id)
    leaf_ids: list[str | None] = [other.message.message_id for other in submission.answers]
    if submission.draft is None or gives_draft_back:
        leaf_ids.append(submission.previous_leaf_id)
    else:
        # The leaf before would hide a question that stays.
        leaf_ids += [other.message.message_id for other in submission.unwanted]
    for leaf_id in leaf_ids:
        # Each may have been deleted meanwhile; then the tree itself has found another.
        if was_shown and leaf_id in conversation.messages:
            conversation.active_leaf_id = leaf_id
            break
    if gives_draft_back:
        conversation.forget_title(submission.draft or "")
        typed_since = f"\n{conversation.draft}" if conversation.draft else ""
        conversation.draft = f"{submission.draft}{typed_since}"
    with store.together():
        # The question is a draft again or still a message, whenever the program ends.
        for message_id in withdrawn:
            store.delete_message(message_id)
        store.save_conversation(conversation)
    if gives_draft_back:
        for message_id in withdrawn:
            signals.message_removed.emit(conversation_id, message_id)
        signals.draft_restored.emit(conversation_id, submission.draft)
    else:
        signals.path_changed.emit(conversation_id)
    signals.conversation_changed.emit(conversation_id)
    signals.request_state_changed.emit(conversation_id)
