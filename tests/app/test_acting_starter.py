"""Acting on messages over the real engine: only what is new is computed, and ids come out equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtWidgets import QApplication

from app.answer_facts import departure
from app.bridge import Bridge
from app.conversation import Message, MessageStatus
from app.paths import Profile, models_dir
from app.session import Session
from app.session_state import ModelStatus
from app.settings import Settings
from app.store import Store
from engine.api.client import start_engine
from engine.api.params import EngineConfig, SamplingParams
from tests.helpers.starter import starter_gguf

BLOCK = 16
SYSTEM = "You are a helpful assistant. Be brief and answer in plain words, please."


class Stage:
    """A session over the engine's own thread; ``said``: what it told of answers."""

    def __init__(self, data_dir) -> None:
        self.settings = Settings(None)
        self.settings.change(
            engine=EngineConfig(device="cpu", dtype="float32", num_blocks=200, num_threads=1)
        )
        self.sampling(max_tokens=8)
        self.store = Store(Profile(data_dir))
        self.bridge = Bridge(start_engine)
        self.session = Session(self.bridge, self.store, self.settings, str(models_dir()))
        self.bridge.start()
        self.session.load_model()

    def sampling(self, **values: object) -> None:
        params = {"temperature": 0.8, "seed": 7, "max_tokens": 8, **values}
        self.settings.change(sampling=SamplingParams(**params))

    def close(self) -> None:
        self.session.shut_down()
        assert self.bridge.close(10.0)
        self.store.close()


@pytest.fixture(scope="module")
def stage(qapp: QApplication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    starter_gguf()
    stage = Stage(tmp_path_factory.mktemp("profile"))
    yield stage
    stage.close()


@pytest.fixture
def wait(stage: Stage, qtbot) -> Callable[[str], None]:
    qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.READY, timeout=120_000)
    stage.sampling()

    def until_idle(conversation_id: str) -> None:
        qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id), timeout=120_000)

    return until_idle


def asked(stage: Stage, wait: Callable[[str], None], *texts: str) -> str:
    conversation_id = stage.session.new_conversation(SYSTEM)
    for text in texts:
        assert stage.session.send(conversation_id, text)
        wait(conversation_id)
    return conversation_id


def path(stage: Stage, conversation_id: str) -> list[Message]:
    return stage.session.conversation(conversation_id).path()


def fed(messages: list[Message]) -> list[int]:
    """The ids of these turns, as they were fed and sampled."""
    turns = [m.turn for m in messages if m.turn is not None]
    return [token for turn in turns for token in (*turn.prompt_ids, *turn.output_ids)]


def computed(message: Message) -> int:
    """Tokens of the prompt that were computed, which the engine's account must agree with."""
    assert message.usage is not None
    assert message.usage.recomputed_tokens == 0
    assert (
        message.usage.computed_tokens == message.usage.prompt_tokens - message.usage.cached_tokens
    )
    return message.usage.computed_tokens


def cached_of(num_tokens: int) -> int:
    """What the cache can give of so many known tokens: whole blocks, never the last token."""
    return max(0, num_tokens - 1) // BLOCK * BLOCK


def test_regenerating_computes_only_the_end_of_the_prompt(stage: Stage, wait) -> None:
    conversation_id = asked(stage, wait, "What is the capital of France?", "And of Spain?")
    first = path(stage, conversation_id)[-1]
    stage.sampling(seed=8)
    stage.session.regenerate(conversation_id)
    wait(conversation_id)
    second = path(stage, conversation_id)[-1]
    assert second is not first
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens == first.usage.prompt_tokens
    assert second.usage.cached_tokens == cached_of(first.usage.prompt_tokens)
    assert computed(second) <= BLOCK


def test_an_edit_keeps_the_turns_before_it_in_the_cache(stage: Stage, wait) -> None:
    conversation_id = asked(
        stage, wait, "Name a colour of the rainbow.", "And another?", "The last one?"
    )
    question = path(stage, conversation_id)[2]
    before = len(fed(path(stage, conversation_id)[:2]))
    stage.session.edit(conversation_id, question.message_id, "How many legs has a spider?")
    wait(conversation_id)
    answer = path(stage, conversation_id)[-1]
    assert len(path(stage, conversation_id)) == 4
    assert answer.usage is not None
    assert answer.usage.cached_tokens >= before // BLOCK * BLOCK
    assert answer.turn is not None
    assert computed(answer) < len(answer.turn.prompt_ids) + BLOCK


def test_back_on_the_old_branch_the_next_turn_sends_its_exact_ids(stage: Stage, wait) -> None:
    conversation_id = asked(stage, wait, "Say a number.", "Say a letter.")
    old = path(stage, conversation_id)
    stage.session.edit(conversation_id, old[0].message_id, "Say a word.")
    wait(conversation_id)
    stage.session.select_version(conversation_id, old[0].message_id)
    stage.session.send(conversation_id, "Say another.")
    wait(conversation_id)
    answer = path(stage, conversation_id)[-1]
    assert answer.turn is not None
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(fed(old)) + len(answer.turn.prompt_ids)
    assert answer.usage.cached_tokens == cached_of(len(fed(old)))


def test_a_fork_in_the_middle_is_served_from_the_cache(stage: Stage, wait) -> None:
    conversation_id = asked(stage, wait, "Where do penguins live?", "And polar bears?")
    first_answer = path(stage, conversation_id)[1]
    fork_id = stage.session.fork(conversation_id, first_answer.message_id)
    stage.session.send(fork_id, "What do they eat?")
    wait(fork_id)
    answer = path(stage, fork_id)[-1]
    assert len(path(stage, fork_id)) == 4
    assert answer.usage is not None
    assert answer.turn is not None
    assert answer.usage.cached_tokens >= cached_of(len(fed(path(stage, fork_id)[:2])))
    assert computed(answer) <= len(answer.turn.prompt_ids) + BLOCK


def test_a_continued_answer_is_the_answer_that_was_not_cut(stage: Stage, wait) -> None:
    question = "Tell me a short story about a cat."
    stage.sampling(max_tokens=24)
    whole = path(stage, asked(stage, wait, question))[-1]
    stage.sampling(max_tokens=10)
    conversation_id = asked(stage, wait, question)
    answer = path(stage, conversation_id)[-1]
    assert answer.limit == "max_tokens"
    assert answer.usage is not None
    given = answer.usage.prompt_tokens + answer.usage.output_tokens
    answer.params = SamplingParams(temperature=0.8, seed=7, max_tokens=14)
    stage.session.continue_answer(conversation_id)
    wait(conversation_id)
    assert whole.turn is not None
    assert answer.turn is not None
    assert answer.turn.output_ids == whole.turn.output_ids
    assert answer.content == whole.content
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == given
    assert answer.usage.cached_tokens == cached_of(given)


def test_a_stopped_answer_goes_on_without_computing_again_what_it_had(
    stage: Stage, wait, qtbot
) -> None:
    stage.sampling(max_tokens=60)
    conversation_id = stage.session.new_conversation(SYSTEM)
    stage.session.send(conversation_id, "Count from one to fifty.")
    answer = path(stage, conversation_id)[-1]
    qtbot.waitUntil(lambda: len(answer.content) > 10, timeout=60_000)
    stage.session.stop(conversation_id)
    wait(conversation_id)
    assert answer.status is MessageStatus.STOPPED
    assert answer.turn is not None
    had = answer.turn.output_ids
    answer.params = SamplingParams(temperature=0.8, max_tokens=3)
    stage.session.continue_answer(conversation_id)
    wait(conversation_id)
    assert answer.turn is not None
    assert answer.turn.output_ids[: len(had)] == had
    assert computed(answer) <= BLOCK


def test_several_answers_compute_their_prompt_once(stage: Stage, wait) -> None:
    conversation_id = stage.session.new_conversation(SYSTEM + " Several ways.")
    stage.session.send(conversation_id, "Invent a name for a boat, and say why.", num_answers=3)
    conversation = stage.session.conversation(conversation_id)
    compared = stage.session.compared(conversation_id)
    wait(conversation_id)
    answers = [conversation.message(message_id) for message_id in compared]
    usages = [answer.usage for answer in answers]
    assert all(usage is not None for usage in usages)
    prompt = usages[0].prompt_tokens  # type: ignore[union-attr]
    # The others share the first one's blocks, the partial one too or what is left of it.
    assert sum(map(computed, answers)) <= prompt + 2 * BLOCK
    assert len({answer.seed for answer in answers}) == 3
    alone = asked(stage, wait)
    stage.session.set_system_prompt(alone, SYSTEM + " Several ways.")
    stage.session.send(alone, "Invent a name for a boat, and say why.")
    wait(alone)
    assert path(stage, alone)[-1].content == answers[0].content


def test_run_again_gives_the_same_ids(stage: Stage, wait) -> None:
    conversation_id = asked(stage, wait, "What is rain?", "And snow?")
    stage.sampling(temperature=1.5, seed=99, max_tokens=30)
    first = path(stage, conversation_id)[-1]
    assert stage.session.repeat(conversation_id, first.message_id)
    wait(conversation_id)
    again = path(stage, conversation_id)[-1]
    assert first.turn is not None
    assert again.turn is not None
    assert again.turn.prompt_ids == first.turn.prompt_ids
    assert again.turn.output_ids == first.turn.output_ids
    assert departure(first, again).is_same
    assert computed(again) <= BLOCK


def test_one_of_several_runs_again_with_its_own_seed(stage: Stage, wait) -> None:
    conversation_id = stage.session.new_conversation(SYSTEM)
    stage.session.send(conversation_id, "Name a fruit and a tree.", num_answers=2)
    second_id = stage.session.compared(conversation_id)[1]
    wait(conversation_id)
    second = stage.session.conversation(conversation_id).message(second_id)
    stage.session.repeat(conversation_id, second_id)
    wait(conversation_id)
    again = path(stage, conversation_id)[-1]
    assert departure(second, again).is_same


def test_two_chats_that_alternate_compute_only_what_is_new(stage: Stage, wait) -> None:
    stage.sampling(max_tokens=3)
    ids = [stage.session.new_conversation(f"{SYSTEM} You are {name}.") for name in ("Ann", "Bob")]
    totals = dict.fromkeys(ids, 0)
    for number in range(10):
        for conversation_id in ids:
            stage.session.send(conversation_id, f"And number {number}?")
            wait(conversation_id)
            answer = path(stage, conversation_id)[-1]
            assert answer.usage is not None
            assert answer.turn is not None
            total = totals[conversation_id]
            if total:
                # What was fed and sampled before is found, but for the block that was not full.
                assert answer.usage.prompt_tokens == total + len(answer.turn.prompt_ids)
                assert answer.usage.cached_tokens == cached_of(total)
                assert computed(answer) - len(answer.turn.prompt_ids) <= BLOCK
            totals[conversation_id] = answer.usage.prompt_tokens + answer.usage.output_tokens


def test_a_conversation_that_ends_with_an_answer_is_pinned_with_it(
    stage: Stage, wait, qtbot
) -> None:
    conversation_id = asked(stage, wait, "Remember the word basket, please.")
    kept = len(fed(path(stage, conversation_id)))
    stage.session.keep_in_cache(conversation_id, True)
    stage.bridge.subscribe_pool()

    def num_pinned() -> int:
        snapshot = stage.bridge.latest_snapshot()
        pins = b"" if snapshot is None else snapshot.pool.pins
        return sum(map(bool, memoryview(pins).cast("H")))

    qtbot.waitUntil(lambda: num_pinned() == (kept - 1) // BLOCK, timeout=20_000)
    assert stage.session.is_kept_in_cache(conversation_id)
    stage.session.keep_in_cache(conversation_id, False)
    qtbot.waitUntil(lambda: num_pinned() == 0, timeout=20_000)
    stage.bridge.unsubscribe_pool()
