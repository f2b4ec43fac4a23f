"""The parity inspector's window over a real engine with a tiny model, healthy and with a fault."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from torch import Tensor

from app.bridge import Bridge
from app.parity.form import LIVE_MODE
from app.parity.plot import LayerPlot
from app.parity.window import ParityWindow
from app.parity.words import power, verdict
from app.paths import Profile
from app.session import Session
from app.session_state import ModelStatus
from app.settings import Settings
from app.store import Store
from app.theme import ThemeManager
from engine.api.client import start_engine
from engine.api.commands import CancelQuery
from engine.api.events import ParityReport
from engine.api.params import EngineConfig, SamplingParams
from engine.inspections import Inspections
from engine.kv_cache import KVCache
from tests.helpers.tiny_gguf import TinyGguf

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

REPORT = ParityReport(
    "q", "paged_reference", "dense", 1e-4, (1e-7, 3e-7, 0.0), -1, -1, -1, "", num_tokens=40
)


class Stage:
    """A window of the inspector over a session and a real engine thread."""

    def __init__(self, folder: Path, qtbot) -> None:
        path = TinyGguf(seed=3).write(folder / "tiny.gguf")
        config = EngineConfig(dtype="float32", device="cpu", num_blocks=32, num_threads=1)
        settings = Settings(None)
        sampling = SamplingParams(temperature=0.0, max_tokens=6, seed=0, ignore_eos=True)
        settings.change(engine=config, sampling=sampling)
        self.qtbot = qtbot
        self.store = Store(Profile(folder / "profile"))
        self.bridge = Bridge(start_engine)
        self.session = Session(self.bridge, self.store, settings, str(folder))
        self.session.new_conversation("")
        self.window = ParityWindow(self.session, self.bridge, ThemeManager("light"))
        self.window.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
        qtbot.addWidget(self.window)
        self.window.show()
        self.bridge.start()
        self.session.load_model(str(path))
        self.wait(lambda: self.session.model_state.status is ModelStatus.READY)

    def wait(self, done) -> None:
        self.qtbot.waitUntil(done, timeout=20_000)

    @property
    def conversation_id(self) -> str:
        return self.session.conversation_ids()[0]

    def ask(self, text: str = "hello world, tell me of pages") -> None:
        assert self.session.send(self.conversation_id, text)
        self.wait(lambda: not self.session.is_busy(self.conversation_id))

    def compare(self, backend: str = "paged_reference") -> None:
        box = self.window.form.backend_box
        box.setCurrentIndex(box.findData(backend))
        QTest.mouseClick(self.window.compare_button, Qt.MouseButton.LeftButton)
        self.wait(lambda: not self.window.is_busy)

    def close(self) -> None:
        self.window.hide()
        self.session.shut_down()
        assert self.bridge.close(10.0)
        self.store.close()


@pytest.fixture
def stage(tmp_path: Path, qtbot) -> Iterator[Stage]:
    made = Stage(tmp_path, qtbot)
    yield made
    made.close()


def store_into_a_copy(layer: int):
    """``reshape`` of a tensor that has no flat view copies it, and the write is lost."""
    real = KVCache.store

    def store(self: KVCache, at: int, key: Tensor, value: Tensor, slots: Tensor) -> None:
        if at != layer:
            return real(self, at, key, value, slots)
        for cache, new in ((self.k[at], key), (self.v[at], value)):
            rows = cache[:, :-1][:-1].reshape(-1, new.shape[1])
            rows.index_copy_(0, slots.clamp(max=len(rows) - 1), new)
        return None

    return store


def test_a_healthy_engine_is_found_equal_in_words_and_plot(stage: Stage) -> None:
    assert not stage.window.compare_button.isEnabled()
    assert "Ask something first" in stage.window.verdict.text()
    stage.ask()
    stage.compare()
    window = stage.window
    assert window.heading.text() == "✓ Equal", window.verdict.text()
    assert window.verdict.text().startswith("paged equals dense to ")
    assert "·10⁻" in window.verdict.text()
    assert "First layer over the bound of 10⁻⁴: none." in window.verdict.text()
    assert window.verdict.text().endswith("Computed in float32.")
    assert window.report is not None
    # The answer's tokens were compared too.
    answer = stage.session.conversation(stage.conversation_id).path()[-1]
    assert answer.usage is not None
    assert window.report.num_tokens == answer.usage.prompt_tokens + answer.usage.output_tokens
    lines = window.plot.accessibleDescription().splitlines()
    assert [line.split(":")[0] for line in lines] == ["Layer 0", "Layer 1"]


def test_a_verdict_goes_with_its_question(stage: Stage) -> None:
    stage.ask()
    stage.compare()
    window = stage.window
    # Told of the same conversation, which is still the question.
    stage.session.rename(stage.conversation_id, "Other title")
    assert window.heading.text() == "✓ Equal"
    box = window.form.reference_box
    box.setCurrentIndex(box.findData("contiguous"))
    assert window.heading.text() == ""
    assert window.verdict.text() == "Choose a conversation and compare."
    assert window.report is None
    assert window.plot.accessibleDescription() == ""


def test_a_way_is_not_compared_with_itself(stage: Stage) -> None:
    stage.ask()
    window = stage.window
    box = window.form.backend_box
    box.setCurrentIndex(box.findData("dense"))
    assert not window.compare_button.isEnabled()
    assert window.verdict.text() == "Choose two different ways."
    window.compare()
    assert not window.is_busy
    box.setCurrentIndex(box.findData("contiguous"))
    assert window.compare_button.isEnabled()
    assert window.verdict.text() == "Choose a conversation and compare."


def test_the_live_mode_compares_what_the_cache_holds(stage: Stage) -> None:
    stage.ask()
    box = stage.window.form.mode_box
    box.setCurrentIndex(box.findData(LIVE_MODE))
    assert not stage.window.form.backend_box.isEnabled()
    stage.compare()
    assert stage.window.heading.text() == "✓ Equal"
    assert "What the cache holds of this conversation equals" in stage.window.verdict.text()


@pytest.mark.parametrize("mode", ["backends", LIVE_MODE])
def test_a_write_into_a_copy_is_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(KVCache, "store", store_into_a_copy(1))
    stage.ask()
    box = stage.window.form.mode_box
    box.setCurrentIndex(box.findData(mode))
    stage.compare()
    window = stage.window
    assert window.heading.text() == "✕ Different"
    assert window.report is not None
    assert window.report.first_bad_layer == 1
    assert "first layer over the bound of 10⁻⁴ is layer 1, by " in window.verdict.text()
    block, slot = window.report.bad_block_id, window.report.bad_slot
    assert slot // 16 == block
    assert f"It begins at token 0: block {block}, slot {slot}." in window.verdict.text()
    assert "Layers over the bound: 1 of 2." in window.verdict.text()
    assert "over the bound" in window.plot.accessibleDescription().splitlines()[1]


def test_what_cannot_run_here_is_refused_in_words(stage: Stage) -> None:
    stage.ask()
    stage.compare("paged_triton")
    assert stage.window.heading.text() == "It could not be compared"
    assert stage.window.verdict.text()
    assert stage.window.compare_button.isEnabled()


def test_a_comparison_is_cancelled_and_answers_go_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ask()
    slice_of = Inspections._slice

    def stuck(self, inspection) -> None:
        if inspection.fraction < 0.5:
            slice_of(self, inspection)

    monkeypatch.setattr(Inspections, "_slice", stuck)
    QTest.mouseClick(stage.window.compare_button, Qt.MouseButton.LeftButton)
    stage.wait(lambda: stage.window.progress.value() > 0)
    assert stage.window.progress.isVisible()
    assert not stage.window.compare_button.isEnabled()
    stage.ask("and more of them")
    assert stage.window.is_busy
    QTest.mouseClick(stage.window.cancel_button, Qt.MouseButton.LeftButton)
    stage.wait(lambda: not stage.window.is_busy)
    assert stage.window.verdict.text() == "Cancelled."
    assert stage.window.compare_button.isEnabled()


def test_a_report_of_a_closed_conversation_is_not_shown_of_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ask()
    other = stage.session.new_conversation("")
    assert stage.session.send(other, "something else")
    stage.wait(lambda: not stage.session.is_busy(other))
    window = stage.window
    assert window.form.conversation_id == stage.conversation_id
    advance = Inspections.advance
    monkeypatch.setattr(Inspections, "advance", lambda self, budget_s: None)
    QTest.mouseClick(window.compare_button, Qt.MouseButton.LeftButton)
    stage.session.close_conversation(stage.conversation_id)
    assert window.form.conversation_id == other
    assert window.is_busy
    monkeypatch.setattr(Inspections, "advance", advance)
    stage.wait(lambda: not window.is_busy)
    assert window.report is None
    assert window.verdict.text() == "Choose a conversation and compare."


def test_hiding_the_window_cancels(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.ask()
    monkeypatch.setattr(Inspections, "advance", lambda self, budget_s: None)
    sent: list[object] = []
    monkeypatch.setattr(stage.bridge, "send", sent.append)
    stage.window.compare()
    stage.window.hide()
    assert any(isinstance(command, CancelQuery) for command in sent)


# --- words and plot alone ---


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.1e-7, "3.1·10⁻⁷"), (1e-4, "10⁻⁴"), (0.0, "0"), (math.inf, "∞"), (2.0, "2·10⁰")],
)
def test_powers(value: float, text: str) -> None:
    assert power(value) == text


def test_verdict_of_logits_alone() -> None:
    report = ParityReport(
        "q", "paged_reference", "dense", 1e-4, (1e-7,), -1, -1, -1, "",
        num_tokens=40, logits_error=0.2, within_bound=False,
    )  # fmt: skip
    assert "run as a whole the logits of paged and dense differ by 2·10⁻¹" in verdict(
        report, live=False
    )


def test_layers_are_walked_by_keys(qtbot) -> None:
    plot = LayerPlot(ThemeManager("light"))
    qtbot.addWidget(plot)
    plot.resize(400, 200)
    plot.show_report(REPORT)
    chosen: list[int] = []
    plot.layer_chosen.connect(chosen.append)
    for key in (Qt.Key.Key_Right, Qt.Key.Key_Right, Qt.Key.Key_End, Qt.Key.Key_Left):
        QTest.keyClick(plot, key)
    assert chosen == [0, 1, 2, 1]


def test_the_scale_holds_all_errors_and_the_bound(qtbot) -> None:
    plot = LayerPlot(ThemeManager("light"))
    qtbot.addWidget(plot)
    plot.resize(400, 200)
    plot.show_report(REPORT)
    assert plot.decades() == (-8, -3)
    assert plot.y_of(REPORT.bound) > 25
    heights = [plot.y_of(value) for value in (1e-4, 3e-7, 1e-7, 0.0)]
    assert heights == sorted(heights)
    assert heights[0] < heights[1] < heights[2] < heights[3]
