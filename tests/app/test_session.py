"""The session with a scripted engine: conversations, answers, refusals, the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.app_error import StoreWriteError
from app.bridge import Bridge
from app.conversation import ASSISTANT, USER, Message, MessageStatus
from app.paths import Profile
from app.session import Session
from app.session_state import ModelStatus, Notice, RequestPhase, Severity
from app.settings import Settings
from app.store import Store
from engine.api.commands import Cancel, LoadModel, SetFocus, Submit
from engine.api.errors import (
    ErrorInfo,
    ModelFileError,
    PromptTooLongError,
    StarterModelMissingError,
)
from engine.api.events import (
    EngineStatus,
    EngineStatusChanged,
    FinishReason,
    RequestFinished,
    RequestUsage,
)
from engine.api.params import SamplingParams
from tests.helpers.fake_engine import MODEL, FakeEngine

TOO_LONG = PromptTooLongError("Prompt of 9,000 tokens, context of 2,048.", prompt_tokens=9000)


class Stage:
    """A session over a scripted engine, and what it said. ``restart`` opens the profile again."""

    def __init__(self, data_dir: Path, qtbot: QtBot) -> None:
        self.profile = Profile(data_dir)
        self.qtbot = qtbot
        self.open()

    def open(self, **engine: object) -> None:
        self.engine = FakeEngine(**engine)  # type: ignore[arg-type]
        self.bridge = Bridge(lambda: self.engine)
        self.store = Store(self.profile)
        self.settings = Settings(self.profile.settings_file)
        self.session = Session(self.bridge, self.store, self.settings, "models")
        self.said: list[tuple[str, ...]] = []
        self.notices: list[Notice] = []
        for name in ("message_added", "message_removed", "message_changed", "draft_restored"):
            self._listen(name)
        for name in ("conversation_added", "conversation_closed", "path_changed"):
            self._listen(name)
        self.session.notice_raised.connect(self.notices.append)

    def _listen(self, name: str) -> None:
        getattr(self.session, name).connect(lambda *values: self.said.append((name, *values)))

    def close(self) -> None:
        self.session.shut_down()
        assert self.bridge.close()
        self.store.close()

    def restart(self, **engine: object) -> None:
        self.close()
        self.open(**engine)

    def start(self) -> None:
        self.bridge.start()
        self.session.load_model()
        self.wait(lambda: self.session.model_state.status is ModelStatus.READY)

    def wait(self, done: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(done, timeout=8000)

    def wait_idle(self, conversation_id: str) -> None:
        self.wait(lambda: not self.session.is_busy(conversation_id))

    def path(self, conversation_id: str) -> list[Message]:
        return self.session.conversation(conversation_id).path()

    def names(self) -> list[str]:
        return [said[0] for said in self.said]

    def codes(self) -> list[str]:
        return [notice.error.code for notice in self.notices]

    def submits(self) -> list[Submit]:
        return [c for c in self.engine.commands if isinstance(c, Submit)]


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    stage = Stage(tmp_path / "profile", qtbot)
    yield stage
    stage.close()


def test_an_answer_streams_in_and_ends_with_its_figures(stage: Stage) -> None:
    pieces: list[str] = []
    stage.session.text_appended.connect(lambda _c, _m, text: pieces.append(text))
    stage.start()
    conversation_id = stage.session.new_conversation()
    assert stage.session.send(conversation_id, "How are you?")
    stage.wait_idle(conversation_id)
    question, answer = stage.path(conversation_id)
    assert (question.role, question.content) == (USER, "How are you?")
    assert answer.content == "".join(pieces)
    assert answer.content.startswith("You asked: How are you?")
    assert (answer.role, answer.status, answer.model) == (ASSISTANT, MessageStatus.DONE, MODEL.name)
    assert answer.turn is not None
    assert answer.usage is not None
    assert answer.usage.output_tokens == len(answer.turn.output_ids)
    assert answer.seed is not None
    assert len(pieces) > 3


def test_the_engine_gets_system_prompt_question_and_sampling(stage: Stage) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=5)
    stage.session.change_settings(sampling=sampling)
    stage.start()
    conversation_id = stage.session.new_conversation("Be brief.")
    stage.session.send(conversation_id, "Hi")
    stage.wait_idle(conversation_id)
    (submit,) = stage.submits()
    assert [(m.role, m.content) for m in submit.messages] == [
        ("system", "Be brief."),
        ("user", "Hi"),
    ]
    assert submit.params == sampling
    assert submit.conversation_id == conversation_id
    assert stage.path(conversation_id)[-1].limit == "max_tokens"


def test_the_next_turn_sends_the_exact_ids_of_the_one_before(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    for text in ("one", "two"):
        stage.session.send(conversation_id, text)
        stage.wait_idle(conversation_id)
    turn = stage.path(conversation_id)[1].turn
    assert turn is not None
    assert stage.submits()[1].messages[2].turn == turn


def test_a_fork_sends_the_same_history_with_the_same_ids(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "one")
    stage.wait_idle(conversation_id)
    fork_id = stage.session.fork(conversation_id)
    assert stage.session.conversation_ids() == [conversation_id, fork_id]
    for each in (conversation_id, fork_id):
        stage.session.send(each, "two")
        stage.wait_idle(each)
    assert stage.submits()[1].messages == stage.submits()[2].messages
    assert len(stage.path(conversation_id)) == len(stage.path(fork_id)) == 4


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_an_empty_message_is_refused_with_a_notice(stage: Stage, text: str) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    assert not stage.session.send(conversation_id, text)
    assert stage.codes() == ["empty_message"]
    assert stage.path(conversation_id) == []


def test_a_second_message_while_answering_is_refused(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    assert stage.session.send(conversation_id, "one")
    assert not stage.session.send(conversation_id, "two")
    assert stage.codes() == ["answer_running"]
    stage.wait_idle(conversation_id)


def test_a_refused_prompt_goes_back_to_the_composer(stage: Stage) -> None:
    stage.engine.refusal = lambda _submit: TOO_LONG
    stage.start()
    conversation_id = stage.session.new_conversation()
    assert stage.session.send(conversation_id, "very long")
    question, answer = stage.path(conversation_id)
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id) == []
    assert stage.said[-3:] == [
        ("message_removed", conversation_id, answer.message_id),
        ("message_removed", conversation_id, question.message_id),
        ("draft_restored", conversation_id, "very long"),
    ]
    assert stage.codes() == ["prompt_too_long"]
    assert stage.notices[0].conversation_id == conversation_id
    stage.engine.refusal = lambda _submit: None
    assert stage.session.send(conversation_id, "short")
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


def test_a_refused_prompt_leaves_nothing_in_the_store_but_the_draft(stage: Stage) -> None:
    stage.engine.refusal = lambda _submit: TOO_LONG
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "very long")
    stage.wait_idle(conversation_id)
    stage.restart()
    assert stage.path(conversation_id) == []
    assert stage.session.conversation(conversation_id).draft == "very long"


def test_a_message_before_the_model_waits_for_it(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation()
    stage.engine.hold_load.set()
    assert stage.session.send(conversation_id, "early")
    state = stage.session.request_state(conversation_id)
    assert (state.phase, state.reason) == (RequestPhase.WAITING, "loading")
    stage.bridge.start()
    stage.session.load_model()
    stage.qtbot.wait(60)
    assert stage.session.model_state.status is ModelStatus.LOADING
    assert stage.submits() == []
    stage.engine.hold_load.clear()
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


def test_a_message_that_waits_for_a_model_that_fails_goes_back_to_the_composer(
    stage: Stage,
) -> None:
    stage.engine.load_error = ModelFileError("The file ends after 12 of 94 MB.")
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "early")
    stage.bridge.start()
    stage.session.load_model("broken.gguf")
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    assert stage.path(conversation_id) == []
    assert stage.said[-1] == ("draft_restored", conversation_id, "early")
    assert stage.codes() == ["model_file"]
    assert not stage.session.send(conversation_id, "again")
    assert stage.codes() == ["model_file", "no_model"]


def test_after_a_failed_load_another_model_works(stage: Stage) -> None:
    stage.engine.load_error = ModelFileError("broken")
    stage.bridge.start()
    stage.session.load_model("broken.gguf")
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    stage.engine.load_error = None
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "now")
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


def test_a_missing_starter_model_is_a_state_and_no_error(stage: Stage) -> None:
    stage.engine.load_error = StarterModelMissingError("It has not been fetched.")
    stage.bridge.start()
    stage.session.load_model()
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    assert stage.session.model_state.error is not None
    assert stage.session.model_state.error.code == "starter_model_missing"
    assert stage.notices == []
    stage.engine.load_error = None
    stage.session.fetch_starter()
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.READY)
    loads = [c for c in stage.engine.commands if isinstance(c, LoadModel)]
    assert [load.fetch_starter for load in loads] == [False, True]


def test_a_model_that_was_loaded_is_loaded_again_at_the_next_start(stage: Stage) -> None:
    def load(path: str, remember: bool) -> str:
        stage.session.load_model(path, remember)
        stage.wait(lambda: stage.session.model_state.status is not ModelStatus.LOADING)
        return stage.settings.values.model_path

    stage.bridge.start()
    assert load("chosen.gguf", True) == "chosen.gguf"
    assert load("once.gguf", False) == "chosen.gguf"
    stage.engine.load_error = ModelFileError("broken")
    assert load("broken.gguf", True) == "chosen.gguf"


def test_loading_reports_its_progress(stage: Stage) -> None:
    seen: list[tuple[str, float]] = []

    def on_change() -> None:
        seen.append((stage.session.model_state.stage, stage.session.model_state.fraction))

    stage.session.model_state_changed.connect(on_change)
    stage.start()
    assert ("weights", 0.5) in seen
    assert stage.session.model_state.info == MODEL


def test_stop_keeps_what_has_come(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "stop me")
    stage.wait(lambda: len(stage.path(conversation_id)[-1].content) > 20)
    stage.session.stop(conversation_id)
    stage.wait_idle(conversation_id)
    answer = stage.path(conversation_id)[-1]
    assert answer.status is MessageStatus.STOPPED
    assert answer.turn is not None
    assert 20 < len(answer.content) < 200


def test_stop_works_while_the_model_is_still_loading(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "early")
    stage.session.stop(conversation_id)
    assert not stage.session.is_busy(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.STOPPED
    stage.start()
    stage.qtbot.wait(50)
    assert stage.submits() == []


def test_stop_without_an_answer_does_nothing(stage: Stage) -> None:
    stage.session.stop(stage.session.new_conversation())
    assert stage.notices == []


def test_regenerate_makes_a_second_version_and_keeps_the_first(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "one")
    stage.wait_idle(conversation_id)
    first = stage.path(conversation_id)[-1]
    stage.engine.script = lambda _submit: "Another answer."
    assert stage.session.regenerate(conversation_id)
    stage.wait_idle(conversation_id)
    second = stage.path(conversation_id)[-1]
    assert second.content == "Another answer."
    conversation = stage.session.conversation(conversation_id)
    assert conversation.siblings(first.message_id) == [first, second]
    assert len(stage.submits()[1].messages) == 2
    stage.session.select_version(conversation_id, first.message_id)
    assert stage.path(conversation_id)[-1] is first


def test_a_refused_regeneration_shows_the_old_answer_again(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "one")
    stage.wait_idle(conversation_id)
    first = stage.path(conversation_id)[-1]
    stage.engine.refusal = lambda _submit: TOO_LONG
    assert stage.session.regenerate(conversation_id)
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1] is first
    assert "draft_restored" not in stage.names()
    stage.restart()
    assert stage.path(conversation_id)[-1].content == first.content


def test_regenerate_without_an_answer_is_refused(stage: Stage) -> None:
    stage.start()
    assert not stage.session.regenerate(stage.session.new_conversation())
    assert stage.codes() == ["empty_message"]


def test_four_conversations_stream_at_once_and_stay_apart(stage: Stage) -> None:
    stage.start()
    ids = [stage.session.new_conversation() for _ in range(4)]
    for n, conversation_id in enumerate(ids):
        assert stage.session.send(conversation_id, f"number {n}")
    assert all(stage.session.is_busy(conversation_id) for conversation_id in ids)
    for n, conversation_id in enumerate(ids):
        stage.wait_idle(conversation_id)
        assert f"number {n}" in stage.path(conversation_id)[-1].content


def test_everything_survives_a_restart(stage: Stage) -> None:
    stage.start()
    first, second = stage.session.new_conversation(), stage.session.new_conversation("Other.")
    stage.session.send(first, "kept")
    stage.wait_idle(first)
    stage.session.set_draft(second, "half a thought")
    stage.session.rename(second, "Named")
    stage.session.set_order([second, first])
    stage.session.set_active_conversation(first)
    stage.session.set_window_state("geometry", "AAAA")
    before = stage.session.conversation(first)
    stage.restart()
    assert stage.session.conversation_ids() == [second, first]
    assert stage.session.active_conversation_id == first
    assert stage.session.window_state("geometry") == "AAAA"
    after = stage.session.conversation(first)
    assert after.chat_messages() == before.chat_messages()
    assert after.path()[-1].turn is not None
    assert (after.title, after.number) == ("kept", before.number)
    other = stage.session.conversation(second)
    assert (other.title, other.draft, other.system_prompt) == ("Named", "half a thought", "Other.")


def test_the_first_turn_after_a_restart_sends_the_stored_ids(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "one")
    stage.wait_idle(conversation_id)
    turn = stage.path(conversation_id)[-1].turn
    stage.restart()
    stage.start()
    stage.session.send(conversation_id, "two")
    stage.wait_idle(conversation_id)
    assert stage.submits()[0].messages[2].turn == turn


def test_quitting_while_streaming_keeps_the_text_as_interrupted(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "go on")
    stage.wait(lambda: len(stage.path(conversation_id)[-1].content) > 20)
    stage.restart()
    answer = stage.path(conversation_id)[-1]
    assert answer.status is MessageStatus.INTERRUPTED
    assert len(answer.content) > 20
    assert not stage.session.is_busy(conversation_id)


def test_a_closed_conversation_is_stored_and_can_be_opened_again(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "kept")
    stage.wait_idle(conversation_id)
    stage.session.close_conversation(conversation_id)
    assert stage.session.conversation_ids() == []
    stage.restart()
    assert stage.session.conversation_ids() == []
    assert [s.title for s in stage.session.closed_conversations()] == ["kept"]
    assert stage.session.reopen_conversation(conversation_id)
    assert len(stage.path(conversation_id)) == 2


def test_closing_an_answering_conversation_cancels_and_keeps_the_text(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "go on")
    stage.wait(lambda: len(stage.path(conversation_id)[-1].content) > 20)
    stage.session.close_conversation(conversation_id)
    said = len(stage.said)
    stage.wait(lambda: any(isinstance(c, Cancel) for c in stage.engine.commands))
    stage.qtbot.wait(50)
    assert len(stage.said) == said
    assert stage.session.reopen_conversation(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.STOPPED


def test_an_empty_closed_conversation_is_deleted_but_closing_can_be_undone(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation()
    stage.session.close_conversation(conversation_id)
    stage.store.flush()
    assert stage.session.closed_conversations() == []
    assert stage.session.reopen_conversation(conversation_id)
    stage.restart()
    assert stage.session.conversation_ids() == [conversation_id]


def test_opening_what_is_not_there_is_a_notice(stage: Stage) -> None:
    assert not stage.session.reopen_conversation("nobody")
    assert stage.codes() == ["conversation_not_found"]


def test_numbers_are_the_smallest_free_ones_and_are_not_reused_within_a_run(stage: Stage) -> None:
    def numbers() -> list[int]:
        ids = stage.session.conversation_ids()
        return [stage.session.conversation(i).number for i in ids]

    ids = [stage.session.new_conversation() for _ in range(3)]
    assert numbers() == [1, 2, 3]
    stage.session.close_conversation(ids[1])
    stage.session.new_conversation()
    assert numbers() == [1, 3, 4]
    stage.session.reopen_conversation(ids[1])
    assert numbers() == [1, 3, 4, 2]


def test_new_conversations_share_the_default_system_prompt(stage: Stage) -> None:
    empty, own = stage.session.new_conversation(), stage.session.new_conversation("Mine.")
    stage.session.set_default_system_prompt("Shared.")
    new = stage.session.new_conversation()
    prompts = [stage.session.conversation(i).system_prompt for i in (empty, own, new)]
    assert prompts == ["Shared.", "Mine.", "Shared."]
    stage.restart()
    assert stage.session.default_system_prompt == "Shared."


def test_an_empty_name_brings_back_the_automatic_title(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.rename(conversation_id, "Mine")
    stage.session.send(conversation_id, "Question")
    stage.wait_idle(conversation_id)
    assert stage.session.conversation(conversation_id).title == "Mine"
    stage.session.rename(conversation_id, " ")
    assert stage.session.conversation(conversation_id).title == "Question"


def test_the_engine_is_told_what_is_in_front(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.set_active_conversation(conversation_id)
    stage.wait(lambda: SetFocus(conversation_id) in stage.engine.commands)


def test_a_dead_engine_fails_the_answer_and_leaves_the_session_usable(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "go on")
    stage.wait(lambda: len(stage.path(conversation_id)[-1].content) > 20)
    stage.session.engine_died("RuntimeError: boom")
    error = ErrorInfo("internal", "RuntimeError: boom")
    stage.engine.post(EngineStatusChanged(EngineStatus.FAILED, error=error))
    stage.qtbot.wait(50)
    answer = stage.path(conversation_id)[-1]
    assert answer.status is MessageStatus.ERROR
    assert answer.error is not None
    assert stage.codes() == ["engine_died"]
    assert not stage.session.send(conversation_id, "more")
    assert stage.session.new_conversation() in stage.session.conversation_ids()
    stage.session.load_model()
    assert stage.session.model_state.status is ModelStatus.FAILED
    assert stage.codes() == ["engine_died", "no_model", "engine_died"]


def test_trouble_with_the_disk_becomes_a_notice(stage: Stage) -> None:
    stage.store.on_error(StoreWriteError("disk full"))
    stage.store.on_recovered()
    stage.wait(lambda: len(stage.notices) == 2)
    assert [(n.error.code, n.severity) for n in stage.notices] == [
        ("store_write", Severity.ERROR),
        ("store_recovered", Severity.INFO),
    ]


def test_damaged_settings_become_a_notice(stage: Stage) -> None:
    stage.profile.settings_file.write_text('{"theme": "pink"}', "utf-8")
    stage.restart()
    stage.session.raise_stored_problems()
    assert stage.codes() == ["invalid_setting"]


def test_lone_surrogates_do_not_reach_the_engine_or_the_store(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation("a\ud800")
    assert stage.session.send(conversation_id, "b\udfff")
    stage.wait_idle(conversation_id)
    stage.restart()
    assert stage.path(conversation_id)[0].content == "b?"
    assert stage.notices == []


def test_an_error_in_the_middle_keeps_the_text(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "go on")
    stage.wait(lambda: len(stage.path(conversation_id)[-1].content) > 20)
    error = ErrorInfo("out_of_memory", "No memory for 3 blocks.", "Close something.")
    (submit,) = stage.submits()
    stage.engine.post(
        RequestFinished(
            submit.request_ids[0],
            conversation_id,
            FinishReason.ERROR,
            "",
            RequestUsage(),
            None,
            1,
            error=error,
        )
    )
    stage.wait_idle(conversation_id)
    answer = stage.path(conversation_id)[-1]
    assert (answer.status, answer.error) == (MessageStatus.ERROR, error)
    assert len(answer.content) > 20
    assert stage.names().count("message_removed") == 0
