"""The whole window on the real starter model: a conversation goes on past its context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.bridge import Bridge
from app.paths import Profile, models_dir
from app.session import Session
from app.session_state import ModelStatus
from app.settings import Settings
from app.store import Store
from app.theme import ThemeManager
from app.widgets.main_window import MainWindow
from app.widgets.words import divider_words
from engine.api.client import start_engine
from engine.api.params import EngineConfig, OverflowPolicy, SamplingParams
from tests.helpers.starter import starter_gguf

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

CONTEXT, BLOCK = 160, 16
QUESTIONS = [
    "What is the capital of France?",
    "Name three colours of the rainbow.",
    "And the other ones?",
    "How many legs does a spider have?",
]


class Stage:
    """A window with one conversation, over the engine's own thread."""

    def __init__(self, data_dir: Path) -> None:
        self.settings = Settings(None)
        self.settings.change(
            sampling=SamplingParams(temperature=0.0, max_tokens=8, seed=0),
            engine=EngineConfig(
                device="cpu", max_model_len=CONTEXT, num_blocks=100, block_size=BLOCK, num_threads=1
            ),
        )
        self.profile = Profile(data_dir)
        self.store = Store(self.profile)
        self.bridge = Bridge(start_engine)
        self.session = Session(self.bridge, self.store, self.settings, str(models_dir()))
        self.conversation_id = self.session.new_conversation("Be brief.")
        self.window = MainWindow(self.session, self.bridge, self.settings, ThemeManager("light"))
        self.window.show()
        self.bridge.start()
        self.session.load_model()

    @property
    def page(self):
        return self.window.tab_area.page(self.conversation_id)

    def close(self) -> None:
        self.window.close()
        assert self.bridge.close(10.0)
        self.store.close()
        self.window.deleteLater()


@pytest.fixture
def stage(qtbot, tmp_path: Path) -> Iterator[Stage]:
    starter_gguf()
    stage = Stage(tmp_path / "profile")
    qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.READY, timeout=120_000)
    yield stage
    stage.close()


def test_a_conversation_in_the_window_passes_its_context_several_times(stage: Stage, qtbot) -> None:
    session, page = stage.session, stage.page
    conversation = session.conversation(stage.conversation_id)
    session.set_overflow(stage.conversation_id, OverflowPolicy.DROP_OLDEST)
    cuts, total = [0], 0
    for number in range(14):
        text = f"{QUESTIONS[number % 4]} ({number})"
        size = len(conversation.messages)
        if not stage.window.submit_text(stage.conversation_id, text):
            # The engine was asked first. Either that lets it go, or the cost is shown.
            qtbot.waitUntil(
                lambda size=size: (
                    len(conversation.messages) > size or not page.context_notice.isHidden()
                ),
                timeout=60_000,
            )
            if len(conversation.messages) == size:
                assert "stops reading" in page.context_notice.label.text()
                assert page.composer.text() == text
                outlook = session.outlook(stage.conversation_id)
                assert outlook is not None
                assert outlook.dropped_messages > 0
                assert stage.window.submit_text(stage.conversation_id, text)
        qtbot.waitUntil(lambda: not session.is_busy(stage.conversation_id), timeout=120_000)
        answer = conversation.path()[-1]
        usage, turn = answer.usage, answer.turn
        assert usage is not None
        assert turn is not None
        assert len(conversation.path()) == 2 * number + 2
        if answer.num_dropped == cuts[-1]:
            assert usage.prompt_tokens == total + len(turn.prompt_ids)
            assert usage.cached_tokens == max(0, total - 1) // BLOCK * BLOCK
        else:
            assert usage.prompt_tokens <= CONTEXT // 2
            cuts.append(answer.num_dropped)
        total = usage.prompt_tokens + usage.output_tokens
    assert len(cuts) > 3
    assert cuts == sorted(cuts)
    assert not page.notices.bars
    # The line is above the first message that is read; the store knows it too.
    shown = [(i.view.message_id, i.view.divider) for i in page.transcript.items if i.view.divider]
    assert shown == [(conversation.path()[cuts[-1]].message_id, divider_words(cuts[-1]))]
    assert stage.store.flush()
    stored = stage.store.load_conversation(stage.conversation_id)
    assert stored is not None
    assert stored.context() == conversation.context()
    assert len(stored.path()) == 28
