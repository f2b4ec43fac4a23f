"""The context limit through the engine thread, and what the queries encode of a cut history."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from engine.api.commands import (
    CompareBackends,
    Continue,
    CountTokens,
    EditCost,
    Forecast,
    Inspect,
    LoadModel,
    Pin,
    Submit,
    SubscribePool,
)
from engine.api.events import (
    CommandFailed,
    EditCostReady,
    FinishReason,
    ForecastReady,
    ModelLoaded,
    RequestFinished,
    RequestQueued,
    TokensCounted,
)
from engine.api.params import (
    ChatMessage,
    ContextCut,
    ContextPolicy,
    OverflowPolicy,
    SamplingParams,
)
from engine.queries import query_of
from tests.helpers.fake_loaded import INFO, CharTokenizer, fake_engine, install_fake_loader
from tests.helpers.talk import Talk, talk_with_engine

POOL = INFO.num_blocks * INFO.block_size
GREEDY = SamplingParams(temperature=0.0, max_tokens=4, seed=0)
SYSTEM = ChatMessage("system", "s" * 20)


def history(*sizes: int, last: int = 5) -> tuple[ChatMessage, ...]:
    """A system message, pairs of two messages of these sizes, and a question."""
    messages = [SYSTEM]
    for number, size in enumerate(sizes):
        messages.append(ChatMessage("user", chr(65 + number) * size))
        messages.append(ChatMessage("assistant", chr(97 + number) * size))
    return (*messages, ChatMessage("user", "?" * last))


def dropping(num_dropped: int = 0) -> ContextPolicy:
    return ContextPolicy(OverflowPolicy.DROP_OLDEST, num_dropped)


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Talk]:
    install_fake_loader(monkeypatch)
    with talk_with_engine() as made:
        made.send(LoadModel(models_dir=""))
        made.until(ModelLoaded)
        yield made


def queued(talk: Talk, request_id: str) -> RequestQueued:
    event = talk.until(RequestQueued, request_id=request_id)
    assert isinstance(event, RequestQueued)
    return event


def test_a_request_tells_its_cut_and_the_next_keeps_it(talk: Talk) -> None:
    messages = history(60, 60, 60, 60, 60)
    assert sum(len(m.content) for m in messages) > POOL
    talk.send(Submit(("a",), "c", messages, GREEDY, dropping()))
    # 20 + 5 of 256 tokens that half the pool holds leave room for one pair of 120.
    assert queued(talk, "a").cut == ContextCut(8, 8, 8 * 60)
    assert queued(talk, "a").prompt_tokens == 20 + 120 + 5
    talk.until(RequestFinished, request_id="a")
    more = (*messages, ChatMessage("assistant", "x"), ChatMessage("user", "y"))
    talk.send(Submit(("b",), "c", more, GREEDY, dropping(8)))
    assert queued(talk, "b").cut == ContextCut(8)
    talk.until(RequestFinished, request_id="b")


def test_every_answer_of_one_question_tells_the_cut(talk: Talk) -> None:
    talk.send(Submit(("a", "b"), "c", history(60, 60, 60, 60, 60), GREEDY, dropping()))
    assert queued(talk, "a").cut == queued(talk, "b").cut == ContextCut(8, 8, 480)
    for name in "ab":
        talk.until(RequestFinished, request_id=name)


def test_without_a_policy_nothing_is_dropped(talk: Talk) -> None:
    talk.send(Submit(("a",), "c", history(60, 60, 60, 60, 60), GREEDY))
    done = talk.until(RequestFinished, request_id="a", reason=FinishReason.ERROR)
    assert isinstance(done, RequestFinished)
    assert done.error is not None
    assert done.error.code == "prompt_exceeds_pool"
    assert not [event for event in talk.events if isinstance(event, RequestQueued)]


def test_what_cannot_fit_is_refused_and_forecast_as_refused(talk: Talk) -> None:
    messages = history(10, last=INFO.context_length)
    talk.send(Submit(("a",), "c", messages, GREEDY, dropping()))
    done = talk.until(RequestFinished, request_id="a", reason=FinishReason.ERROR)
    assert isinstance(done, RequestFinished)
    assert done.error is not None
    assert done.error.code == "message_too_long"
    numbers = {"prompt_tokens": 20 + INFO.context_length, "context_length": INFO.context_length}
    assert dict(done.error.numbers) == numbers
    talk.send(Forecast("c", messages, context=dropping(), command_id="f"))
    failed = talk.until(CommandFailed, command_id="f")
    assert isinstance(failed, CommandFailed)
    assert failed.error == done.error


def test_a_forecast_says_what_would_be_dropped_and_computed_again(talk: Talk) -> None:
    messages = history(60, 60, 60, 60, 60)
    talk.send(Forecast("c", messages, 4, dropping(), command_id="f"))
    reply = talk.until(ForecastReady, command_id="f")
    assert isinstance(reply, ForecastReady)
    assert reply.cut == ContextCut(8, 8, 480)
    assert (reply.prompt_tokens, reply.cached_tokens) == (145, 0)


def test_a_continued_answer_reads_what_its_question_read(talk: Talk) -> None:
    messages = history(60, 60, 60, 60, 60)
    talk.send(Submit(("a",), "c", messages, GREEDY, dropping()))
    turn = talk.until(RequestFinished, request_id="a").turn
    so_far = ChatMessage("assistant", "four", turn)
    talk.send(Continue("b", "c", (*messages, so_far), GREEDY, dropping(8)))
    assert queued(talk, "b").cut == ContextCut(8)
    talk.until(RequestFinished, request_id="b")


def test_a_pin_holds_what_the_conversation_reads(talk: Talk) -> None:
    messages = history(30, 30)
    talk.send(Submit(("a",), "c", messages, GREEDY, dropping(2)))
    talk.until(RequestFinished, request_id="a")
    talk.send(
        SubscribePool(),
        Pin("c", messages, dropping(2)),
        CountTokens("", command_id="1"),
    )
    talk.until(TokensCounted, command_id="1")
    deadline = time.monotonic() + 5.0
    # 20 + 60 + 5 tokens fill ten blocks of eight.
    while talk.client.latest_snapshot().num_used != 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert talk.client.latest_snapshot().num_used == 10


def test_an_edit_before_the_cut_brings_the_dropped_messages_back(talk: Talk) -> None:
    messages = history(30, 30)
    talk.send(
        EditCost("c", messages, 3, dropping(2), command_id="after"),
        EditCost("c", messages, 1, dropping(2), command_id="before"),
        EditCost("c", messages, 0, dropping(2), command_id="system"),
    )
    costs = {}
    for name in ("after", "before", "system"):
        reply = talk.until(EditCostReady, command_id=name)
        assert isinstance(reply, EditCostReady)
        costs[name] = reply.invalidated_tokens
    # The prompt is system, second pair, question. Only the system message stays in the first two.
    assert costs == {"after": 65, "before": 65, "system": 85}


def test_inspector_and_comparison_read_the_shortened_history() -> None:
    engine, messages = fake_engine(), history(30, 30)
    expected = CharTokenizer().encode_text("s" * 20 + "B" * 30 + "b" * 30 + "?????")
    for command in (
        Inspect("c", messages, dropping(2)),
        CompareBackends("c", messages, "dense", context=dropping(2)),
    ):
        assert query_of(command).encode(engine, command) == expected


def test_a_pinned_conversation_goes_on_past_the_cut(talk: Talk) -> None:
    """Its own pins of what has been cut off must not be what its next prompt has no room for."""
    messages = [ChatMessage("system", "s" * 16)]
    num_dropped = 0
    for turn in range(20):
        messages.append(ChatMessage("user", chr(ord("a") + turn) * 40))
        talk.send(Submit((f"r{turn}",), "c", tuple(messages), GREEDY, dropping(num_dropped)))
        num_dropped = queued(talk, f"r{turn}").cut.num_messages
        done = talk.until(RequestFinished, request_id=f"r{turn}")
        assert isinstance(done, RequestFinished)
        assert done.error is None
        assert done.limit == "max_tokens"
        talk.send(Pin("c", tuple(messages), dropping(num_dropped)))
        messages.append(ChatMessage("assistant", "x" * 10))
    assert num_dropped > 0
