"""The session's conversations: restarts, closing, names, what is in front, a full disk."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.app_error import StoreWriteError
from app.conversation import MessageStatus
from app.session_state import Severity
from engine.api.commands import Cancel, SetFocus
from tests.helpers.session_stage import SessionStage as Stage
from tests.helpers.session_stage import session_stage


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    with session_stage(tmp_path / "profile", qtbot) as made:
        yield made


def test_everything_survives_a_restart(stage: Stage) -> None:
    stage.start()
    first, second = stage.session.new_conversation(), stage.session.new_conversation("Other.")
    stage.session.send(first, "kept")
    stage.wait_idle(first)
    stage.session.set_draft(second, "half a thought")
    stage.session.rename(second, "Named")
    stage.session.set_order([second, first])
    stage.session.set_active_conversation(first)
    stage.session.set_window_state("geometry", "AAAA")
    before = stage.session.conversation(first)
    stage.restart()
    assert stage.session.conversation_ids() == [second, first]
    assert stage.session.active_conversation_id == first
    assert stage.session.window_state("geometry") == "AAAA"
    after = stage.session.conversation(first)
    assert after.chat_messages() == before.chat_messages()
    assert after.path()[-1].turn is not None
    assert (after.title, after.number) == ("kept", before.number)
    other = stage.session.conversation(second)
    assert (other.title, other.draft, other.system_prompt) == ("Named", "half a thought", "Other.")


def test_the_first_turn_after_a_restart_sends_the_stored_ids(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "one")
    stage.wait_idle(conversation_id)
    turn = stage.path(conversation_id)[-1].turn
    stage.restart()
    stage.start()
    stage.session.send(conversation_id, "two")
    stage.wait_idle(conversation_id)
    assert stage.submits()[0].messages[2].turn == turn


def test_quitting_while_streaming_keeps_the_text_as_interrupted(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "go on")
    stage.wait(lambda: len(stage.path(conversation_id)[-1].content) > 20)
    stage.restart()
    answer = stage.path(conversation_id)[-1]
    assert answer.status is MessageStatus.INTERRUPTED
    assert len(answer.content) > 20
    assert not stage.session.is_busy(conversation_id)


def test_a_closed_conversation_is_stored_and_can_be_opened_again(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "kept")
    stage.wait_idle(conversation_id)
    stage.session.close_conversation(conversation_id)
    assert stage.session.conversation_ids() == []
    stage.restart()
    assert stage.session.conversation_ids() == []
    assert [s.title for s in stage.session.closed_conversations()] == ["kept"]
    assert stage.session.reopen_conversation(conversation_id)
    assert len(stage.path(conversation_id)) == 2


def test_closing_an_answering_conversation_cancels_and_keeps_the_text(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "go on")
    stage.wait(lambda: len(stage.path(conversation_id)[-1].content) > 20)
    stage.session.close_conversation(conversation_id)
    said = len(stage.said)
    stage.wait(lambda: any(isinstance(c, Cancel) for c in stage.engine.commands))
    stage.qtbot.wait(50)
    assert len(stage.said) == said
    assert stage.session.reopen_conversation(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.STOPPED


def test_an_empty_closed_conversation_is_deleted_but_closing_can_be_undone(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation()
    stage.session.close_conversation(conversation_id)
    stage.store.flush()
    assert stage.session.closed_conversations() == []
    assert stage.session.reopen_conversation(conversation_id)
    stage.restart()
    assert stage.session.conversation_ids() == [conversation_id]


def test_opening_what_is_not_there_is_a_notice(stage: Stage) -> None:
    assert not stage.session.reopen_conversation("nobody")
    assert stage.codes() == ["conversation_not_found"]


def test_numbers_are_the_smallest_free_ones_and_are_not_reused_within_a_run(stage: Stage) -> None:
    def numbers() -> list[int]:
        ids = stage.session.conversation_ids()
        return [stage.session.conversation(i).number for i in ids]

    ids = [stage.session.new_conversation() for _ in range(3)]
    assert numbers() == [1, 2, 3]
    stage.session.close_conversation(ids[1])
    stage.session.new_conversation()
    assert numbers() == [1, 3, 4]
    stage.session.reopen_conversation(ids[1])
    assert numbers() == [1, 3, 4, 2]


def test_new_conversations_share_the_default_system_prompt(stage: Stage) -> None:
    empty, own = stage.session.new_conversation(), stage.session.new_conversation("Mine.")
    stage.session.set_default_system_prompt("Shared.")
    new = stage.session.new_conversation()
    prompts = [stage.session.conversation(i).system_prompt for i in (empty, own, new)]
    assert prompts == ["Shared.", "Mine.", "Shared."]
    stage.restart()
    assert stage.session.default_system_prompt == "Shared."


def test_an_empty_name_brings_back_the_automatic_title(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.rename(conversation_id, "Mine")
    stage.session.send(conversation_id, "Question")
    stage.wait_idle(conversation_id)
    assert stage.session.conversation(conversation_id).title == "Mine"
    stage.session.rename(conversation_id, " ")
    assert stage.session.conversation(conversation_id).title == "Question"


def test_the_engine_is_told_what_is_in_front(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.set_active_conversation(conversation_id)
    stage.wait(lambda: SetFocus(conversation_id) in stage.engine.commands)


def test_trouble_with_the_disk_becomes_a_notice(stage: Stage) -> None:
    stage.store.on_error(StoreWriteError("disk full"))
    stage.store.on_recovered()
    stage.wait(lambda: len(stage.notices) == 2)
    assert [(n.error.code, n.severity) for n in stage.notices] == [
        ("store_write", Severity.ERROR),
        ("store_recovered", Severity.INFO),
    ]


def test_damaged_settings_become_a_notice(stage: Stage) -> None:
    stage.profile.settings_file.write_text('{"theme": "pink"}', "utf-8")
    stage.restart()
    stage.session.raise_stored_problems()
    assert stage.codes() == ["invalid_setting"]


def test_lone_surrogates_do_not_reach_the_engine_or_the_store(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation("a\ud800")
    assert stage.session.send(conversation_id, "b\udfff")
    stage.wait_idle(conversation_id)
    stage.restart()
    assert stage.path(conversation_id)[0].content == "b?"
    assert stage.notices == []


def test_opening_does_not_wait_for_an_import_that_is_being_stored(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "old")
    stage.wait_idle(conversation_id)
    stage.session.close_conversation(conversation_id)
    stage.restart()
    begun, ended = threading.Event(), threading.Event()

    def store_many(_connection: sqlite3.Connection) -> None:
        begun.set()
        ended.wait(2.0)

    stage.store._put("conversations", "many", store_many)
    assert begun.wait(2.0)
    before = time.monotonic()
    assert stage.session.reopen_conversation(conversation_id)
    assert time.monotonic() - before < 1.0
    ended.set()


def test_opening_waits_for_what_was_saved_of_a_conversation(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation()
    stage.session.set_draft(conversation_id, "half a thought")
    stage.session.close_conversation(conversation_id)
    for _ in range(21):
        stage.session.close_conversation(stage.session.new_conversation())
    with stage.store.together():
        # Until then nothing is written.
        stage.session.rename(stage.session.new_conversation(), "Other")
    assert stage.session.reopen_conversation(conversation_id)
    assert stage.session.conversation(conversation_id).draft == "half a thought"
