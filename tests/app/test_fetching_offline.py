"""The page on which models are fetched without a network, and the token of the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.fetching.run import State
from app.theme import ThemeManager
from app.widgets.fetching.page import FetchPage
from app.widgets.fetching.service import FetchService
from tests.helpers.fetching_page import TOKEN, FakeKeyring, Stage, models_hub
from tests.helpers.hub_server import HubServer, cut_after

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


def labels(widget: QWidget) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if label.isVisible())


def test_offline_is_said_and_searching_is_off_until_the_network_is_back(stage: Stage) -> None:
    stage.page._probe_timer.setInterval(50)
    stage.hub.stop()
    stage.service.probe()
    stage.qtbot.waitUntil(lambda: not stage.page.edit.isEnabled())
    assert stage.page.banner.label.text().startswith("Offline: 127.0.0.1 cannot be reached.")
    assert "Models on this computer work" in stage.page.banner.label.text()
    assert stage.page.edit.toolTip() == "127.0.0.1 cannot be reached."
    stage.hub.start()
    stage.qtbot.waitUntil(stage.page.edit.isEnabled)
    assert not stage.page.banner.isVisible()
    assert not stage.page._probe_timer.isActive()


def test_what_could_not_be_asked_without_a_network_is_asked_when_it_is_back(stage: Stage) -> None:
    stage.page._probe_timer.setInterval(50)
    stage.hub.stop()
    stage.service.search("tiny", None)
    stage.service.choose("org/tiny-GGUF")
    stage.qtbot.waitUntil(lambda: stage.service.shown.error is not None)
    stage.qtbot.waitUntil(lambda: stage.service.findings.error is not None)
    assert "cannot be reached" in labels(stage.page.repository)
    stage.hub.start()
    stage.qtbot.waitUntil(lambda: stage.service.shown.repository is not None)
    stage.qtbot.waitUntil(lambda: bool(stage.service.findings.results))
    assert "cannot be reached" not in labels(stage.page)


def test_the_page_says_at_once_that_there_is_no_network(
    qtbot: QtBot, hub: HubServer, tmp_path: Path
) -> None:
    hub.stop()
    stage = Stage(qtbot, hub, tmp_path)
    qtbot.waitUntil(stage.page.banner.isVisible)
    hub.start()
    stage.page.banner.button.click()
    qtbot.waitUntil(lambda: not stage.page.banner.isVisible())


def test_nobody_uses_the_network_before_the_page_is_shown(
    qtbot: QtBot, hub: HubServer, tmp_path: Path
) -> None:
    service = FetchService(tmp_path, hub.endpoint, find_keyring=lambda: None)
    page = FetchPage(service, ThemeManager("light"))
    qtbot.addWidget(page)
    qtbot.wait(100)
    assert hub.seen == []


def test_a_fetch_that_loses_the_network_goes_on_by_itself(stage: Stage) -> None:
    stage.hub.faults = [cut_after(50_000)]
    stage.choose()
    stage.hub.stop()
    stage.qtbot.mouseClick(stage.view.button, Qt.MouseButton.LeftButton)
    stage.wait(State.OFFLINE)
    assert stage.row.status.text().startswith("No connection to 127.0.0.1. Goes on by itself")
    assert stage.page.banner.isVisible()
    stage.hub.start()
    stage.wait(State.DONE)
    stage.qtbot.waitUntil(lambda: not stage.page.banner.isVisible())


def test_a_gated_model_asks_for_the_token_before_it_is_fetched(
    qtbot: QtBot, hub: HubServer, tmp_path: Path
) -> None:
    hub.token = TOKEN
    keyring = FakeKeyring()
    stage = Stage(qtbot, hub, tmp_path, keyring)
    stage.choose("org/gated-GGUF")
    assert stage.view.gate.isVisible()
    assert not stage.view.button.isEnabled()
    dialog = stage.page.show_token()
    assert dialog.status.text() == "No token is kept."
    dialog.edit.setText(TOKEN)
    dialog.save_button.click()
    qtbot.waitUntil(lambda: dialog.status.text() == "The token is in the system's keyring.")
    assert dialog.edit.text() == ""
    dialog.close()
    assert keyring.kept == {"127.0.0.1": TOKEN}
    assert not stage.view.gate.isVisible()
    qtbot.mouseClick(stage.view.button, Qt.MouseButton.LeftButton)
    stage.wait(State.DONE)
    assert stage.service.close(5.0)


def test_without_a_keyring_the_window_says_that_the_token_is_for_this_session(
    stage: Stage,
) -> None:
    dialog = stage.page.show_token()
    dialog.edit.setText(TOKEN)
    dialog.save_button.click()
    words = "This system has no keyring: the token is kept until Quire ends."
    stage.qtbot.waitUntil(lambda: dialog.status.text() == words)
    dialog.remove_button.click()
    stage.qtbot.waitUntil(lambda: dialog.status.text() == "No token is kept.")
    dialog.close()


def test_the_token_is_never_shown(stage: Stage) -> None:
    stage.service.set_token(TOKEN)
    stage.qtbot.waitUntil(lambda: stage.service.has_token)
    dialog = stage.page.show_token()
    assert TOKEN not in labels(dialog) + dialog.edit.text()
    assert dialog.edit.echoMode() == dialog.edit.EchoMode.Password
    dialog.close()
