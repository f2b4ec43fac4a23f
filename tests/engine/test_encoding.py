"""Long prompts are encoded beside the engine thread; what the user sees stays in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.api.client import EngineHandle
from engine.api.commands import (
    Cancel,
    CountTokens,
    EditCost,
    Forecast,
    Fork,
    LoadModel,
    Pause,
    Pin,
    Resume,
    Submit,
    SubscribePool,
    UnloadModel,
    Unpin,
)
from engine.api.events import (
    CommandFailed,
    EditCostReady,
    FinishReason,
    ForecastReady,
    ModelLoaded,
    ModelUnloaded,
    RequestFinished,
    RequestPaused,
    TokensCounted,
    TokensGenerated,
)
from engine.api.params import ChatMessage, SamplingParams
from engine.encoding import ENCODER_THREAD_NAME, INLINE_CHARS
from engine.model_loader import LoadedEngine, ModelLoader
from tests.helpers.fake_loaded import CharEncoder, CharTokenizer, fake_engine
from tests.helpers.talk import Talk, submit
from tests.helpers.tiny_chat import tiny_encoder, user
from tests.helpers.tiny_tokenizer import tiny_tokenizer

LONG = "l" * (INLINE_CHARS + 1)


class GatedEncoder(CharEncoder):
    """Long texts wait for ``gate``; a long text becomes as many tokens as a short prompt."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.threads: list[str] = []

    def encode(self, messages, **options):
        self.threads.append(threading.current_thread().name)
        if sum(len(message.content) for message in messages) > INLINE_CHARS:
            self.begun.set()
            assert self.gate.wait(10.0)
            messages = [ChatMessage("user", message.content[:24]) for message in messages]
        return super().encode(messages, **options)


class Scene:
    """A talk with an engine whose long encodings wait until ``gate`` is set."""

    def __init__(self, talk: Talk, encoder: GatedEncoder, engine: LoadedEngine) -> None:
        self.talk, self.encoder, self.engine = talk, encoder, engine

    def settle(self, name: str) -> None:
        self.talk.send(CountTokens("", command_id=name))
        self.talk.until(TokensCounted, command_id=name)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    encoder, engine = GatedEncoder(), fake_engine()
    engine.encoder = encoder
    monkeypatch.setattr(ModelLoader, "_load", lambda loader: engine)
    handle = EngineHandle()
    talk = Talk(handle.owner)
    talk.send(LoadModel(""))
    talk.until(ModelLoaded)
    yield Scene(talk, encoder, engine)
    encoder.gate.set()
    assert handle.owner.close(5.0), "the engine thread did not end"


def heard(talk: Talk, kind: type, **fields: object) -> list:
    talk.events.extend(talk.client.poll_events())
    return [
        event
        for event in talk.events
        if isinstance(event, kind) and all(getattr(event, k) == v for k, v in fields.items())
    ]


def test_short_prompts_stay_on_the_engine_thread_long_ones_do_not(scene):
    scene.talk.send(submit("a"))
    scene.talk.until(RequestFinished)
    scene.encoder.gate.set()
    scene.talk.send(submit("b", LONG))
    scene.talk.until(RequestFinished, request_id="b", reason=FinishReason.LENGTH)
    assert scene.encoder.threads == ["quire-engine", ENCODER_THREAD_NAME]


def test_streams_go_on_while_a_long_prompt_is_encoded(scene):
    scene.talk.send(submit("slow", LONG), submit("a", max_tokens=50))
    done = scene.talk.until(RequestFinished, request_id="a")
    assert done.usage.output_tokens == 50
    assert not heard(scene.talk, RequestFinished, request_id="slow")
    scene.encoder.gate.set()
    scene.talk.until(RequestFinished, request_id="slow", reason=FinishReason.LENGTH)


@pytest.mark.parametrize("text", ["short", LONG], ids=["here", "beside"])
def test_an_encoder_that_panics_costs_one_answer(scene, monkeypatch, text):
    """tokenizers gives up with something that is no Exception."""

    class PanicException(BaseException):
        """As pyo3 calls it."""

    def panic(messages, **options):
        raise PanicException("index out of bounds")

    scene.encoder.gate.set()
    monkeypatch.setattr(scene.encoder, "encode", panic)
    scene.talk.send(submit("a", text))
    end = scene.talk.until(RequestFinished, request_id="a")
    assert "index out of bounds" in end.error.message
    monkeypatch.undo()
    scene.talk.send(submit("b", text))
    scene.talk.until(RequestFinished, request_id="b", reason=FinishReason.LENGTH)


def test_waiting_counts_from_the_submission(scene, monkeypatch):
    arrivals: list[float] = []
    add = scene.engine.core.add_request

    def noted(*rest, arrival_s, **options):
        arrivals.append(arrival_s)
        return add(*rest, arrival_s=arrival_s, **options)

    monkeypatch.setattr(scene.engine.core, "add_request", noted)
    scene.talk.send(submit("slow", LONG))
    assert scene.encoder.begun.wait(5.0)
    begun = time.perf_counter()
    scene.encoder.gate.set()
    scene.talk.until(TokensGenerated)
    assert len(arrivals) == 1
    assert arrivals[0] < begun


def test_cancel_of_a_request_that_is_being_encoded(scene):
    three = submit("x", LONG)
    scene.talk.send(Submit(("a", "b"), "c", three.messages, three.params))
    assert scene.encoder.begun.wait(5.0)
    scene.talk.send(Cancel("a"))
    assert scene.talk.until(RequestFinished).reason is FinishReason.CANCELLED
    scene.talk.send(Cancel("b"))
    scene.talk.until(RequestFinished, request_id="b", reason=FinishReason.CANCELLED)
    scene.encoder.gate.set()
    scene.settle("s")
    time.sleep(0.05)
    scene.settle("t")
    assert scene.engine.core.requests == {}
    assert len(heard(scene.talk, RequestFinished)) == 2
    scene.talk.send(submit("a"))
    scene.talk.until(RequestFinished, request_id="a", reason=FinishReason.LENGTH)


def test_commands_about_a_request_wait_until_it_is_there(scene):
    scene.talk.send(submit("a", LONG, max_tokens=30), Pause("a"), Fork("a", "b", "other"))
    assert scene.encoder.begun.wait(5.0)
    scene.settle("s")
    assert not heard(scene.talk, CommandFailed)
    scene.encoder.gate.set()
    scene.talk.until(RequestPaused, request_id="a")
    scene.talk.until(RequestFinished, request_id="b", reason=FinishReason.LENGTH)
    assert not heard(scene.talk, RequestFinished, request_id="a")
    scene.talk.send(Resume("a"))
    scene.talk.until(RequestFinished, request_id="a", reason=FinishReason.LENGTH)


def test_commands_about_a_request_that_never_comes_fail(scene):
    scene.talk.send(submit("a", LONG), Pause("a", command_id="p"))
    assert scene.encoder.begun.wait(5.0)
    scene.talk.send(Cancel("a"))
    assert scene.talk.until(CommandFailed, command_id="p").error.code == "unknown_id"


def test_unloading_ends_what_is_being_encoded(scene):
    scene.talk.send(submit("a", LONG), CountTokens(LONG, command_id="q"))
    assert scene.encoder.begun.wait(5.0)
    scene.talk.send(UnloadModel(command_id="u"))
    scene.talk.until(ModelUnloaded, command_id="u")
    assert scene.talk.until(RequestFinished).reason is FinishReason.CANCELLED
    assert scene.talk.until(CommandFailed, command_id="q").error.code == "no_model"
    scene.encoder.gate.set()
    scene.talk.send(submit("b"))
    assert scene.talk.until(RequestFinished, request_id="b").error.code == "no_model"
    assert len(heard(scene.talk, RequestFinished)) == 2


def test_questions_of_one_conversation_are_answered_in_order(scene):
    short, long = ((ChatMessage("user", text),) for text in ("s", LONG))
    scene.talk.send(
        Forecast("c", long, command_id="1"),
        EditCost("c", short, 0, command_id="2"),
        Forecast("other", short, command_id="3"),
    )
    scene.talk.until(ForecastReady, command_id="3")
    assert not heard(scene.talk, EditCostReady)
    scene.encoder.gate.set()
    scene.talk.until(EditCostReady, command_id="2")
    order = [event.command_id for event in scene.talk.events if hasattr(event, "command_id")]
    assert order.index("3") < order.index("1") < order.index("2")


def test_unpin_takes_back_a_pin_that_is_being_encoded(scene):
    question = submit("a", "l" * 24)
    scene.talk.send(Submit(("a",), "c", question.messages, question.params))
    scene.talk.until(RequestFinished)
    scene.talk.send(Pin("c", (ChatMessage("user", LONG),)))
    assert scene.encoder.begun.wait(5.0)
    scene.talk.send(Unpin("c"), SubscribePool())
    scene.encoder.gate.set()
    scene.settle("s")
    time.sleep(0.05)
    scene.settle("t")
    assert scene.engine.core.pool.num_pinned == 0


def test_failure_beside_the_engine_thread_ends_only_its_command(scene, monkeypatch):
    def broken(tokenizer, text):
        raise ValueError("planted")

    monkeypatch.setattr(CharTokenizer, "encode_text", broken)
    scene.encoder.gate.set()
    scene.talk.send(CountTokens(LONG, command_id="q"), submit("a", LONG))
    assert "planted" in scene.talk.until(CommandFailed, command_id="q").error.message
    assert "planted" in scene.talk.until(RequestFinished).error.message
    monkeypatch.undo()
    scene.talk.send(submit("b", LONG))


def test_unloaded_model_does_not_live_on_in_the_encoder(scene):
    import gc
    import weakref

    scene.encoder.gate.set()
    scene.talk.send(submit("a", LONG))
    scene.talk.until(RequestFinished)
    core = weakref.ref(scene.engine.core)
    scene.talk.send(UnloadModel(command_id="u"))
    scene.talk.until(ModelUnloaded, command_id="u")
    assert core() is scene.engine.core
    beside = scene.engine.text_beside()
    assert not any(referred is core() for referred in gc.get_referents(beside))


def test_two_encoders_and_a_decoder_of_one_tokenizer_at_once():
    """What the engine thread and the encoder thread do at the same time, on real parts."""
    tokenizer = tiny_tokenizer()
    text = "ab <|im_end|> 你好 " * 2000
    wanted = tiny_encoder().encode([user(text)]).token_ids
    said = tokenizer.decode(wanted)

    def encode(_: int) -> list[int]:
        return tiny_encoder().encode([user(text)]).token_ids

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(encode, range(6)))
        texts = list(threads.map(lambda _: tokenizer.decode(wanted), range(6)))
    assert all(ids == wanted for ids in found)
    assert set(texts) == {said}


def test_parameters_survive_the_detour(scene):
    scene.encoder.gate.set()
    params = SamplingParams(temperature=0.0, max_tokens=3, seed=11)
    scene.talk.send(Submit(("a",), "c", (ChatMessage("user", LONG),), params))
    done = scene.talk.until(RequestFinished)
    assert (done.seed, done.usage.output_tokens, done.conversation_id) == (11, 3, "c")
