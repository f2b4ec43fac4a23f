"""Locks, paths and databases as on Windows, run here with the platform mocked."""

from __future__ import annotations

import importlib
import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from app import network_drive, paths, single_instance
from app.app_error import DataDirectoryInUseError
from app.diagnostics import redacted
from app.network_drive import file_system_of, is_on_network, is_share
from app.paths import Profile
from app.store import Store
from app.store_schema import open_database
from app.store_uri import sqlite_uri
from tests.helpers.stored import contents, loaded, saved
from tests.helpers.windows_libraries import Library, libraries


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")


# --- locks ----------------------------------------------------------------------------------------


class Msvcrt:
    """``msvcrt.locking`` on one file that two descriptors of this process have open."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def __init__(self) -> None:
        self.holder: int | None = None
        self.calls: list[tuple[int, int]] = []

    def locking(self, file: int, mode: int, num_bytes: int) -> None:
        assert num_bytes == 1
        self.calls.append((mode, os.lseek(file, 0, os.SEEK_CUR)))
        if mode == self.LK_UNLCK:
            if self.holder != file:
                raise PermissionError(13, "Permission denied")
            self.holder = None
        elif self.holder is not None:
            raise PermissionError(13, "Permission denied")
        else:
            self.holder = file


@pytest.fixture
def windows_lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Msvcrt]:
    """``app.single_instance`` as Windows imports it."""
    msvcrt = Msvcrt()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        patch.setitem(sys.modules, "msvcrt", msvcrt)  # type: ignore[arg-type]
        importlib.reload(single_instance)
        yield msvcrt
    importlib.reload(single_instance)


def test_profile_is_locked_on_windows(windows_lock: Msvcrt, tmp_path: Path) -> None:
    lock = single_instance.DirectoryLock(tmp_path / "profile.lock")
    with pytest.raises(DataDirectoryInUseError):
        single_instance.DirectoryLock(tmp_path / "profile.lock")
    lock.release()
    single_instance.DirectoryLock(tmp_path / "profile.lock").release()


def test_lock_is_given_back_before_the_file_is_closed(windows_lock: Msvcrt, tmp_path: Path) -> None:
    # Windows alone takes its time after closing; the next process is started at once.
    lock = single_instance.DirectoryLock(tmp_path / "profile.lock")
    lock.release()
    lock.release()
    assert windows_lock.calls == [(Msvcrt.LK_NBLCK, 0), (Msvcrt.LK_UNLCK, 0)]


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        (PureWindowsPath(r"C:\Data\張 é\x.sqlite3"), "file:///C:/Data/"),
        (PureWindowsPath(r"\\server\share\x.sqlite3"), "file:////server/share/x.sqlite3"),
        (PurePosixPath("/home-of/a?b#c.sqlite3"), "file:///home-of/a%3Fb%23c.sqlite3"),
    ],
)
def test_database_on_a_share_has_an_address_that_sqlite_takes(
    path: PureWindowsPath | PurePosixPath, uri: str
) -> None:
    assert sqlite_uri(path).startswith(uri)
    # SQLite refuses an address with a server before it looks at the path.
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(sqlite3.OperationalError) as refused:
            connection.execute("ATTACH ? AS other", (f"{sqlite_uri(path)}?mode=ro",))
        assert "authority" not in str(refused.value)


def test_database_under_any_name_is_read_by_its_address(tmp_path: Path) -> None:
    database = tmp_path / "張 é?#%.sqlite3"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE here (x)")
    with closing(sqlite3.connect(f"{sqlite_uri(database)}?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("here",)]


# In parts, so that it is nobody's.
HOME = "\\".join(("C:", "Users", "Zhang"))
MODEL = "\\".join((HOME, "models", "a.gguf"))


@pytest.mark.parametrize(
    "text",
    [MODEL, json.dumps({"path": MODEL}), MODEL.replace("\\", "/"), MODEL.lower()],
    ids=["plain", "json", "slashes", "lower"],
)
def test_report_names_no_users_folder_of_windows(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: PureWindowsPath(HOME))
    assert "zhang" not in redacted(text).lower()
    assert re.search(r"~[\\/]+models[\\/]+a\.gguf", redacted(text))


def test_conversations_and_models_lie_outside_of_the_programs_folder(
    windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platformdirs.user_data_dir", lambda name, appauthor: f"LOCAL/{name}")
    monkeypatch.delenv(paths.MODELS_DIR_VARIABLE, raising=False)
    assert paths.data_dir() == Path("LOCAL/Quire/profile")
    assert paths.models_dir() == Path("LOCAL/Quire/models")


# --- network drives -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drive", "expected"),
    [
        ("C:", False),
        (r"\\server\share", True),
        (r"\\?\C:", False),
        (r"\\?\UNC\server\share", True),
        (r"\\.\pipe", False),
    ],
)
def test_share_is_told_from_a_disk(drive: str, expected: bool) -> None:
    assert is_share(drive) is expected


@pytest.mark.parametrize(("answer", "expected"), [(3, False), (4, True)])
def test_letter_of_a_share_is_asked_for(
    windows: None, monkeypatch: pytest.MonkeyPatch, answer: int, expected: bool
) -> None:
    kernel32 = Library(GetDriveTypeW=answer)
    libraries(monkeypatch, kernel32=kernel32)
    monkeypatch.setattr(os.path, "realpath", str)
    assert is_on_network(PureWindowsPath("Z:\\chats")) is expected  # type: ignore[arg-type]
    assert kernel32.calls == [("GetDriveTypeW", "Z:\\")]


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /home rw shared:2 - ext4 /dev/vdb rw
31 30 0:27 / /srv/share\\040of\\040\\345\\274\\265 rw - cifs //server/share rw
32 22 0:28 / /net rw - nfs4 server:/net rw
33 22 0:29 / /net rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib", "ext4"),
        ("/srv/share of 張/chats", "cifs"),
        ("/srv/share of 張x", "ext4"),
        ("/net/chats", "tmpfs"),
    ],
)
def test_file_system_is_that_of_the_deepest_and_latest_mount(path: str, expected: str) -> None:
    assert file_system_of(PurePosixPath(path), MOUNTS) == expected


@pytest.fixture
def network_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    monkeypatch.setattr("app.store_schema.is_on_network", lambda path: True)
    return Profile(tmp_path / "share")


def test_database_on_a_network_drive_has_no_wal(network_profile: Profile) -> None:
    store = Store(network_profile)
    conversation = saved(store, "question", "answer")
    assert contents(loaded(store, conversation)) == ["question", "answer"]
    names = {path.name for path in network_profile.data_dir.iterdir()}
    store.close()
    # Bytes 18 and 19 of the file: 1 for a rollback journal, 2 for WAL.
    assert network_profile.database.read_bytes()[18:20] == b"\x01\x01"
    assert not any(name.endswith(("-wal", "-shm")) for name in names)


def test_profile_that_moves_to_a_network_drive_keeps_everything(
    network_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("app.store_schema.is_on_network", lambda path: False)
        store = Store(network_profile)
        conversation = saved(store, "question")
        store.close()
    store = Store(network_profile)
    found = loaded(store, conversation)
    store.close()
    assert contents(found) == ["question"]


def test_journal_of_a_killed_process_is_put_aside_with_its_database(
    network_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Left behind, it would be played into the new database.
    Store(network_profile).close()
    journal = network_profile.database.with_name(network_profile.database.name + "-journal")
    journal.write_bytes(b"a journal")

    def refuse_once(database: Path, *, check: bool = True) -> sqlite3.Connection:
        monkeypatch.setattr("app.store_files.open_database", open_database)
        raise sqlite3.DatabaseError("malformed")

    monkeypatch.setattr("app.store_files.open_database", refuse_once)
    Store(network_profile).close()
    kept = sorted(path.name for path in network_profile.data_dir.glob("*.damaged-*"))
    assert [name.rpartition(".sqlite3")[2] for name in kept] == ["", "-journal"]


def test_unknown_mounts_are_taken_for_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_drive, "_MOUNTS", tmp_path / "none")
    assert not is_on_network(tmp_path)
