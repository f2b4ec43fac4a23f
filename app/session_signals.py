"""The signals of the session, apart from it so that its parts can emit them."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal


class SessionSignals(QObject):
    """Ids are strings. All are emitted on the GUI thread, after the change.

    conversation_added(conversation_id): new, opened or forked; it is open now.
    conversation_closed(conversation_id): its tab goes; ``reopen_conversation`` undoes it.
    conversation_changed(conversation_id): title, number, system prompt or overflow policy.
    order_changed(): the tabs stand in another order.
    active_conversation_changed(conversation_id)
    path_changed(conversation_id): the shown branch is another one; show it anew.
    message_added(conversation_id, message_id): at the end of the shown branch.
    message_removed(conversation_id, message_id): it was the last of the shown branch.
    text_appended(conversation_id, message_id, text): at most once a drain for each message.
    message_changed(conversation_id, message_id): status, usage, error, versions, or what the model
        reads of the messages before it.
    messages_deleted(conversation_id): or brought back; ``Session.num_deleted`` tells how many.
    comparison_changed(conversation_id): see ``Session.compared``.
    request_state_changed(conversation_id): see ``Session.request_state``.
    answer_ended(conversation_id, MessageStatus): how what was asked for last ended; ``ERROR`` and
        ``STOPPED`` also where nothing had come and the messages are as they were before.
    model_state_changed(): see ``Session.model_state``.
    model_library_requested(path): somebody wants to see the models; empty for the loaded one.
    draft_restored(conversation_id, text): a message that could not be sent; put it into the
        composer, before what is there.
    cache_pin_changed(conversation_id): see ``Session.is_kept_in_cache``.
    outlook_changed(conversation_id): see ``Session.outlook``.
    stored_changed(): conversations that are not open came, went or were filed elsewhere.
    conversations_deleted(): see ``Filing.last_deletion``.
    search_finished(SearchResult): what the last ``Conversations.search`` found.
    notice_raised(Notice)
    program_restart_requested(): only a new process can go on.
    default_system_prompt_changed(text)
    settings_changed(names): a frozenset of fields of ``Values``.
    """

    conversation_added = Signal(str)
    conversation_closed = Signal(str)
    conversation_changed = Signal(str)
    order_changed = Signal()
    active_conversation_changed = Signal(str)
    path_changed = Signal(str)
    message_added = Signal(str, str)
    message_removed = Signal(str, str)
    text_appended = Signal(str, str, str)
    message_changed = Signal(str, str)
    messages_deleted = Signal(str)
    comparison_changed = Signal(str)
    request_state_changed = Signal(str)
    answer_ended = Signal(str, object)
    model_state_changed = Signal()
    model_library_requested = Signal(str)
    draft_restored = Signal(str, str)
    cache_pin_changed = Signal(str)
    outlook_changed = Signal(str)
    stored_changed = Signal()
    conversations_deleted = Signal()
    search_finished = Signal(object)
    notice_raised = Signal(object)
    program_restart_requested = Signal()
    default_system_prompt_changed = Signal(str)
    settings_changed = Signal(object)
