"""Four conversations go from model to model with the real engine, and none is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.bridge import Bridge
from app.conversation import ASSISTANT, MessageStatus
from app.library.entry import ModelEntry
from app.paths import Profile
from app.session import Session
from app.session_state import ModelStatus
from app.settings import Settings
from app.store import Store
from engine.api.client import start_engine
from engine.api.params import EngineConfig, SamplingParams
from engine.loading.model_folder import open_model
from tests.helpers.tiny_gguf import TinyGguf

PATIENCE_MS = 60_000


class RealStage:
    """A session over the real engine, with a GGUF, a Hugging Face folder and two broken models."""

    def __init__(self, folder: Path, qtbot: QtBot) -> None:
        self.qtbot = qtbot
        models = folder / "模型 é's"
        models.mkdir()
        self.first = str(TinyGguf(seed=1).write(models / "First.gguf"))
        source = TinyGguf(seed=2).write(folder / "Second.gguf")
        self.second = str(models / "second")
        shutil.copytree(open_model(source, folder / "expanded").folder, self.second)
        (Path(self.second) / "source.json").unlink(missing_ok=True)
        self.cut = str(models / "cut.gguf")
        Path(self.cut).write_bytes(Path(self.first).read_bytes()[:60_000])
        self.odd = str(models / "odd")
        shutil.copytree(self.second, self.odd)
        (Path(self.odd) / "tokenizer.json").write_text('{"broken": ', encoding="utf-8")
        settings = Settings(None)
        settings.change(
            engine=EngineConfig(dtype="float32", device="cpu", num_blocks=64, num_threads=1),
            sampling=SamplingParams(temperature=0.0, max_tokens=6, seed=0, ignore_eos=True),
            default_system_prompt="",
        )
        self.store = Store(Profile(folder / "profile"))
        self.bridge = Bridge(start_engine)
        self.session = Session(self.bridge, self.store, settings, str(models))
        self.ids = [self.session.new_conversation() for _ in range(4)]
        self.bridge.start()
        self.session.load_model(self.first)
        self.wait(lambda: self.is_with(self.first))

    def wait(self, done) -> None:
        self.qtbot.waitUntil(done, timeout=PATIENCE_MS)

    def is_with(self, path: str) -> bool:
        state = self.session.model_state
        return state.status is ModelStatus.READY and state.path == path

    def ask(self, text: str) -> None:
        for conversation_id in self.ids:
            assert self.session.send(conversation_id, text)
        self.wait(lambda: not any(self.session.is_busy(i) for i in self.ids))

    def answers(self) -> list[list[tuple[str, MessageStatus]]]:
        """(model, status) of every answer, by conversation."""
        paths = [self.session.conversation(i).path() for i in self.ids]
        return [[(m.model, m.status) for m in path if m.role == ASSISTANT] for path in paths]

    def entry(self, path: str) -> ModelEntry:
        found = self.session.library.entry(path)
        assert found is not None
        return found

    def close(self) -> None:
        self.session.shut_down()
        assert self.bridge.close(10.0)
        self.store.close()


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[RealStage]:
    made = RealStage(tmp_path, qtbot)
    yield made
    made.close()


def test_from_model_to_model_over_two_broken_ones_and_back(stage: RealStage) -> None:
    session = stage.session
    stage.ask("One")
    session.switch_model(stage.second)
    stage.wait(lambda: stage.is_with(stage.second))
    stage.ask("Two")
    for broken in (stage.cut, stage.odd):
        session.switch_model(broken)
        stage.wait(lambda path=broken: path in session.load_errors)
        stage.wait(lambda: stage.is_with(stage.second))
    session.switch_model(stage.first)
    stage.wait(lambda: stage.is_with(stage.first))
    stage.ask("Three")
    done = MessageStatus.DONE
    names = ("First", "Second", "First")
    assert stage.answers() == [[(name, done) for name in names]] * 4
    assert "cut.gguf" in session.load_errors[stage.cut].message
    assert "tokenizer.json" in session.load_errors[stage.odd].message


def test_what_is_said_before_is_what_is_then_loaded(stage: RealStage) -> None:
    session = stage.session
    session.library.refresh()
    paths = (stage.first, stage.second, stage.cut)
    stage.wait(lambda: all(session.library.entry(path) is not None for path in paths))
    stage.wait(lambda: all(stage.entry(p).description or stage.entry(p).error for p in paths))
    about = stage.entry(stage.second).description
    assert about is not None
    session.switch_model(stage.second)
    stage.wait(lambda: stage.is_with(stage.second))
    info = session.model_state.info
    assert info is not None
    assert about.name == info.name
    assert about.context_length == info.context_length
    assert about.num_blocks == info.num_blocks
    assert about.weights_bytes == pytest.approx(info.weights_bytes, rel=0.05)
    error = stage.entry(stage.cut).error
    assert error is not None
    assert error.code == "model_file"


def test_an_unloaded_model_is_back_with_the_next_message(stage: RealStage) -> None:
    stage.ask("One")
    stage.session.unload_model()
    stage.wait(lambda: stage.session.model_state.is_asleep)
    stage.ask("Two")
    assert stage.is_with(stage.first)
    assert stage.answers() == [[("First", MessageStatus.DONE)] * 2] * 4


def test_a_switch_that_waits_is_not_seen_in_the_answers(stage: RealStage) -> None:
    for conversation_id in stage.ids:
        assert stage.session.send(conversation_id, "One")
    stage.session.switch_model(stage.second, wait=True)
    stage.wait(lambda: stage.is_with(stage.second))
    assert stage.answers() == [[("First", MessageStatus.DONE)]] * 4


def test_a_mended_file_is_as_one_that_was_never_tried(stage: RealStage) -> None:
    session = stage.session
    session.library.refresh()
    session.switch_model(stage.cut)
    stage.wait(lambda: stage.cut in session.load_errors)
    stage.wait(lambda: stage.is_with(stage.first))
    shutil.copyfile(stage.first, stage.cut)
    session.library.refresh()
    stage.wait(lambda: stage.cut not in session.load_errors)
    stage.wait(lambda: stage.entry(stage.cut).description is not None)
    session.switch_model(stage.cut)
    stage.wait(lambda: stage.is_with(stage.cut))
