"""Searching a hub and choosing what to fetch: what the page says before anything is fetched."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.fetching import partial
from app.fetching.catalogue import Kind
from app.settings import Values
from engine.api.errors import InvalidValueError
from tests.helpers.fetching_page import TOKEN, FakeKeyring, Stage, models_hub
from tests.helpers.hub_server import HubServer, Seen, status

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with models_hub() as server:
        yield server


@pytest.fixture
def stage(qtbot: QtBot, hub: HubServer, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(qtbot, hub, tmp_path)
    yield made
    assert made.service.close(5.0)


def test_results_say_parameters_downloads_licence_and_terms(stage: Stage) -> None:
    stage.search()
    spoken = [
        stage.page.model.index(row).data(Qt.ItemDataRole.AccessibleTextRole)
        for row in range(stage.page.model.rowCount())
    ]
    assert "org/tiny-GGUF, 135 M · 1,234 downloads · apache-2.0" in spoken
    assert "org/gated-GGUF, 1,234 downloads · apache-2.0 · terms to accept" in spoken


def test_a_search_without_results_says_so(stage: Stage) -> None:
    stage.search("nothing like this")
    assert stage.page.status.text() == "No model has this name."


def test_more_results_are_added_below(stage: Stage) -> None:
    stage.hub.page_size = 3
    stage.search()
    assert stage.page.model.rowCount() == 3
    stage.page.more_button.click()
    stage.qtbot.waitUntil(lambda: stage.page.model.rowCount() == 4)
    assert not stage.page.more_button.isVisible()


def test_a_later_search_overtakes_an_earlier(stage: Stage) -> None:
    stage.service.search("tiny", Kind.GGUF)
    stage.service.search("split", Kind.GGUF)
    stage.qtbot.waitUntil(lambda: not stage.service.findings.is_busy)
    stage.qtbot.wait(50)
    assert [r.repo_id for r in stage.service.findings.results] == ["org/split"]


def test_a_hub_that_asks_to_wait_is_quoted(stage: Stage) -> None:
    stage.hub.api_faults = [status(429, Retry_After="30")]
    stage.search()
    assert stage.page.status.text().startswith("The hub asks to wait 30 s")


def test_a_choice_shows_licence_sizes_and_fit_before_it_is_fetched(stage: Stage) -> None:
    stage.choose()
    assert stage.view.facts.text() == "Licence: apache-2.0 · 1,234 downloads"
    spoken = [
        stage.view.model.index(row).data(Qt.ItemDataRole.AccessibleTextRole) for row in range(3)
    ]
    assert spoken == ["Q2_K, 90 KB, fits", "Q4_K_M, 205 KB, fits", "Q8_0, 410 KB, fits"]
    # The usual one is proposed.
    assert stage.view.choice.key == "Q4_K_M"
    assert stage.view.button.text() == "Fetch (205 KB)"
    assert stage.view.button.isEnabled()


def test_what_does_not_fit_into_memory_is_said_and_can_be_fetched(stage: Stage) -> None:
    stage.service.free_memory = lambda: 100_000
    stage.choose()
    stage.view.list.setCurrentIndex(stage.view.model.index(2))
    assert "only 100 KB of memory are free" in stage.view.fit.text()
    assert stage.view.button.isEnabled()


def test_what_does_not_fit_on_the_disk_cannot_be_fetched(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(stage.models_dir.parent)
    monkeypatch.setattr(partial.shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    stage.choose()
    assert stage.view.fit.text().startswith("Does not fit on the disk:")
    assert stage.view.fit.property("tone") == "error"
    assert not stage.view.button.isEnabled()


def test_pickles_are_not_offered_and_it_is_said_why(stage: Stage) -> None:
    stage.choose("org/pickle")
    assert stage.view.note.text().startswith("Its weights are pickled files only.")
    assert not stage.view.button.isVisible()


def test_text_of_the_hub_is_plain(stage: Stage) -> None:
    stage.hub.repos["org/tiny-GGUF"].licence = "<b>mit</b>\u202e"
    stage.choose()
    assert "Licence: <b>mit</b> ·" in stage.view.facts.text()
    rich = [
        label.text()
        for label in stage.page.findChildren(QLabel)
        if label.textFormat() is not Qt.TextFormat.PlainText and "<" in label.text()
    ]
    assert rich == []


def test_the_window_does_not_wait_for_a_slow_hub_or_keyring(
    qtbot: QtBot, hub: HubServer, tmp_path: Path
) -> None:
    class Slow(FakeKeyring):
        def get_password(self, service: str, username: str) -> str | None:
            time.sleep(0.3)
            return super().get_password(service, username)

    def late(_handler: object, _content: bytes, _offset: int) -> bool:
        time.sleep(0.3)
        return False

    hub.api_faults = [late] * 2
    stage = Stage(qtbot, hub, tmp_path, Slow())
    ticks: list[int] = []
    timer = QTimer()
    timer.timeout.connect(lambda: ticks.append(1))
    timer.start(5)
    stage.service.set_token(TOKEN)
    stage.choose()
    timer.stop()
    # More than 0.6 s passed; waiting in this thread would have let through a handful.
    assert len(ticks) > 20
    assert stage.service.close(5.0)


def test_another_hub_is_asked_from_now_on_and_gets_no_foreign_token(
    qtbot: QtBot, hub: HubServer, tmp_path: Path
) -> None:
    keyring = FakeKeyring()
    keyring.kept["localhost"] = TOKEN
    stage = Stage(qtbot, hub, tmp_path, keyring)
    stage.service.use_endpoint(f"http://localhost:{hub.port}")
    assert stage.page.edit.placeholderText().startswith("Search localhost,")
    stage.search()
    assert stage.page.model.rowCount() == 4
    assert searches(hub)[-1].headers["authorization"] == f"Bearer {TOKEN}"
    stage.service.use_endpoint(hub.endpoint)
    assert stage.page.model.rowCount() == 0
    stage.search()
    assert len(searches(hub)) == 2
    assert "authorization" not in searches(hub)[-1].headers
    assert stage.service.close(5.0)


def searches(hub: HubServer) -> list[Seen]:
    return [seen for seen in hub.seen if seen.path.startswith("/api/models?")]


@pytest.mark.parametrize(
    "address",
    [
        *("hub.example", "ftp://hub.example", "https://me:pw@hub", "x y"),
        *("https://[hub", "https://[hub]", "https://hub:port", "https://hub:0"),
    ],
)
def test_an_address_that_is_none_is_refused_by_the_settings(address: str) -> None:
    with pytest.raises(InvalidValueError):
        Values(hub_endpoint=address)
    assert Values(hub_endpoint="https://hub.example/mirror").hub_endpoint
    assert Values(hub_endpoint="http://[::1]:8080").hub_endpoint
