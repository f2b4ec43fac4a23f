"""Pinning, folders, archive, deleting with undo: open and stored conversations alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.session_stage import SessionStage, session_stage
from tests.helpers.stored import saved


@pytest.fixture
def stage(tmp_path: Path, qtbot) -> Iterator[SessionStage]:
    with session_stage(tmp_path, qtbot) as made:
        yield made


def opened_and_stored(stage: SessionStage) -> list[str]:
    """Ids of an open and of a stored conversation, each with a message."""
    stage.start()
    open_id = stage.session.new_conversation()
    stage.session.send(open_id, "An open question")
    stage.wait_idle(open_id)
    stored = saved(stage.store, "A stored question", "answer")
    stage.store.change_conversation(stored.conversation_id, is_open=False)
    return [open_id, stored.conversation_id]


def summaries(stage: SessionStage) -> dict[str, object]:
    assert stage.store.flush()
    return {s.conversation_id: s for s in stage.store.summaries()}


def test_labels_of_open_and_stored_ones_survive_a_restart(stage: SessionStage) -> None:
    ids = opened_and_stored(stage)
    stage.session.set_folder(ids, " Work\n")
    stage.session.set_pinned(ids, True)
    stage.restart()
    found = summaries(stage)
    assert [(found[i].pinned, found[i].folder) for i in ids] == [(True, "Work")] * 2
    assert stage.session.folders() == ["Work"]


def test_a_label_of_a_closed_one_is_kept_when_it_is_opened_again(stage: SessionStage) -> None:
    open_id, _stored_id = opened_and_stored(stage)
    stage.session.close_conversation(open_id)
    stage.session.set_folder([open_id], "Work")
    stage.session.rename(open_id, "Mine")
    stage.session.reopen_conversation(open_id)
    conversation = stage.session.conversation(open_id)
    assert (conversation.folder, conversation.title) == ("Work", "Mine")


def test_a_stored_one_is_renamed_and_named_automatically_again(stage: SessionStage) -> None:
    _open_id, stored_id = opened_and_stored(stage)
    stage.session.rename(stored_id, "Mine")
    assert summaries(stage)[stored_id].title == "Mine"
    stage.session.rename(stored_id, " ")
    assert summaries(stage)[stored_id].title == "A stored question"


def test_a_folder_gets_another_name_or_none(stage: SessionStage) -> None:
    ids = opened_and_stored(stage)
    stage.session.set_folder(ids, "Work")
    stage.session.rename_folder("Work", "Play")
    assert {s.folder for s in summaries(stage).values()} == {"Play"}
    stage.session.rename_folder("Play", "")
    assert stage.session.folders() == []


def test_what_is_moved_into_a_folder_leaves_the_place_where_it_was(stage: SessionStage) -> None:
    ids = opened_and_stored(stage)
    stage.session.set_pinned(ids, True)
    stage.session.set_folder(ids, "")
    assert all(summaries(stage)[i].pinned for i in ids)
    stage.session.set_folder(ids, "Work")
    assert not any(summaries(stage)[i].pinned for i in ids)


def test_archiving_closes_and_filing_brings_back(stage: SessionStage) -> None:
    ids = opened_and_stored(stage)
    stage.session.set_archived(ids, True)
    assert ids[0] not in stage.session.conversation_ids()
    assert all(summaries(stage)[i].archived for i in ids)
    stage.session.set_folder(ids[1:], "Work")
    stage.session.set_archived(ids[:1], False)
    assert not any(summaries(stage)[i].archived for i in ids)


def test_deleting_is_undone_with_all_messages_and_the_tab(stage: SessionStage) -> None:
    ids = opened_and_stored(stage)
    before = [m.content for m in stage.path(ids[0])]
    stage.session.delete_conversations(ids)
    assert not summaries(stage).keys() & set(ids)
    assert stage.session.undo_delete_conversations()
    assert summaries(stage).keys() >= set(ids)
    assert [m.content for m in stage.path(ids[0])] == before
    assert ids[1] not in stage.session.conversation_ids()
    assert not stage.session.undo_delete_conversations()


def test_deletions_are_undone_one_by_one_the_last_first(stage: SessionStage) -> None:
    ids = opened_and_stored(stage)
    for conversation_id in ids:
        stage.session.delete_conversations([conversation_id])
    assert stage.session.last_deletion.conversation_ids == (ids[1],)
    stage.session.undo_delete_conversations()
    assert stage.session.last_deletion.conversation_ids == (ids[0],)


def test_what_was_deleted_is_listed_after_a_restart_and_can_be_restored(
    stage: SessionStage,
) -> None:
    _open_id, stored_id = opened_and_stored(stage)
    stage.session.delete_conversations([stored_id])
    stage.restart()
    assert [s.conversation_id for s in stage.session.deleted_conversations()] == [stored_id]
    stage.session.restore_conversations([stored_id])
    assert stored_id in summaries(stage)


def test_only_what_was_deleted_before_can_be_erased(stage: SessionStage) -> None:
    ids = opened_and_stored(stage)
    stage.session.delete_conversations(ids[1:])
    stage.session.erase_conversations(ids)
    assert stage.session.deleted_conversations() == []
    assert stage.session.last_deletion is None
    assert summaries(stage).keys() == {ids[0]}


def test_an_answer_that_runs_stops_when_its_conversation_is_deleted(stage: SessionStage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "A long story")
    stage.wait(lambda: bool(stage.path(conversation_id)[-1].content))
    stage.session.delete_conversations([conversation_id])
    assert not stage.session.is_busy(conversation_id)
    stage.session.undo_delete_conversations()
    assert stage.path(conversation_id)[-1].content


def test_an_empty_one_is_gone_without_an_undo(stage: SessionStage, qtbot) -> None:
    _open_id, stored_id = opened_and_stored(stage)
    empty = stage.session.new_conversation()
    stage.session.delete_conversations([stored_id])
    with qtbot.assertNotEmitted(stage.session.conversations_deleted):
        stage.session.delete_conversations([empty])
    assert empty not in stage.session.conversation_ids()
    assert stage.session.last_deletion.conversation_ids == (stored_id,)


def test_a_deleted_one_that_is_opened_is_brought_back_for_good(stage: SessionStage) -> None:
    _open_id, stored_id = opened_and_stored(stage)
    stage.session.delete_conversations([stored_id])
    stage.restart()
    stage.start()
    assert stage.session.reopen_conversation(stored_id)
    assert stage.session.deleted_conversations() == []
    stage.session.send(stored_id, "A new question")
    stage.wait_idle(stored_id)
    stage.restart()
    assert stored_id in stage.session.conversation_ids()
    assert "A new question" in [m.content for m in stage.path(stored_id)]
    assert stage.session.deleted_conversations() == []


def test_what_was_opened_again_is_not_what_an_undo_brings_back(stage: SessionStage, qtbot) -> None:
    ids = opened_and_stored(stage)
    for conversation_id in ids:
        stage.session.delete_conversations([conversation_id])
    with qtbot.waitSignal(stage.session.conversations_deleted):
        stage.session.reopen_conversation(ids[1])
    assert stage.session.last_deletion.conversation_ids == (ids[0],)
    assert stage.session.undo_delete_conversations()
    assert stage.session.deleted_conversations() == []
    assert not stage.session.undo_delete_conversations()


def test_an_undo_of_what_is_no_longer_deleted_is_offered_once(stage: SessionStage) -> None:
    _open_id, stored_id = opened_and_stored(stage)
    stage.session.delete_conversations([stored_id])
    stage.store.set_conversation_deleted(stored_id, False)
    assert stage.session.undo_delete_conversations()
    assert not stage.session.undo_delete_conversations()


def test_bringing_back_what_is_not_deleted_tells_nothing(stage: SessionStage, qtbot) -> None:
    ids = opened_and_stored(stage)
    with qtbot.assertNotEmitted(stage.session.conversations_deleted):
        stage.session.restore_conversations(ids)
