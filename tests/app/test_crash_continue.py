"""An answer that a crash cut off goes on from the ids that were stored with its text."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.bridge import Bridge
from app.conversation import MessageStatus
from app.paths import Profile, models_dir
from app.session import Session
from app.settings import Settings
from app.store import Store
from engine.api.client import start_engine
from engine.api.commands import Continue
from tests.helpers import run_app
from tests.helpers.session_stage import session_stage
from tests.helpers.starter import starter_gguf
from tests.helpers.word_encoder import words_of

BUSY_CHILD = Path(run_app.__file__).with_name("busy_child.py")
ANSWER = "One two three four five 缓存 seven eight nine ten. " * 30


def crashed(profile: Profile, folder: Path) -> Path:
    """The database as a process that ends now would leave it."""
    folder.mkdir()
    with (
        closing(sqlite3.connect(profile.database)) as database,
        closing(sqlite3.connect(Profile(folder).database)) as copy,
    ):
        database.backup(copy)
    return folder


def stored_length(profile: Profile) -> int:
    with closing(sqlite3.connect(profile.database)) as database:
        rows = database.execute("SELECT length(content) FROM messages WHERE status = 'streaming'")
        return sum(row[0] for row in rows)


def test_after_a_crash_an_answer_goes_on_from_its_stored_ids(tmp_path: Path, qtbot: QtBot) -> None:
    with session_stage(tmp_path / "before", qtbot) as stage:
        stage.restart(script=lambda _submit: ANSWER, tokens_per_s=100.0)
        stage.start()
        conversation_id = stage.session.new_conversation()
        assert stage.session.send(conversation_id, "question")
        # Nothing else is saved: the text gets there by itself, in less than a second.
        stage.wait(lambda: stored_length(stage.profile) > 30)
        left = crashed(stage.profile, tmp_path / "after")
    with session_stage(left, qtbot) as stage:
        stage.restart(script=lambda _submit: ANSWER)
        cut = stage.path(conversation_id)[-1]
        content, turn = cut.content, cut.turn
        assert cut.status is MessageStatus.INTERRUPTED
        assert ANSWER.startswith(content)
        assert turn is not None
        assert len(turn.output_ids) == len(words_of(content))
        stage.start()
        assert stage.session.continue_answer(conversation_id)
        stage.wait_idle(conversation_id)
        (command,) = [c for c in stage.engine.commands if isinstance(c, Continue)]
        assert command.messages[-1].content == content
        assert command.messages[-1].turn == turn
        answer = stage.path(conversation_id)[-1]
        assert (answer.status, answer.content.strip()) == (MessageStatus.DONE, ANSWER.strip())
        assert len(stage.path(conversation_id)) == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_the_real_engine_goes_on_after_a_kill_as_if_there_had_been_none(
    tmp_path: Path, qtbot: QtBot
) -> None:
    starter_gguf()
    profile = Profile(tmp_path / "張 庭 é's dir")
    profile.data_dir.mkdir()
    engine = {"device": "cpu", "dtype": "float32", "num_blocks": 200, "num_threads": 1}
    sampling = {"temperature": 0.9, "max_tokens": 400}
    stored = json.dumps({"engine": engine, "sampling": sampling})
    profile.settings_file.write_text(stored, "utf-8")
    child = subprocess.Popen(
        [sys.executable, str(BUSY_CHILD), "decode", str(profile.data_dir), str(models_dir())],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "reached\n"
    qtbot.waitUntil(lambda: stored_length(profile) > 60, timeout=60_000)
    child.kill()
    child.communicate()
    settings = Settings(profile.settings_file)
    settings.change(sampling=replace(settings.values.sampling, max_tokens=24))
    store = Store(profile)
    bridge = Bridge(start_engine)
    session = Session(bridge, store, settings, str(models_dir()))
    bridge.start()
    session.load_model()
    (conversation_id,) = session.conversation_ids()
    conversation = session.conversation(conversation_id)
    answer = conversation.path()[-1]
    cut = answer.content
    assert answer.status is MessageStatus.INTERRUPTED
    answer.params = settings.values.sampling
    qtbot.waitUntil(lambda: session.model_state.info is not None, timeout=60_000)
    assert session.continue_answer(conversation_id)
    qtbot.waitUntil(lambda: not session.is_busy(conversation_id), timeout=60_000)
    assert answer.content.startswith(cut)
    assert len(answer.content) > len(cut)
    # The whole again, in one go, with the seed that was stored before the kill.
    assert session.repeat(conversation_id, answer.message_id)
    qtbot.waitUntil(lambda: not session.is_busy(conversation_id), timeout=60_000)
    again = conversation.path()[-1]
    shorter = min(len(again.content), len(answer.content))
    assert shorter > len(cut)
    assert again.content[:shorter] == answer.content[:shorter]
    session.shut_down()
    assert bridge.close(10.0)
    store.close()
