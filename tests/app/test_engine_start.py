"""When the engine starts: after the cache panel is made, but never because of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from app import application as subject
from app.application import QuireApplication
from app.cache_panel.panel import CachePanel
from app.command_line import Options
from app.paths import Profile
from app.session_state import ModelStatus
from app.settings import Settings
from app.store import Store
from tests.helpers.fake_engine import FakeEngine

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support")


@contextmanager
def started(tmp_path: Path, qtbot: QtBot) -> Iterator[tuple[QuireApplication, list[bool]]]:
    """An application, and whether the panel was made when the engine started; empty before."""
    was_made: list[bool] = []

    def engine() -> FakeEngine:
        was_made.append(made.window.cache_panel.live is not None)
        return FakeEngine()

    made = QuireApplication(Options(), Settings(None), Store(Profile(tmp_path)), engine)
    try:
        yield made, was_made
    finally:
        if not made._is_closed:
            made.close()


def show(application: QuireApplication, qtbot: QtBot) -> None:
    application.show()
    qtbot.waitUntil(lambda: application.first_paint_ms is not None)


def never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CachePanel, "_has_numpy", lambda _panel: False)


def test_the_engine_starts_when_the_panel_is_made(
    tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_PANEL_MS", 60_000)
    with started(tmp_path, qtbot) as (application, was_made):
        show(application, qtbot)
        qtbot.waitUntil(lambda: application.session.model_state.status is ModelStatus.READY)
        assert was_made == [True]


def test_a_panel_that_is_not_made_does_not_keep_the_engine_from_starting(
    tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_PANEL_MS", 50)
    never_made(monkeypatch)
    with started(tmp_path, qtbot) as (application, was_made):
        show(application, qtbot)
        qtbot.waitUntil(lambda: application.session.model_state.status is ModelStatus.READY)
        assert was_made == [False]


def test_a_panel_that_is_hidden_is_not_waited_for(
    tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_PANEL_MS", 60_000)
    with started(tmp_path, qtbot) as (application, was_made):
        application.window.actions_registry["toggle_cache_panel"].trigger()
        assert not application.window.cache_panel.isVisible()
        show(application, qtbot)
        qtbot.waitUntil(lambda: was_made == [False])


def test_an_application_that_is_closed_meanwhile_starts_no_engine(
    tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_PANEL_MS", 100)
    never_made(monkeypatch)
    with started(tmp_path, qtbot) as (application, was_made):
        show(application, qtbot)
        qtbot.waitUntil(application._engine_timer.isActive)
    qtbot.wait(200)
    assert was_made == []
    assert application.session.model_state.status is ModelStatus.STARTING


def test_an_application_that_is_closed_at_its_first_paint_starts_nothing(
    tmp_path: Path, qtbot: QtBot
) -> None:
    with started(tmp_path, qtbot) as (application, was_made):
        application.window.first_painted.connect(lambda: QTimer.singleShot(0, application.close))
        application.show()
        qtbot.waitUntil(lambda: application._is_closed)
        # The rest of the start was put off by two rounds of the loop.
        qtbot.wait(100)
        assert was_made == []
        assert application._raise_server is None
        assert application._signals is None
