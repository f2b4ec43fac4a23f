"""What a start brings back: tabs in their order, the one in front, drafts, where it was read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PySide6.QtWidgets import QAbstractSlider
from pytestqt.qtbot import QtBot

from app.application import QuireApplication
from app.command_line import Options
from app.conversation import Attachment
from app.paths import Profile
from app.settings import Settings
from app.store import Store
from tests.helpers.fake_engine import FakeEngine
from tests.helpers.stored import saved

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support")


@contextmanager
def application(profile: Profile, qtbot: QtBot) -> Iterator[QuireApplication]:
    made = QuireApplication(Options(), Settings(None), Store(profile), FakeEngine)
    made.window.resize(1000, 700)
    made.show()
    qtbot.waitUntil(lambda: made.first_paint_ms is not None)
    yield made
    made.close()


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    profile = Profile(tmp_path / "張 庭 é's dir")
    store = Store(profile)
    for name in ("one", "two", "three"):
        saved(store, *(f"{name} {n} " + "words " * 60 for n in range(30)))
    store.close()
    return profile


def test_tabs_drafts_and_attachments_come_back(profile: Profile, qtbot: QtBot) -> None:
    with application(profile, qtbot) as made:
        window, session = made.window, made.session
        ids = list(reversed(session.conversation_ids()))
        session.set_order(ids)
        window.show_conversation(ids[1])
        composer = window.tab_area.page(ids[1]).composer
        composer.edit.setPlainText("half a thought 缓存")
        composer.attachments.add_item(Attachment("笔记.txt", "text of the file"))
    with application(profile, qtbot) as made:
        window, session = made.window, made.session
        assert session.conversation_ids() == ids
        assert window.tab_area.tabs.ids() == ids
        assert window.tab_area.tabs.current_id() == ids[1]
        composer = window.tab_area.page(ids[1]).composer
        assert composer.typed_text() == "half a thought 缓存"
        assert composer.attachments.items == (Attachment("笔记.txt", "text of the file"),)


def test_each_tab_is_where_it_was_scrolled_to(profile: Profile, qtbot: QtBot) -> None:
    def top(made: QuireApplication, conversation_id: str) -> tuple[str, int]:
        place = made.window.tab_area.page(conversation_id).transcript.view_state().place
        assert place is not None
        return place.item.view.message_id, place.char

    with application(profile, qtbot) as made:
        window = made.window
        first, second, third = made.session.conversation_ids()
        for conversation_id, pages_up in ((first, 6), (second, 0), (third, 3)):
            window.show_conversation(conversation_id)
            transcript = window.tab_area.page(conversation_id).transcript
            bar = transcript.verticalScrollBar()
            qtbot.waitUntil(lambda bar=bar: bar.maximum() > 1000)
            for _ in range(pages_up):
                bar.triggerAction(QAbstractSlider.SliderAction.SliderPageStepSub)
        before = {each: top(made, each) for each in (first, third)}
        assert window.tab_area.page(second).transcript.follows
    with application(profile, qtbot) as made:
        for conversation_id in (first, third):
            made.window.show_conversation(conversation_id)
            qtbot.waitUntil(lambda c=conversation_id: top(made, c) == before[c])
        made.window.show_conversation(second)
        transcript = made.window.tab_area.page(second).transcript
        qtbot.waitUntil(lambda: transcript.verticalScrollBar().maximum() > 1000)
        assert transcript.follows


def test_places_that_make_no_sense_are_left_out(profile: Profile, qtbot: QtBot) -> None:
    store = Store(profile)
    (first, *_) = store.open_ids()
    store.set_state("window.scroll_places", f'{{"{first}": [1, "x"], "other": 7}}')
    store.close()
    with application(profile, qtbot) as made:
        made.window.show_conversation(first)
        assert made.window.tab_area.page(first).transcript.items
