"""The searcher's thread, and finding messages from the side bar."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.conversation import ASSISTANT, USER, Conversation, Message
from app.search import Searcher
from app.store_search import SearchHit, SearchResult
from app.widgets.search_results import fitting_text, result_words
from tests.helpers.listed import listed
from tests.helpers.window_stage import Stage, import_indexed, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

CONTROL = Qt.KeyboardModifier.ControlModifier
HIT = SearchHit("c", "m", "title", USER, 0.0, "snippet", ())


# --- the thread ---


def test_only_the_newest_question_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, began = threading.Event(), threading.Event()

    def find(_connection: object, query: str) -> SearchResult:
        began.set()
        go_on.wait(5.0)
        return SearchResult(query)

    monkeypatch.setattr("app.search.find_messages", find)
    (tmp_path / "x.sqlite3").touch()
    found: list[str] = []
    searcher = Searcher(tmp_path / "x.sqlite3", lambda result: found.append(result.query))
    started = time.perf_counter()
    searcher.ask("first")
    assert began.wait(5.0)
    searcher.ask("second")
    searcher.ask("third")
    assert time.perf_counter() - started < 1.0
    go_on.set()
    deadline = time.monotonic() + 5.0
    while not found and time.monotonic() < deadline:
        time.sleep(0.005)
    searcher.close()
    assert found == ["third"]


def answer(database: Path) -> SearchResult:
    """What a searcher says to a question."""
    found: list[SearchResult] = []
    arrived = threading.Event()

    def on_found(result: SearchResult) -> None:
        found.append(result)
        arrived.set()

    searcher = Searcher(database, on_found)
    searcher.ask("x")
    assert arrived.wait(20.0)
    searcher.close()
    return found[0]


def test_a_database_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    assert "unable to open" in answer(tmp_path / "none.sqlite3").error
    assert not list(tmp_path.iterdir())


def test_a_database_on_a_share_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # SQLite takes no address that names a server.
    monkeypatch.setattr(
        Path, "as_uri", lambda path: f"file://server{path.as_posix()}", raising=False
    )
    monkeypatch.setattr("app.search.find_messages", lambda _connection, query: SearchResult(query))
    (tmp_path / "x.sqlite3").touch()
    assert answer(tmp_path / "x.sqlite3").error == ""


def test_a_long_search_is_broken_off_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    began, arrived = threading.Event(), threading.Event()

    def find(connection, query: str) -> SearchResult:
        began.set()
        if query == "slow":
            connection.execute(slow).fetchone()
        connection.execute("SELECT 1").fetchone()
        return SearchResult(query)

    monkeypatch.setattr("app.search.find_messages", find)
    (tmp_path / "x.sqlite3").touch()
    found: list[SearchResult] = []

    def on_found(result: SearchResult) -> None:
        found.append(result)
        arrived.set()

    searcher = Searcher(tmp_path / "x.sqlite3", on_found)
    searcher.ask("slow")
    assert began.wait(5.0)
    time.sleep(0.05)
    searcher.ask("quick")
    assert arrived.wait(5.0)
    searcher.ask("slow")
    time.sleep(0.05)
    # Closing does not wait for it either.
    started = time.perf_counter()
    searcher.close()
    assert time.perf_counter() - started < 2.0
    assert found == [SearchResult("quick")]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (SearchResult("x"), "No message says this."),
        (SearchResult("x", (HIT,)), "1 message"),
        (SearchResult("x", (HIT, HIT), False), "2 messages Some older messages were not searched."),
        (SearchResult("x", (HIT,) * 50, False), "The newest 50 messages"),
        (SearchResult("x", error="locked"), "The messages cannot be searched: locked"),
    ],
)
def test_what_was_found_in_words(result: SearchResult, words: str) -> None:
    assert result_words(result) == words


@pytest.mark.parametrize("text", ["word " * 40, "缓存块" * 40, "🦓" * 90, "word 🦓 缓存 " * 20])
def test_a_long_snippet_is_cut_to_two_lines(qapp, text: str) -> None:
    cut = fitting_text(text, 200.0)
    assert cut.endswith("…")
    assert text.startswith(cut[:-1])
    assert fitting_text(cut, 200.0) == cut
    assert len(cut) > 10


def test_a_short_snippet_stays_whole(qapp) -> None:
    assert fitting_text("🦓 short", 200.0) == "🦓 short"
    assert fitting_text("", 200.0) == ""


# --- the side bar ---


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


def stored(stage: Stage, title: str, *texts: str) -> Conversation:
    """A stored conversation that is not open."""
    conversation = Conversation(title=title, title_is_automatic=False)
    for number, text in enumerate(texts):
        conversation.append(Message(USER if number % 2 == 0 else ASSISTANT, text))
    other = Conversation(title="Another one", title_is_automatic=False)
    other.append(Message(USER, "Nothing of it here."))
    import_indexed(stage, [conversation, other])
    return conversation


def find(stage: Stage, qtbot, text: str) -> None:
    """Types into the search field, as after Ctrl+Shift+F, and waits for what is found."""
    stage.window.actions_registry["search"].trigger()
    assert stage.window.side_bar.search.hasFocus()
    # An answer to an earlier question may still be on its way.
    finished = stage.session.search_finished
    with qtbot.waitSignal(finished, check_params_cb=lambda result: result.query == text.strip()):
        stage.window.side_bar.search.setText(text)


def snippets(stage: Stage) -> list[str]:
    model = stage.window.side_bar.results.model
    return [str(model.index(n).data()) for n in range(model.rowCount())]


def test_a_stored_message_is_found_and_opened_with_enter(stage: Stage, qtbot) -> None:
    texts = [f"text {n} " * 200 for n in range(12)]
    texts[4] = "这里讨论缓存块"
    conversation = stored(stage, "Blocks", *texts)
    find(stage, qtbot, "缓存")
    assert snippets(stage) == ["这里讨论缓存块"]
    QTest.keyClick(stage.window.side_bar.search, Qt.Key.Key_Return)
    assert stage.page.conversation_id == conversation.conversation_id
    transcript = stage.page.transcript
    message_id = conversation.path()[4].message_id
    qtbot.waitUntil(lambda: transcript.isVisible())
    item = transcript.item(message_id)
    assert item is not None
    y = transcript.verticalScrollBar().value()
    assert abs(item.top - y) <= 1
    assert transcript.verticalScrollBar().maximum() > y + 100
    assert not transcript.follows


def test_a_message_on_another_branch_is_shown(stage: Stage, qtbot) -> None:
    conversation = Conversation(title="Branches", title_is_automatic=False)
    question = conversation.append(Message(USER, "question"))
    old = conversation.append(Message(ASSISTANT, "the needle answer"))
    below = conversation.append(Message(USER, "go on"))
    conversation.insert(Message(ASSISTANT, "a newer answer", question.message_id))
    import_indexed(stage, [conversation])
    assert [i.text for i in stage.page.transcript.items] == ["question", "a newer answer"]
    find(stage, qtbot, "needle")
    assert stage.window.side_bar.results.choose_first()
    shown = [i.view.message_id for i in stage.page.transcript.items]
    assert shown == [question.message_id, old.message_id, below.message_id]


def test_titles_and_messages_are_shown_together(stage: Stage, qtbot) -> None:
    stored(stage, "Needle in the title", "the needle in a message")
    side_bar = stage.window.side_bar
    find(stage, qtbot, "needle")
    qtbot.waitUntil(lambda: side_bar.model.rowCount() == 1)
    assert side_bar.list.isVisible()
    assert side_bar.results.isVisible()
    assert side_bar.results.heading.text() == "1 message"
    # No title, no room for titles.
    find(stage, qtbot, "message")
    assert not side_bar.list.isVisible()
    assert len(snippets(stage)) == 1


def test_enter_opens_a_title_if_no_message_says_it(stage: Stage, qtbot) -> None:
    conversation = stored(stage, "Only the title", "text")
    qtbot.waitUntil(lambda: len(listed(stage.window.side_bar.model)) == 3)
    find(stage, qtbot, "only the title")
    QTest.keyClick(stage.window.side_bar.search, Qt.Key.Key_Return)
    assert stage.page.conversation_id == conversation.conversation_id


def test_escape_empties_the_field_and_brings_all_back(stage: Stage, qtbot) -> None:
    stored(stage, "Blocks", "needle")
    side_bar = stage.window.side_bar
    find(stage, qtbot, "needle")
    stopped: list[bool] = []
    stage.window.actions_registry["stop"].triggered.connect(stopped.append)
    QTest.keyClick(side_bar.search, Qt.Key.Key_Escape)
    assert side_bar.search.text() == ""
    assert stopped == []
    assert not side_bar.results.isVisible()
    assert side_bar.list.isVisible()
    assert len(listed(side_bar.model)) == 3
    assert side_bar.list.maximumHeight() > 1000


def test_down_and_enter_choose_by_keyboard(stage: Stage, qtbot) -> None:
    conversation = stored(stage, "Blocks", "needle one", "needle two")
    side_bar = stage.window.side_bar
    find(stage, qtbot, "needle")
    # No widget of a window has the focus before the window is active.
    stage.window.activateWindow()
    qtbot.waitUntil(stage.window.isActiveWindow)
    QTest.keyClick(side_bar.search, Qt.Key.Key_Down)
    results = side_bar.results.list
    qtbot.waitUntil(results.hasFocus)
    assert snippets(stage) == ["needle two", "needle one"]
    QTest.keyClick(results, Qt.Key.Key_Down)
    with qtbot.waitSignal(side_bar.hit_chosen) as chosen:
        QTest.keyClick(results, Qt.Key.Key_Return)
    first = conversation.path()[0].message_id
    assert chosen.args == [conversation.conversation_id, first]


def test_a_late_answer_to_an_old_question_is_not_shown(stage: Stage, qtbot) -> None:
    side_bar = stage.window.side_bar
    find(stage, qtbot, "needle")
    stage.session.search_finished.emit(SearchResult("old", (HIT,)))
    assert snippets(stage) == []
    side_bar.search.clear()
    stage.session.search_finished.emit(SearchResult("needle", (HIT,)))
    assert not side_bar.results.isVisible()


def test_searching_opens_a_hidden_side_bar(stage: Stage) -> None:
    stage.window.actions_registry["toggle_sidebar"].trigger()
    assert not stage.window.side_bar.isVisible()
    stage.window.actions_registry["search"].trigger()
    assert stage.window.side_bar.isVisible()


def test_markup_in_a_message_is_plain_text_in_the_list(stage: Stage, qtbot) -> None:
    stored(stage, "<b>title</b>", "<img src=x onerror=f()> needle")
    find(stage, qtbot, "needle")
    assert snippets(stage) == ["<img src=x onerror=f()> needle"]
    index = stage.window.side_bar.results.model.index(0)
    text = index.data(Qt.ItemDataRole.AccessibleTextRole)
    assert text == "<b>title</b>, You: <img src=x onerror=f()> needle"
    assert not stage.window.side_bar.results.list.grab().isNull()


def test_what_was_deleted_meanwhile_is_not_opened(stage: Stage, qtbot) -> None:
    before = stage.page.conversation_id
    stage.window.tab_area.show_message("gone", "gone")
    assert stage.page.conversation_id == before
    stage.window.tab_area.show_message(before, "gone")
    assert stage.page.conversation_id == before
