"""The diagnostics bundle: what is in it, and what never is."""

from __future__ import annotations

import json
import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import logs
from app.diagnostics import Entry, collect, redacted, write_bundle
from app.settings import Settings
from app.versions import DEPENDENCIES, VERSION
from engine.api.params import EngineConfig, SamplingParams
from tests.helpers.fake_engine import MODEL
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with window_stage(qtbot) as made:
        yield made


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("using hf_AbCdEfGhIjKlMnOp now", "hf_AbCdEfGhIjKlMnOp"),
        ("key sk-1234567890abcdef", "sk-1234567890abcdef"),
        ("Authorization: Bearer abc.def.ghi123", "abc.def.ghi123"),
        ("https://user:hunter2@host/path", "hunter2"),
        ("api_key=0123456789", "0123456789"),
        ("password: swordfish", "swordfish"),
    ],
)
def test_secrets_are_struck_out(text: str, secret: str) -> None:
    assert secret not in redacted(text)
    assert "[struck out]" in redacted(text)


def test_ordinary_words_stay() -> None:
    text = "12 tokens of prompt 3 computed; task-1234567890 done; token budget 2048"
    assert redacted(text) == text


def test_the_users_folder_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/users/zhang"))
    assert redacted("/users/zhang/models/a.gguf") == "~/models/a.gguf"


def test_the_users_own_words_are_not_in_the_settings(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "settings.json")
    settings.change(
        default_system_prompt="You are my secret diary.",
        sampling=SamplingParams(stop=("private words",), top_k=3),
        engine=EngineConfig(token_budget=64),
    )
    entries = {e.name: e.text for e in collect(settings, None, MODEL, None, None, {"qt": "6"})}
    assert json.loads(entries["settings.json"]) == {
        "sampling": {"top_k": 3},
        "engine": {"token_budget": 64},
    }
    assert not any("diary" in text or "private" in text for text in entries.values())
    assert json.loads(entries["versions.json"])["Quire"] == VERSION
    assert json.loads(entries["engine.json"])["model"]["name"] == "Scripted"
    assert json.loads(entries["system.json"])["qt"] == "6"


def test_the_log_and_the_one_before_it_are_there(tmp_path: Path) -> None:
    log = tmp_path / "quire.log"
    log.write_text("new line, password=swordfish\n", "utf-8")
    log.with_name("quire.log.1").write_text("old line\n", "utf-8")
    entries = {e.name: e.text for e in collect(Settings(None), log, None, None, None, {})}
    assert entries["quire.log.1"] == "old line\n"
    assert entries["quire.log"] == "new line, [struck out]\n"


def test_the_open_log_is_known(tmp_path: Path) -> None:
    assert logs.log_file() is None
    logs.open_log(tmp_path / "quire.log")
    assert logs.log_file() == tmp_path / "quire.log"
    logs.close_log()
    assert logs.log_file() is None


def test_a_bundle_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    write_bundle(path, [Entry("a.txt", "張")])
    with zipfile.ZipFile(path) as bundle:
        assert bundle.read("a.txt").decode("utf-8") == "張"
    with pytest.raises(OSError, match="absent"):
        write_bundle(tmp_path / "absent" / "b.zip", [Entry("a.txt", "x")])
    assert [p.name for p in tmp_path.iterdir()] == ["bundle.zip"]


def test_chat_text_is_in_it_only_if_ticked(stage: Stage, tmp_path: Path, qtbot) -> None:
    conversation_id = stage.page.conversation_id
    stage.session.rename(conversation_id, "Xylophone title")
    stage.page.submit("The xylophone question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
    stage.page.composer.edit.setPlainText("a xylophone draft")
    stage.window.preferences.show_diagnostics()
    window = stage.window.preferences._open["diagnostics"]
    shown = [window.list.item(row).text() for row in range(window.list.count())]
    assert len(shown) == len(window._entries) >= 5
    assert not any("xylophone" in entry.text.lower() for entry in window._entries)
    window.text_box.click()
    assert "xylophone question" in window.preview.toPlainText()
    assert window.save(tmp_path / "b.zip")
    assert "b.zip" in window.outcome.text()
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        assert "conversation.json" in bundle.namelist()
    window.close()


def test_the_log_of_a_chat_has_no_chat_text(stage: Stage, tmp_path: Path, qtbot) -> None:
    logs.open_log(tmp_path / "quire.log")
    try:
        conversation_id = stage.page.conversation_id
        stage.page.submit("The xylophone question")
        qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
        stage.session.rename(conversation_id, "xylophone")
        stage.session.regenerate(conversation_id)
        qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
        logging.getLogger("x").info("the log works")
    finally:
        logs.close_log()
    log = (tmp_path / "quire.log").read_text("utf-8")
    assert "the log works" in log
    assert "xylophone" not in log.lower()


def test_a_bundle_that_cannot_be_written_says_why(stage: Stage, tmp_path: Path) -> None:
    stage.window.preferences.show_diagnostics()
    window = stage.window.preferences._open["diagnostics"]
    assert not window.save(tmp_path / "absent" / "b.zip")
    assert window.outcome.text().startswith("b.zip cannot be written: ")
    window.close()


# --- about ---


def test_the_version_is_that_of_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'\nversion = "{VERSION}"\n' in text


def test_every_dependency_is_listed() -> None:
    lines = (ROOT / "packaging" / "requirements.txt").read_text("utf-8").splitlines()
    names = [line.partition("==")[0].strip() for line in lines if "==" in line and line[0] != "#"]
    assert sorted(names) == sorted(DEPENDENCIES)


def test_about_shows_versions_and_licences_without_importing_them(stage: Stage, qtbot) -> None:
    stage.window.preferences.show_about()
    window = stage.window.preferences._open["about"]
    qtbot.waitUntil(lambda: window.table.rowCount() > 5)
    assert f"Quire {VERSION}" in window.versions.text()
    rows = range(window.table.rowCount())
    licences = {window.table.item(row, 0).text(): window.table.item(row, 2).text() for row in rows}
    assert "LGPL-3.0" in licences["PySide6-Essentials"]
    assert all(licences.values())
    window.close()
