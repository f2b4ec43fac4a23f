"""A conversation on the real starter model goes on past its context, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.paths import models_dir
from engine.api.commands import Forecast, LoadModel, Submit
from engine.api.events import (
    FinishReason,
    ForecastReady,
    ModelLoaded,
    RequestFinished,
    RequestQueued,
    TokensGenerated,
)
from engine.api.params import (
    ChatMessage,
    ContextCut,
    ContextPolicy,
    EngineConfig,
    OverflowPolicy,
    SamplingParams,
)
from tests.helpers.starter import starter_gguf
from tests.helpers.talk import Talk, talk_with_engine

CONTEXT, BLOCK = 192, 16
PARAMS = SamplingParams(temperature=0.0, max_tokens=12, seed=0)
QUESTIONS = [
    "What is the capital of France?",
    "Name three colours of the rainbow, please.",
    "Why is the sky blue during the day?",
    "And at night?",
    "How many legs does a spider have?",
]


@pytest.fixture(scope="module")
def talk() -> Iterator[Talk]:
    starter_gguf()
    config = EngineConfig(
        dtype="float32", device="cpu", max_model_len=CONTEXT, num_blocks=200, num_threads=1
    )
    with talk_with_engine(patience_s=10.0) as made:
        made.send(LoadModel(str(models_dir()), config=config))
        made.until(ModelLoaded, timeout_s=120.0)
        yield made


class Conversation:
    """Sends the whole history and the last cut, as the application does."""

    def __init__(self, talk: Talk, name: str, overflow: OverflowPolicy) -> None:
        self.talk, self.name, self.overflow = talk, name, overflow
        self.messages = [ChatMessage("system", "You answer briefly.")]
        self.cut = ContextCut()
        self.number = 0

    @property
    def context(self) -> ContextPolicy:
        return ContextPolicy(self.overflow, self.cut.num_messages)

    def forecast(self) -> ForecastReady:
        query = Forecast(
            self.name,
            tuple(self.messages),
            PARAMS.max_tokens,
            self.context,
            command_id=f"{self.name}-forecast-{self.number}",
        )
        reply = self.talk.ask(query)
        assert isinstance(reply, ForecastReady), reply
        return reply

    def answer(self) -> tuple[RequestQueued, RequestFinished]:
        """Answers the messages and appends the answer with its ids."""
        request_id = f"{self.name}-{self.number}"
        self.number += 1
        self.talk.send(Submit((request_id,), self.name, tuple(self.messages), PARAMS, self.context))
        finished = self.talk.until(RequestFinished, 120.0, request_id=request_id)
        assert isinstance(finished, RequestFinished)
        assert finished.reason in (FinishReason.STOP, FinishReason.LENGTH), finished
        queued = self.talk.until(RequestQueued, request_id=request_id)
        assert isinstance(queued, RequestQueued)
        text = "".join(
            event.text
            for event in self.talk.events
            if isinstance(event, TokensGenerated) and event.request_id == request_id
        )
        self.messages.append(ChatMessage("assistant", text + finished.text, finished.turn))
        self.cut = queued.cut
        return queued, finished


def test_a_conversation_passes_its_context_several_times(talk: Talk) -> None:
    chat = Conversation(talk, "long", OverflowPolicy.DROP_OLDEST)
    total, moves = 0, 0
    for number in range(16):
        chat.messages.append(ChatMessage("user", QUESTIONS[number % 5]))
        before = chat.cut
        forecast = chat.forecast()
        queued, finished = chat.answer()
        usage, turn = finished.usage, finished.turn
        assert turn is not None
        # What was said before sending is what happened.
        assert (forecast.cut, forecast.prompt_tokens) == (queued.cut, usage.prompt_tokens)
        assert forecast.cached_tokens == usage.cached_tokens
        assert queued.reencoded_tokens == 0
        if queued.cut.new_messages:
            moves += 1
            assert usage.prompt_tokens <= CONTEXT // 2
            assert queued.cut.num_messages == before.num_messages + queued.cut.new_messages
            assert total + len(turn.prompt_ids) - usage.prompt_tokens == queued.cut.new_tokens
            assert forecast.recomputed_tokens > 0
            check_ids(chat, usage.prompt_tokens)
        else:
            # All but the last token of the turn before is in the cache, in whole blocks.
            assert usage.prompt_tokens == total + len(turn.prompt_ids)
            if number:
                assert usage.cached_tokens == (total - 1) // BLOCK * BLOCK
                assert forecast.recomputed_tokens == total - usage.cached_tokens
        total = usage.prompt_tokens + usage.output_tokens
        assert total <= CONTEXT
    assert moves >= 3
    assert len(chat.messages) == 1 + 2 * 16


def check_ids(chat: Conversation, prompt_tokens: int) -> None:
    """The shortened history as a conversation of its own, from text, is the very same prompt."""
    kept = [chat.messages[0], *chat.messages[1 + chat.cut.num_messages : -1]]
    other = Conversation(chat.talk, f"{chat.name}-kept-{chat.number}", OverflowPolicy.STOP)
    other.messages = [replace(message, turn=None) for message in kept]
    _queued, finished = other.answer()
    assert finished.usage.prompt_tokens == prompt_tokens
    assert finished.usage.cached_tokens == (prompt_tokens - 1) // BLOCK * BLOCK
    assert other.messages[-1].content == chat.messages[-1].content


def test_with_stop_it_ends_with_the_numbers_and_goes_on_once_it_may_drop(talk: Talk) -> None:
    chat = Conversation(talk, "stops", OverflowPolicy.STOP)
    chat.messages += [ChatMessage("user", "word " * 300)]
    talk.send(Submit(("refused",), "stops", tuple(chat.messages), PARAMS))
    refused = talk.until(RequestFinished, request_id="refused")
    assert isinstance(refused, RequestFinished)
    assert refused.error is not None
    assert refused.error.code == "prompt_too_long"
    assert dict(refused.error.numbers)["context_length"] == CONTEXT
    assert "drop its oldest messages" in refused.error.action
    assert chat.forecast().prompt_tokens == dict(refused.error.numbers)["prompt_tokens"]
    # The same as history of a short question.
    chat.overflow = OverflowPolicy.DROP_OLDEST
    chat.messages += [ChatMessage("assistant", "That is long."), ChatMessage("user", "Is it?")]
    queued, _finished = chat.answer()
    assert queued.cut.num_messages == 2


def test_an_answer_that_reaches_the_limit_ends_there_and_the_next_turn_drops(talk: Talk) -> None:
    chat = Conversation(talk, "inside", OverflowPolicy.DROP_OLDEST)
    chat.messages += [ChatMessage("user", "Count: " + "one two three four five " * 8)]
    params = SamplingParams(temperature=0.0, seed=0, ignore_eos=True)
    talk.send(Submit(("full",), "inside", tuple(chat.messages), params, chat.context))
    finished = talk.until(RequestFinished, 120.0, request_id="full")
    assert isinstance(finished, RequestFinished)
    assert (finished.reason, finished.limit) == (FinishReason.LENGTH, "context")
    usage = finished.usage
    assert usage.prompt_tokens + usage.output_tokens == CONTEXT
    text = "".join(
        e.text for e in talk.events if isinstance(e, TokensGenerated) and e.request_id == "full"
    )
    chat.messages += [ChatMessage("assistant", text + finished.text, finished.turn)]
    chat.messages += [ChatMessage("user", "Go on.")]
    queued, _finished = chat.answer()
    assert queued.cut.num_messages == 2
