"""What holds for every widget: names for screen readers, plain text, words and figures."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication, QLabel, QMenu, QWidget

from app.conversation import ASSISTANT, Message, MessageStatus
from app.parity.window import ParityWindow
from app.session_state import ModelState, ModelStatus, RequestPhase, RequestState
from app.tour.window import TourWindow
from app.widgets import words
from app.widgets.prompt_library import PromptLibrary
from app.widgets.system_prompt_dialog import SystemPromptDialog
from engine.api.client import QueueClient
from engine.api.errors import ErrorInfo
from engine.api.events import RequestUsage
from tests.helpers.fake_engine import MODEL
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


def focusable(parent: QWidget) -> list[QWidget]:
    """Every widget that the keyboard can reach, hidden ones too, without Qt's own parts."""
    found = parent.findChildren(QWidget)
    return [
        widget
        for widget in found
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and not widget.objectName().startswith("qt_")
        and not isinstance(widget, QMenu)
    ]


def unnamed(parent: QWidget) -> list[str]:
    names = []
    for widget in focusable(parent):
        interface = QAccessible.queryAccessibleInterface(widget)
        if not interface.text(QAccessible.Text.Name):
            names.append(f"{type(widget).__name__} {widget.objectName()}")
    return names


def test_every_focusable_widget_has_a_name(stage: Stage, qtbot) -> None:
    conversation_id = stage.page.conversation_id
    stage.window.submit_text(conversation_id, "Question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
    stage.page.composer.attachments.add("x" * 70_000)
    stage.session.report("code", "Something happened.")
    assert len(focusable(stage.window)) > 25
    assert unnamed(stage.window) == []


def test_dialogs_have_names_too(stage: Stage) -> None:
    for dialog in (
        ParityWindow(stage.session, stage.window._bridge, stage.themes, stage.window),
        TourWindow(QueueClient, "models", stage.themes, stage.window),
        SystemPromptDialog(stage.session, stage.page.conversation_id, stage.window),
        PromptLibrary(stage.session, stage.themes, stage.window),
    ):
        assert unnamed(dialog) == []
        dialog.close()


def test_tab_goes_through_the_window_without_getting_stuck(stage: Stage) -> None:
    stage.window.activateWindow()
    seen = set()
    for _ in range(60):
        stage.window.focusNextChild()
        widget = QApplication.focusWidget()
        if widget is not None:
            seen.add(type(widget).__name__)
    assert {"ComposerEdit", "ConversationList", "SearchField"} <= seen


def test_labels_that_model_text_can_reach_are_plain(stage: Stage, qtbot) -> None:
    title = "<img src=x>"
    stage.session.rename(stage.page.conversation_id, title)
    stage.session.report("code", "<b>bold</b>")
    rich = [
        label.text()
        for label in stage.window.findChildren(QLabel)
        if "<" in label.text() and label.textFormat() is not Qt.TextFormat.PlainText
    ]
    assert rich == []


# --- words ---

USAGE = RequestUsage(
    prompt_tokens=118, cached_tokens=96, output_tokens=48, ttft_s=0.12, tokens_per_s=31.4
)


def answer(status: MessageStatus, **more) -> Message:
    return Message(ASSISTANT, "text", status=status, usage=USAGE, **more)


def test_usage_in_words() -> None:
    assert words.usage_words(USAGE) == (
        "48 tokens · 31 tok/s · first token 120 ms · 96 of 118 prompt tokens from cache"
    )


@pytest.mark.parametrize(
    ("message", "start", "tone"),
    [
        (answer(MessageStatus.DONE), "48 tokens", "muted"),
        (answer(MessageStatus.STOPPED), "Stopped · 48 tokens", "muted"),
        (answer(MessageStatus.INTERRUPTED), "Interrupted", "warning"),
        (answer(MessageStatus.DONE, limit="context"), "Ended: the model's context", "warning"),
        (answer(MessageStatus.DONE, limit="pool"), "Ended: the cache pool", "warning"),
        (answer(MessageStatus.STREAMING), "Waiting…", "muted"),
        (
            answer(MessageStatus.ERROR, error=ErrorInfo("x", "Cause.", "Action.")),
            "Cause. Action.",
            "error",
        ),
    ],
)
def test_footer_of_an_answer(message: Message, start: str, tone: str) -> None:
    text, found = words.answer_footer(message, "Waiting…")
    assert text.startswith(start)
    assert found == tone


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (
            RequestState(RequestPhase.WAITING, "capacity", 3, "c2"),
            "Pool full: 3 blocks short. Continues when “Tab 2” ends.",
        ),
        (
            RequestState(RequestPhase.WAITING, "capacity", 1),
            "Pool full: 1 block short. Continues when another answer ends.",
        ),
        (
            RequestState(RequestPhase.WAITING, "twin", waits_on="c2"),
            "Waits for “Tab 2”, which is computing the same prompt.",
        ),
        (RequestState(RequestPhase.WAITING, "loading"), "Waits for the model to load…"),
        (
            RequestState(RequestPhase.PREFILL, done=1200, total=3000, cached=64),
            "Reading the prompt: 1,200 of 3,000 tokens · 64 from cache",
        ),
        (RequestState(RequestPhase.DECODE), ""),
    ],
)
def test_waiting_in_words(state: RequestState, expected: str) -> None:
    assert words.request_words(state, lambda _id: "Tab 2") == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ModelState(ModelStatus.READY, info=MODEL), "Scripted · cpu · none"),
        (ModelState(ModelStatus.LOADING, stage="weights"), "Loading weights"),
        (ModelState(ModelStatus.LOADING, stage="unheard of"), "Loading the model"),
        (ModelState(ModelStatus.STARTING), "Starting the engine"),
        (ModelState(ModelStatus.NO_MODEL), "No model loaded"),
        (
            ModelState(ModelStatus.FAILED, error=ErrorInfo("starter_model_missing", "m")),
            "No model yet",
        ),
        (
            ModelState(ModelStatus.FAILED, error=ErrorInfo("model_file", "m")),
            "The model could not be loaded",
        ),
    ],
)
def test_model_in_words(state: ModelState, expected: str) -> None:
    assert words.model_words(state) == expected


def test_durations() -> None:
    assert words.duration_words(0.1234) == "123 ms"
    assert words.duration_words(2.345) == "2.3 s"
