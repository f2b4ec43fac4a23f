"""Conversations on disk when something is wrong: killed, locked, damaged, newer, full."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.app_error import (
    DataDirectoryError,
    DataDirectoryInUseError,
    StoreTooNewError,
)
from app.conversation import ASSISTANT, Message, MessageStatus
from app.paths import Profile
from app.store import Store
from app.store_schema import SCHEMA_VERSION, connect
from tests.helpers.stored import contents, loaded, saved

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path / "張 庭 é's dir")


@pytest.fixture
def store(profile: Profile) -> Iterator[Store]:
    store = Store(profile)
    yield store
    store.close()


_WRITER = """
import sys, time
from pathlib import Path
from app.conversation import *
from app.paths import Profile
from app.store import Store
store = Store(Profile(Path(sys.argv[1])))
conversation = Conversation(conversation_id="c")
store.save_conversation(conversation)
conversation.append(Message("user", "question"))
answer = conversation.append(Message("assistant", "", status=MessageStatus.STREAMING))
for message in conversation.path():
    store.save_message("c", message)
store.save_conversation(conversation)
store.flush()
n = 0
while True:
    n += 1
    answer.content += f"{n} "
    store.save_partial(answer)
    print(n, flush=True)
    time.sleep(0.01)
"""


def test_a_killed_process_loses_at_most_a_second_and_its_lock(profile: Profile) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(profile.data_dir)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    seen = 0
    for line in writer.stdout:
        seen = int(line)
        if seen == 120:
            break
    writer.kill()
    rest = writer.stdout.read().split()
    writer.stdout.close()
    writer.wait()
    last = int(rest[-1]) if rest else seen
    store = Store(profile)
    conversation = store.load_conversation("c")
    store.close()
    assert conversation is not None
    answer = conversation.path()[-1]
    assert answer.status is MessageStatus.INTERRUPTED
    assert last - int(answer.content.split()[-1]) <= 100


def test_a_second_process_is_told_that_the_profile_is_in_use(
    profile: Profile, store: Store
) -> None:
    program = (
        "import sys; from pathlib import Path; from app.paths import Profile;"
        "from app.store import Store; Store(Profile(Path(sys.argv[1])))"
    )
    second = subprocess.run(
        [sys.executable, "-c", program, str(profile.data_dir)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    assert "DataDirectoryInUseError" in second.stderr
    assert second.returncode == 1


def test_the_same_process_is_told_too_and_the_first_one_goes_on(
    profile: Profile, store: Store
) -> None:
    with pytest.raises(DataDirectoryInUseError):
        Store(profile)
    assert contents(loaded(store, saved(store, "still here"))) == ["still here"]


def test_two_profiles_can_be_open(tmp_path: Path, store: Store) -> None:
    Store(Profile(tmp_path / "other")).close()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataDirectoryError, match="cannot be used"):
        Store(Profile(tmp_path / "file" / "data"))


def test_a_newer_schema_is_refused_and_left_alone(profile: Profile, store: Store) -> None:
    store.close()
    connection = connect(profile.database)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(StoreTooNewError, match=f"schema {SCHEMA_VERSION + 1}"):
        Store(profile)
    connection = connect(profile.database)
    assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION + 1
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.close()
    # The refusal gave the lock back.
    Store(profile).close()


@pytest.mark.parametrize(
    "damage", [b"not a database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 5000]
)
def test_a_damaged_database_is_kept_and_a_new_one_begun(profile: Profile, damage: bytes) -> None:
    profile.data_dir.mkdir(parents=True)
    profile.database.write_bytes(damage)
    store = Store(profile)
    assert [problem.code for problem in store.problems] == ["store_damaged"]
    assert contents(loaded(store, saved(store, "new"))) == ["new"]
    store.close()
    kept = list(profile.data_dir.glob("*.damaged-*.sqlite3"))
    assert [file.read_bytes() for file in kept] == [damage]


def test_a_database_of_another_program_is_put_aside(profile: Profile) -> None:
    profile.data_dir.mkdir(parents=True)
    other = sqlite3.connect(profile.database)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    store = Store(profile)
    store.close()
    assert [problem.code for problem in store.problems] == ["store_damaged"]
    assert len(list(profile.data_dir.glob("*.damaged-*.sqlite3"))) == 1


class FullDisk:
    """Makes SQLite itself refuse to grow the file, as on a full disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connections: list[sqlite3.Connection] = []

        def connecting(database: Path) -> sqlite3.Connection:
            self.connections.append(connect(database))
            return self.connections[-1]

        monkeypatch.setattr("app.store_files.connect", connecting)
        monkeypatch.setattr("app.store_writer.RETRY_INTERVAL_S", 0.05)

    def set_full(self, full: bool) -> None:
        writer = self.connections[-1]
        pages = writer.execute("PRAGMA page_count").fetchone()[0] if full else 1 << 30
        writer.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_reported_once_and_everything_is_written_when_there_is_space(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    errors: list[str] = []
    recovered: list[bool] = []
    store = Store(profile, lambda error: errors.append(str(error)), lambda: recovered.append(True))
    old = saved(store, "stored before")
    store.flush()
    disk.set_full(True)
    new = saved(store, "x" * 100_000)
    assert not store.flush(2.0)
    time.sleep(0.3)
    assert len(errors) == 1
    assert "full" in errors[0]
    found = store.load_conversation(old.conversation_id)
    assert found is not None
    assert contents(found) == ["stored before"]
    disk.set_full(False)
    assert contents(loaded(store, new)) == ["x" * 100_000]
    assert recovered == [True]
    store.close()


def test_closing_on_a_full_disk_ends_and_says_so(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    store = Store(profile)
    saved(store, "stored before")
    store.flush()
    disk.set_full(True)
    saved(store, "x" * 100_000)
    assert not store.close(2.0)


class FullFromTheStart:
    """A disk on which no file can be made or grown until there is ``space``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.space = False

        def connecting(database: Path) -> sqlite3.Connection:
            if not self.space:
                raise sqlite3.OperationalError("database or disk is full")
            return connect(database)

        monkeypatch.setattr("app.store_files.connect", connecting)
        monkeypatch.setattr("app.store_schema.connect", connecting)
        monkeypatch.setattr("app.store_writer.RETRY_INTERVAL_S", 0.05)


def test_a_disk_that_is_full_at_the_start_shows_what_is_stored_and_recovers(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Store(profile)
    old = saved(before, "stored before")
    before.close()
    disk = FullFromTheStart(monkeypatch)
    store = Store(profile)
    assert [problem.code for problem in store.problems] == ["store_write"]
    assert [s.title for s in store.summaries()] == ["stored before"]
    new = saved(store, "new")
    assert not store.flush(0.5)
    disk.space = True
    assert contents(loaded(store, new)) == ["new"]
    assert contents(loaded(store, old)) == ["stored before"]
    store.close()


def test_a_new_profile_on_a_full_disk_works_and_is_made_when_there_is_space(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullFromTheStart(monkeypatch)
    store = Store(profile)
    assert store.summaries() == []
    conversation = saved(store, "kept in memory")
    assert not store.flush(0.5)
    disk.space = True
    assert contents(loaded(store, conversation)) == ["kept in memory"]
    store.close()


def test_a_late_partial_text_does_not_replace_the_finished_one(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    store = Store(profile)
    conversation = saved(store, "question")
    answer = conversation.append(Message(ASSISTANT, "", status=MessageStatus.STREAMING))
    store.save_message(conversation.conversation_id, answer)
    store.save_conversation(conversation)
    store.flush()
    disk.set_full(True)
    answer.status, answer.content = MessageStatus.DONE, "whole " * 20_000
    store.save_message(conversation.conversation_id, answer)
    store.save_partial(Message(ASSISTANT, "part", message_id=answer.message_id))
    assert not store.flush(1.0)
    disk.set_full(False)
    assert contents(loaded(store, conversation))[-1] == answer.content
    store.close()
