"""``Inspect`` and ``CompareBackends`` through the engine thread, on a model from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api.commands import (
    CompareBackends,
    Inspect,
    LoadModel,
    PauseEngine,
    ResumeEngine,
    StepEngine,
    Submit,
)
from engine.api.errors import EmptyMessageError
from engine.api.events import (
    CommandFailed,
    Event,
    ModelLoaded,
    ParityReport,
    RequestFinished,
    TokensGenerated,
)
from engine.api.params import ChatMessage, EngineConfig, SamplingParams
from tests.helpers.fake_loaded import install_fake_loader
from tests.helpers.talk import Talk, talk_with_engine
from tests.helpers.tiny_gguf import TinyGguf

MESSAGES = (ChatMessage("user", "hello world, tell me of pages"),)
GREEDY = SamplingParams(temperature=0.0, max_tokens=30, seed=0)


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talk_with_engine(patience_s=10.0) as made:
        yield made


@pytest.fixture
def loaded(talk: Talk, tmp_path: Path) -> Talk:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    config = EngineConfig(dtype="float32", device="cpu", num_blocks=32, num_threads=1)
    talk.send(LoadModel(models_dir=str(tmp_path), path=str(path), config=config))
    talk.until(ModelLoaded)
    return talk


def submit(name: str) -> Submit:
    return Submit((name,), f"c-{name}", MESSAGES, GREEDY)


def error_of(reply: Event) -> str:
    assert isinstance(reply, CommandFailed)
    return reply.error.code


def report_of(reply: Event) -> ParityReport:
    assert isinstance(reply, ParityReport), reply
    return reply


def test_conversation_is_inspected_while_it_runs_and_afterwards(loaded: Talk) -> None:
    loaded.send(PauseEngine(), submit("a"), StepEngine(4))
    loaded.until(TokensGenerated)
    running = report_of(loaded.ask(Inspect("c-a", command_id="i1")))
    assert running.within_bound, running.verdict
    assert "of a running request" in running.verdict
    assert (running.backend, running.reference) == ("paged_reference", "dense")
    assert len(running.layer_errors) == 2
    loaded.send(ResumeEngine())
    loaded.until(RequestFinished)
    cached = report_of(loaded.ask(Inspect("c-a", command_id="i2")))
    assert cached.within_bound, cached.verdict
    assert "of the prefix cache" in cached.verdict
    assert cached.num_tokens % 16 == 0
    by_messages = report_of(loaded.ask(Inspect("other", MESSAGES, command_id="i3")))
    assert by_messages.within_bound
    assert 0 < by_messages.num_tokens <= cached.num_tokens


def test_two_backends_on_messages(loaded: Talk) -> None:
    for index, backend in enumerate(("paged_reference", "contiguous", "dense", "auto")):
        reply = loaded.ask(CompareBackends("c", MESSAGES, backend, command_id=f"q{index}"))
        report = report_of(reply)
        assert report.within_bound, report.verdict
        assert report.backend == ("paged_reference" if backend == "auto" else backend)
        assert report.reference == "dense"
    report = report_of(
        loaded.ask(CompareBackends("c", MESSAGES, "dense", "contiguous", command_id="r"))
    )
    assert (report.backend, report.reference) == ("dense", "contiguous")


def test_answer_is_the_same_with_and_without_questions(loaded: Talk) -> None:
    loaded.send(submit("plain"))
    loaded.until(RequestFinished, request_id="plain")
    loaded.send(PauseEngine(), submit("asked"))
    for index in range(6):
        loaded.send(StepEngine(3))
        loaded.ask(CompareBackends("c", MESSAGES, "paged_reference", command_id=f"q{index}"))
        loaded.ask(Inspect("c-asked", command_id=f"i{index}"))
    loaded.send(ResumeEngine())
    loaded.until(RequestFinished, request_id="asked")
    assert loaded.text("asked") == loaded.text("plain")
    assert len(loaded.text("asked")) > 5


def test_questions_without_an_answer(loaded: Talk) -> None:
    unknown = loaded.ask(Inspect("nobody", command_id="a"))
    assert error_of(unknown) == "unknown_id"
    assert isinstance(unknown, CommandFailed)
    assert "nobody" in unknown.error.message
    no_backend = loaded.ask(CompareBackends("c", MESSAGES, "warp", command_id="b"))
    assert error_of(no_backend) == "not_supported_yet"
    no_gpu = loaded.ask(CompareBackends("c", MESSAGES, "paged_triton", command_id="c"))
    assert error_of(no_gpu) == "device"
    long = (ChatMessage("user", "x" * 500),)
    too_long = loaded.ask(CompareBackends("c", long, "dense", command_id="d"))
    assert error_of(too_long) == "prompt_too_long"
    nothing = loaded.ask(CompareBackends("c", (), "dense", command_id="e"))
    assert error_of(nothing) == EmptyMessageError.code


def test_no_model(talk: Talk) -> None:
    assert error_of(talk.ask(Inspect("c", command_id="a"))) == "no_model"
    compare = CompareBackends("c", MESSAGES, "dense", command_id="b")
    assert error_of(talk.ask(compare)) == "no_model"


def test_engine_without_a_model_behind_it(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    install_fake_loader(monkeypatch)
    talk.send(LoadModel(models_dir=""))
    talk.until(ModelLoaded)
    assert error_of(talk.ask(Inspect("c", command_id="a"))) == "not_supported_yet"
