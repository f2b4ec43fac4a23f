"""A conversation that outgrows the model's context, in the session: policy, cut, outlook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.bridge import Bridge
from app.conversation import ASSISTANT, USER, Conversation, Message
from app.outlooks import may_overflow
from app.paths import Profile
from app.session import Session
from app.session_state import ModelStatus, Notice, Outlook
from app.settings import Settings
from app.store import Store
from engine.api.commands import Forecast, Submit
from engine.api.events import RequestUsage
from engine.api.params import ContextPolicy, OverflowPolicy
from tests.helpers.fake_engine import MODEL, FakeEngine

CONTEXT = 200
TEN = "one two three four five six seven eight nine ten "
DROP = OverflowPolicy.DROP_OLDEST


class Stage:
    """A session over a scripted engine with a short context and answers of ten words."""

    def __init__(self, data_dir: Path, qtbot: QtBot) -> None:
        self.profile, self.qtbot, self.number = Profile(data_dir), qtbot, 100
        self.open()

    def open(self) -> None:
        self.engine = FakeEngine(
            tokens_per_s=5000.0, script=lambda _submit: TEN, context_length=CONTEXT
        )
        self.bridge = Bridge(lambda: self.engine)
        self.store = Store(self.profile)
        self.session = Session(self.bridge, self.store, Settings(None), "models")
        self.notices: list[Notice] = []
        self.session.notice_raised.connect(self.notices.append)
        self.bridge.start()
        self.session.load_model()
        self.qtbot.waitUntil(lambda: self.session.model_state.status is ModelStatus.READY)

    def close(self) -> None:
        self.session.shut_down()
        assert self.bridge.close()
        self.store.close()

    def ask(self, conversation_id: str) -> Message:
        """Sends a message of ten words, each time another, and gives the finished answer."""
        assert self.session.send(conversation_id, f"{TEN[:-4]}{self.number}")
        self.number += 1
        self.qtbot.waitUntil(lambda: not self.session.is_busy(conversation_id))
        return self.session.conversation(conversation_id).path()[-1]

    def past_the_limit(self) -> str:
        """A conversation that has just dropped messages."""
        conversation_id = self.session.new_conversation("Be brief.")
        self.session.set_overflow(conversation_id, DROP)
        while not self.ask(conversation_id).num_dropped:
            assert len(self.session.conversation(conversation_id).messages) < 40
        return conversation_id

    def outlook(self, conversation_id: str, text: str) -> Outlook:
        """Asks, and waits for what comes of it."""
        assert self.session.ask_outlook(conversation_id, text)
        self.qtbot.waitUntil(lambda: self.session.outlook(conversation_id) is not None)
        found = self.session.outlook(conversation_id)
        assert found is not None
        return found

    def submits(self) -> list[Submit]:
        return [c for c in self.engine.commands if isinstance(c, Submit)]


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    stage = Stage(tmp_path / "profile", qtbot)
    yield stage
    stage.close()


# --- policy and cut -------------------------------------------------------------------------------


def test_a_new_conversation_stops_and_a_refused_text_comes_back(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation("Be brief.")
    while not stage.notices:
        stage.ask(conversation_id)
        assert len(stage.submits()) < 20
    assert stage.submits()[-1].context == ContextPolicy(OverflowPolicy.STOP, 0)
    assert [notice.error.code for notice in stage.notices] == ["prompt_too_long"]
    assert stage.session.conversation(conversation_id).draft.startswith("one two three four")


def test_the_cut_is_kept_with_the_answer_and_sent_along_from_then_on(stage: Stage) -> None:
    conversation_id = stage.past_the_limit()
    conversation = stage.session.conversation(conversation_id)
    assert stage.submits()[-1].context == ContextPolicy(DROP, 0)
    cut = conversation.path()[-1].num_dropped
    assert cut % 2 == 0
    assert 0 < cut < len(conversation.path())
    answer = stage.ask(conversation_id)
    assert answer.num_dropped == cut
    assert stage.submits()[-1].context == ContextPolicy(DROP, cut)
    # All of it is still sent, shown and stored.
    assert len(stage.submits()[-1].messages) == len(conversation.path())
    assert answer.usage is not None
    assert answer.usage.cached_tokens >= answer.usage.prompt_tokens - 12 - 16


def test_policy_and_cut_outlive_the_program(stage: Stage) -> None:
    conversation_id = stage.past_the_limit()
    cut = stage.session.conversation(conversation_id).num_dropped()
    stage.close()
    stage.open()
    conversation = stage.session.conversation(conversation_id)
    assert (conversation.overflow, conversation.num_dropped()) == (DROP, cut)
    stage.ask(conversation_id)
    assert stage.submits()[-1].context == ContextPolicy(DROP, cut)


def test_with_stop_everything_counts_again(stage: Stage) -> None:
    conversation_id = stage.past_the_limit()
    changed: list[str] = []
    stage.session.conversation_changed.connect(changed.append)
    stage.session.set_overflow(conversation_id, OverflowPolicy.STOP)
    stage.session.set_overflow(conversation_id, OverflowPolicy.STOP)
    assert changed == [conversation_id]
    assert stage.session.conversation(conversation_id).num_dropped() == 0
    stage.ask(conversation_id)
    assert stage.submits()[-1].context == ContextPolicy(OverflowPolicy.STOP, 0)
    assert [notice.error.code for notice in stage.notices] == ["prompt_too_long"]


def test_an_answer_from_before_the_cut_is_made_again_without_it(stage: Stage) -> None:
    conversation_id = stage.past_the_limit()
    first = stage.session.conversation(conversation_id).path()[1]
    assert stage.session.regenerate(conversation_id, first.message_id)
    stage.qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
    conversation = stage.session.conversation(conversation_id)
    assert stage.submits()[-1].context == ContextPolicy(DROP, 0)
    assert conversation.num_dropped() == 0
    # The other branch still has its own.
    stage.session.select_version(conversation_id, first.message_id)
    assert conversation.num_dropped() > 0


def test_the_last_answer_made_again_is_cut_alike(stage: Stage) -> None:
    conversation_id = stage.past_the_limit()
    cut = stage.session.conversation(conversation_id).num_dropped()
    assert stage.session.regenerate(conversation_id)
    stage.qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
    assert stage.session.conversation(conversation_id).num_dropped() == cut


def test_a_fork_goes_on_with_the_same_cut(stage: Stage) -> None:
    conversation_id = stage.past_the_limit()
    original = stage.session.conversation(conversation_id)
    copy = stage.session.conversation(stage.session.fork(conversation_id))
    assert copy.context() == original.context()
    assert copy.context().num_dropped > 0
    # One that ends before the cut was made has none.
    early = stage.session.fork(conversation_id, original.path()[1].message_id)
    assert stage.session.conversation(early).context() == ContextPolicy(DROP, 0)


# --- outlook --------------------------------------------------------------------------------------


def test_what_surely_fits_is_not_asked_about(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation("Be brief.")
    assert not stage.session.ask_outlook(conversation_id, "hi")
    assert stage.session.outlook(conversation_id) is None
    assert not [c for c in stage.engine.commands if isinstance(c, Forecast)]


def test_the_outlook_names_what_the_next_message_drops(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation("Be brief.")
    stage.session.set_overflow(conversation_id, DROP)
    outlook = Outlook("")
    for _ in range(20):
        stage.ask(conversation_id)
        if stage.session.ask_outlook(conversation_id, TEN):
            outlook = stage.outlook(conversation_id, TEN)
            if outlook.dropped_messages:
                break
    assert outlook.fits
    assert outlook.dropped_tokens > 0
    assert 0 < outlook.recomputed_tokens < outlook.prompt_tokens <= CONTEXT // 2
    answer = stage.ask(conversation_id)
    assert answer.num_dropped == outlook.dropped_messages
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == outlook.prompt_tokens
    # A message in the conversation: what was known is not true any more.
    assert stage.session.outlook(conversation_id) is None


def test_the_outlook_of_a_conversation_that_stops_gives_the_numbers(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation("Be brief.")
    outlook = stage.outlook(conversation_id, TEN * 25)
    assert (outlook.fits, outlook.limit_tokens) == (False, CONTEXT)
    assert outlook.prompt_tokens == 250 + 4 + 3
    stage.session.set_overflow(conversation_id, DROP)
    outlook = stage.outlook(conversation_id, TEN * 25)
    assert outlook.error is not None
    assert outlook.error.code == "message_too_long"


def test_only_the_newest_question_counts(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation("Be brief.")
    assert stage.session.ask_outlook(conversation_id, TEN * 20)
    assert stage.outlook(conversation_id, TEN * 30).text == TEN * 30
    assert not stage.session.ask_outlook(conversation_id, "short")
    assert stage.session.outlook(conversation_id) is None


def conversation_of(*answers: Message) -> Conversation:
    conversation = Conversation(overflow=DROP)
    for answer in answers:
        conversation.append(Message(USER, "q"))
        conversation.append(answer)
    return conversation


def test_what_the_last_answer_took_spares_asking_only_if_it_still_holds() -> None:
    usage = RequestUsage(prompt_tokens=1000, output_tokens=100)
    text = "x" * 700  # With 1100 used and room for the answer: 2048 - 1100 - 128 - 64 = 756.
    fitting = Message(ASSISTANT, "a" * 3000, usage=usage, model=MODEL.name)
    assert not may_overflow(conversation_of(fitting), text, MODEL)
    assert may_overflow(conversation_of(fitting), text + "x" * 60, MODEL)
    other = Message(ASSISTANT, "a" * 3000, usage=usage, model="another")
    assert may_overflow(conversation_of(other), text, MODEL)
    # Its prompt was cut, and is not any more.
    cut = Message(ASSISTANT, "a" * 3000, usage=usage, model=MODEL.name, num_dropped=2)
    whole = conversation_of(Message(ASSISTANT, ""), cut)
    assert not may_overflow(whole, text, MODEL)
    whole.overflow = OverflowPolicy.STOP
    assert may_overflow(whole, text, MODEL)
