"""Asking for answers, and acting on messages: the half of the session that needs a model."""

from __future__ import annotations

import time
from dataclasses import replace

from app.answer_facts import (
    ASKED_FOR,
    CONTINUED,
    EDITED,
    can_continue,
    why_not_repeat,
)
from app.branches import MAX_ANSWERS, Branches
from app.conversation import (
    ASSISTANT,
    REPEATS,
    USER,
    Conversation,
    Message,
    MessageStatus,
    new_id,
    storable,
)
from app.i18n import tr
from app.session_state import ModelState, ModelStatus, Notice, Severity
from app.submission import Submission
from engine.api.errors import EmptyMessageError, EngineError, ErrorInfo, NoModelError
from engine.api.params import ContextPolicy, OverflowPolicy, SamplingParams


class Asking(Branches):
    """Every method refuses with a notice, and False, what cannot be done now."""

    @property
    def model_state(self) -> ModelState:
        raise NotImplementedError

    def wake_model(self) -> bool:
        """Loads a model that was let go, since it is needed. False if none was."""
        raise NotImplementedError

    def send(self, conversation_id: str, text: str, num_answers: int = 1) -> bool:
        """Adds a user message and asks for answers, several to be shown side by side.

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
        answers = self._insert_answers(conversation, question, num_answers)
        conversation.draft = ""
        with self._store.together():
            self._store.save_conversation(conversation)
            for message in (question, *answers):
                self._store.save_message(conversation_id, message)
        for message in (question, answers[0]):
            self.message_added.emit(conversation_id, message.message_id)
        if previous is None:
            self.conversation_changed.emit(conversation_id)
        self._show_side_by_side(conversation_id, answers)
        self._answers.ask(Submission.of(conversation, answers, previous, text))
        return True

    def regenerate(
        self, conversation_id: str, message_id: str | None = None, num_answers: int = 1
    ) -> bool:
        """Asks for other versions of an answer (None: the last one), or for answers to a question
        that has none.
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
        answers = self._insert_answers(conversation, path[-1], num_answers)
        self._ask_on_another_branch(Submission.of(conversation, answers, previous))
        return True

    def edit(self, conversation_id: str, message_id: str, text: str) -> bool:
        """Makes another version of a message with this text, and shows it.

        A question is asked anew; what followed the old one stays there. An answer is only kept, to
        be gone on with. The same text changes nothing.
        """
        text = storable(text)
        conversation = self._open[conversation_id]
        old = conversation.message(message_id)
        if not text.strip():
            self._refuse(EmptyMessageError("The message is empty."), conversation_id)
            return False
        if text == old.content:
            return True
        if not self._can_ask(conversation_id):
            return False
        conversation.show_version(message_id)
        version = Message(old.role, text, old.parent_id)
        if old.role == ASSISTANT:
            version.params, version.facts = old.params, {EDITED: 1}
            version.num_dropped = old.num_dropped
            conversation.insert(version)
            self._store.save_conversation(conversation)
            self._store.save_message(conversation_id, version)
            self.path_changed.emit(conversation_id)
            return True
        conversation.insert(version)
        self._store.save_message(conversation_id, version)
        answers = self._insert_answers(conversation, version, 1)
        # What was written stays, whatever becomes of its answer.
        self._ask_on_another_branch(Submission.of(conversation, answers, version.message_id))
        return True

    def continue_answer(self, conversation_id: str, message_id: str | None = None) -> bool:
        """Goes on with an answer that was cut off (None: the last message).

        Where something follows it, that stays with it, and a copy is gone on with.
        """
        conversation = self._open[conversation_id]
        message = conversation.messages.get(message_id or conversation.active_leaf_id or "")
        if message is None or not can_continue(message):
            self._warn("nothing_to_continue", tr("This answer is complete."), conversation_id)
            return False
        if not self._can_ask(conversation_id):
            return False
        if conversation.children(message.message_id):
            message = replace(message, message_id=new_id(), created_at=time.time())
            conversation.insert(message)
        elif conversation.active_leaf_id != message.message_id:
            conversation.show_version(message.message_id)
        submission = Submission.rest_of(conversation, message)
        message.params = message.params or self._sampling(conversation)
        message.status = MessageStatus.STREAMING
        message.error = None
        times = int(message.facts.get(CONTINUED, 0)) + 1
        message.facts = {**message.facts, CONTINUED: times}
        self._ask_on_another_branch(submission)
        return True

    def repeat(self, conversation_id: str, message_id: str) -> bool:
        """Runs an answer again with the same prompt, parameters and seed, as another version."""
        conversation = self._open[conversation_id]
        old = conversation.message(message_id)
        obstacle = why_not_repeat(conversation, old, self.model_state.info)
        if obstacle:
            self._warn("not_repeatable", obstacle, conversation_id)
            return False
        if not self._can_ask(conversation_id):
            return False
        assert old.params is not None
        params = replace(old.params, seed=old.seed)
        if old.turn is not None and old.finish_reason != "stop":
            # It ended early: compare what can be compared.
            params = replace(params, max_tokens=max(1, len(old.turn.output_ids)))
        again = Message(ASSISTANT, "", old.parent_id, status=MessageStatus.STREAMING)
        again.params, again.facts = params, {REPEATS: old.message_id}
        context = conversation.context(old.parent_id)
        if old.num_dropped:
            context = ContextPolicy(OverflowPolicy.DROP_OLDEST, old.num_dropped)
        previous = conversation.active_leaf_id
        conversation.show_version(old.message_id)
        conversation.insert(again)
        self._ask_on_another_branch(Submission.of(conversation, [again], previous, context=context))
        return True

    # --- parts ---

    def _insert_answers(
        self, conversation: Conversation, question: Message, num_answers: int
    ) -> list[Message]:
        """Empty answers below ``question``; the first one is shown."""
        if not 1 <= num_answers <= MAX_ANSWERS:
            raise ValueError(f"{num_answers} answers: 1 to {MAX_ANSWERS}")
        num_dropped = conversation.num_dropped(question.message_id)
        answers = []
        for _ in range(num_answers):
            answer = Message(
                ASSISTANT,
                "",
                question.message_id,
                status=MessageStatus.STREAMING,
                params=self._sampling(conversation),
                num_dropped=num_dropped,
            )
            if num_answers > 1:
                answer.facts = {ASKED_FOR: num_answers}
            answers.append(conversation.insert(answer))
        conversation.active_leaf_id = answers[0].message_id
        return answers

    def _sampling(self, conversation: Conversation) -> SamplingParams:
        return conversation.params or self._settings.values.sampling

    def _ask_on_another_branch(self, submission: Submission) -> None:
        conversation = submission.conversation
        conversation_id = conversation.conversation_id
        messages = [answer.message for answer in submission.answers]
        with self._store.together():
            self._store.save_conversation(conversation)
            for message in messages:
                self._store.save_message(conversation_id, message)
        self.path_changed.emit(conversation_id)
        self._show_side_by_side(conversation_id, messages)
        self._answers.ask(submission)

    def _show_side_by_side(self, conversation_id: str, answers: list[Message]) -> None:
        several = tuple(answer.message_id for answer in answers) if len(answers) > 1 else ()
        self._set_compared(conversation_id, several)

    def _can_ask(self, conversation_id: str) -> bool:
        if self._answers.is_busy(conversation_id):
            error = ErrorInfo(
                "answer_running",
                "This conversation is still being answered.",
                "Wait for the answer, or stop it.",
            )
            self.notice_raised.emit(Notice(Severity.WARNING, error, conversation_id))
            return False
        if self.wake_model():
            return True
        if self.model_state.status in (ModelStatus.NO_MODEL, ModelStatus.FAILED):
            self._refuse(NoModelError("No model is loaded."), conversation_id)
            return False
        return True

    def _refuse(self, error: EngineError, conversation_id: str) -> None:
        self.notice_raised.emit(Notice(Severity.WARNING, error.info(), conversation_id))

    def _warn(self, code: str, words: str, conversation_id: str) -> None:
        error = ErrorInfo(code, words)
        self.notice_raised.emit(Notice(Severity.WARNING, error, conversation_id))
