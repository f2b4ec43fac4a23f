"""Windows moves and removes no file that is open: whatever we replace has been closed before."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app import logs
from app.conversation import USER, Conversation, Message
from app.diagnostics import Entry, write_bundle
from app.exporting_files import write_json, write_markdown
from app.paths import Profile
from app.prompt_files import write_prompts
from app.settings import Settings
from app.store import Store
from app.store_prompts import SystemPrompt
from engine.api import files
from engine.api.files import discard, replace_file
from engine.loading.model_folder import open_model
from tests.helpers.stored import back_to_schema_3, saved
from tests.helpers.tiny_gguf import TinyGguf
from tests.helpers.window_stage import window_stage
from tests.helpers.windows_files import apply, everything_below

needs_proc = pytest.mark.skipif(
    sys.platform != "linux", reason="reads /proc; Windows needs no help"
)


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path / "張 庭 é's dir")


@pytest.fixture
def windows_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    apply(monkeypatch)


class Held:
    """``os.replace`` as on Windows, with another program that has the file open at first."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.calls = 0

    def __call__(self, source: Path, target: Path) -> None:
        self.calls += 1
        if self.calls <= self.refusals:
            raise PermissionError(13, "The process cannot access the file", str(source))
        source.rename(target)


def made() -> Conversation:
    conversation = Conversation(conversation_id="c", title="T")
    conversation.append(Message(USER, "question"))
    return conversation


# --- what other programs hold ---------------------------------------------------------------------


def test_file_that_a_scanner_holds_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(refusals=3)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(files.os, "replace", held)
    (tmp_path / "new").write_text("new")
    replace_file(tmp_path / "new", tmp_path / "old")
    assert held.calls == 4
    assert (tmp_path / "old").read_text() == "new"


def test_file_that_is_held_for_good_is_an_error_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(files, "PATIENCE_S", 0.05)
    monkeypatch.setattr(files.os, "replace", Held(refusals=10**6))
    with pytest.raises(PermissionError):
        replace_file(tmp_path / "new", tmp_path / "old")


def test_refusal_elsewhere_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(refusals=10**6)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(files.os, "replace", held)
    with pytest.raises(PermissionError):
        replace_file(tmp_path / "new", tmp_path / "old")
    assert held.calls == 1


def test_what_cannot_be_removed_stays_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("x")

    def refuse(*_path: object, **_more: object) -> None:
        raise PermissionError(13, "held")

    monkeypatch.setattr(Path, "unlink", refuse)
    discard(tmp_path / "x")
    assert (tmp_path / "x").exists()


# --- what we hold ourselves -----------------------------------------------------------------------


@needs_proc
def test_the_rule_itself_refuses_what_is_open(windows_rules: None, tmp_path: Path) -> None:
    with (tmp_path / "a").open("w"):
        with pytest.raises(PermissionError, match="cannot access"):
            (tmp_path / "a").replace(tmp_path / "b")
        with pytest.raises(PermissionError, match="cannot access"):
            (tmp_path / "a").unlink()
    (tmp_path / "a").replace(tmp_path / "b")


@needs_proc
def test_settings_are_written_again_and_again(windows_rules: None, profile: Profile) -> None:
    settings = Settings(profile.settings_file)
    settings.change(theme="dark")
    settings.change(theme="light")
    assert Settings(profile.settings_file).values.theme == "light"


@needs_proc
def test_damaged_settings_are_kept_beside(windows_rules: None, profile: Profile) -> None:
    profile.data_dir.mkdir(parents=True)
    profile.settings_file.write_text("{", encoding="utf-8")
    Settings(profile.settings_file).change(theme="dark")
    assert everything_below(profile.data_dir) == ["settings.damaged.json", "settings.json"]


@needs_proc
def test_damaged_database_is_put_aside(windows_rules: None, profile: Profile) -> None:
    profile.data_dir.mkdir(parents=True)
    profile.database.write_bytes(b"no database" * 1000)
    store = Store(profile)
    store.close()
    assert [problem.code for problem in store.problems] == ["store_damaged"]
    assert len(list(profile.data_dir.glob("*.damaged-*.sqlite3"))) == 1


@needs_proc
def test_older_database_is_copied_and_brought_up(windows_rules: None, profile: Profile) -> None:
    store = Store(profile)
    saved(store, "question")
    store.close()
    with closing(sqlite3.connect(profile.database)) as connection:
        back_to_schema_3(connection)
    again = Store(profile)
    again.close()
    assert again.problems == []
    assert profile.database.with_name("conversations.schema-3.sqlite3").exists()


@needs_proc
def test_exports_take_the_place_of_old_ones(windows_rules: None, tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text("old")
    list(write_json([made()], tmp_path / "all.json", 1))
    list(write_markdown([made()], tmp_path, "", "You", "Answer", 1))
    write_prompts([SystemPrompt("p", "name", "text", 0.0, 0.0)], tmp_path / "p.json")
    write_bundle(tmp_path / "d.zip", [Entry("a.json", "{}")])
    assert everything_below(tmp_path) == ["T.md", "all.json", "d.zip", "p.json"]
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["conversations"]


@needs_proc
def test_export_that_is_given_up_leaves_nothing(windows_rules: None, tmp_path: Path) -> None:
    work = write_json([made(), made()], tmp_path / "all.json", 2)
    next(work)
    work.close()
    assert everything_below(tmp_path) == []


@needs_proc
@pytest.mark.parametrize("stopped", [False, True])
def test_pdf_is_closed_before_it_gets_its_name(
    windows_rules: None, qtbot: QtBot, tmp_path: Path, stopped: bool
) -> None:
    with window_stage(qtbot) as stage:
        stage.page.submit("question")
        page_id = stage.page.conversation_id
        qtbot.waitUntil(lambda: not stage.session.is_busy(page_id), timeout=8000)
        jobs = stage.window.reading.jobs
        assert jobs.write_pdf(stage.page.transcript, "T", tmp_path / "x.pdf")
        if stopped:
            jobs.stop()
        qtbot.waitUntil(lambda: not jobs.is_busy, timeout=20_000)
    assert everything_below(tmp_path) == ([] if stopped else ["x.pdf"])


@pytest.fixture
def long_log(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "quire.log"
    path.write_bytes(b"x" * (logs.MAX_LOG_BYTES + 1))
    yield path
    logs.close_log()


@needs_proc
def test_log_that_somebody_reads_grows_on(windows_rules: None, long_log: Path) -> None:
    with long_log.open("rb"):
        logs.open_log(long_log)
        logging.getLogger("app").info("a new line")
    assert everything_below(long_log.parent) == ["quire.log"]
    assert long_log.read_bytes().endswith(b"a new line\n")


@needs_proc
def test_damaged_expanded_model_is_made_anew(windows_rules: None, tmp_path: Path) -> None:
    source = TinyGguf().write(tmp_path / "tiny.gguf")
    models = tmp_path / "models"
    folder = open_model(source, models).folder
    (folder / "config.json").unlink()
    assert open_model(source, models).folder == folder
    assert (folder / "config.json").exists()
    assert [path.name for path in models.iterdir()] == [folder.name]
