"""The window for a recording: play, step, scrub, damage, and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.cache_panel.badge import Badge
from app.cache_panel.trace_panel import TracePanel
from app.cache_panel.trace_player import TracePlayer
from app.command_line import parse
from app.theme import ThemeManager
from engine.api.events import BlockChanged, BlockEvents
from tests.helpers import run_app
from tests.helpers.panel_stage import panel_stage, shown, texts_of
from tests.helpers.recorded_run import RecordedRun, record_run, state_of, truth_of
from tests.helpers.scripted_pool import four_conversations

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return record_run(tmp_path_factory.mktemp("trace") / "run.ndjson")


def opened(qtbot: QtBot, path: Path) -> TracePanel:
    themes = ThemeManager("light")
    themes.apply()
    panel = TracePanel(TracePlayer(path), themes)
    qtbot.addWidget(panel, before_close_func=lambda p: p.stop())
    panel.resize(960, 640)
    panel.show()
    qtbot.waitUntil(lambda: panel.player.is_loaded)
    qtbot.waitUntil(lambda: panel.bar.slider.maximum() == panel.player.num_steps)
    return panel


def arrive(qtbot: QtBot, panel: TracePanel, index: int) -> None:
    qtbot.waitUntil(lambda: panel.player.step_index == index)


def test_it_opens_at_the_beginning_and_reads_all(qtbot: QtBot, run: RecordedRun) -> None:
    panel = opened(qtbot, run.path)
    assert panel.player.position == 0
    assert len(panel.player.events) == run.num_events
    assert f"0 of {panel.player.num_steps}" in panel.bar.place_label.text()
    qtbot.waitUntil(lambda: not any(t.isActive() for t in panel.findChildren(QTimer)))


def test_slider_scrubs_both_ways_and_shows_the_engines_state(
    qtbot: QtBot, run: RecordedRun
) -> None:
    panel = opened(qtbot, run.path)
    last = panel.player.num_steps
    for index in (last, last // 2, 3, last - 1, 0):
        panel.bar.slider.setValue(index)
        arrive(qtbot, panel, index)
        player = panel.player
        assert player.position == player.starts[index]
        if player.model.last_seq in run.truths:
            assert state_of(player.model) == truth_of(run.truths[player.model.last_seq])
    assert state_of(panel.player.model) == truth_of(run.truths[0])
    assert panel.view.tape.rows == []


def test_lane_of_a_recording_says_what_the_step_computed(qtbot: QtBot, run: RecordedRun) -> None:
    panel = opened(qtbot, run.path)
    panel.go_to(2)
    arrive(qtbot, panel, 2)
    panel.view.pages.reveal(panel.view.lane)
    rows = panel.view.lane.model.rows
    assert {row.conversation_id for row in rows} <= {"c1", "c2", "c3", "c4"}
    assert max(row.step_tokens for row in rows) > 1
    total = sum(row.step_tokens for row in rows)
    assert f"{total:,}.0 tokens a step" in panel.view.lane.summary.text()
    assert "computed in this step" in panel.view.lane.model.index(0).data()


def test_tape_after_a_jump_is_as_if_played(qtbot: QtBot, run: RecordedRun) -> None:
    panel = opened(qtbot, run.path)
    panel.go_to(40)
    arrive(qtbot, panel, 40)
    played = [row.first_seq for row in panel.view.tape.rows]
    panel.go_to(panel.player.num_steps)
    arrive(qtbot, panel, panel.player.num_steps)
    panel.go_to(40)
    arrive(qtbot, panel, 40)
    assert [row.first_seq for row in panel.view.tape.rows] == played


def test_keys_step_and_buttons_play(qtbot: QtBot, run: RecordedRun) -> None:
    panel = opened(qtbot, run.path)
    qtbot.keyClick(panel.bar.step_button, Qt.Key.Key_Space)
    qtbot.keyClick(panel.bar.step_button, Qt.Key.Key_Space)
    arrive(qtbot, panel, 2)
    qtbot.keyClick(panel.bar.back_button, Qt.Key.Key_Space)
    arrive(qtbot, panel, 1)
    qtbot.keyClick(panel.bar.slider, Qt.Key.Key_Right)
    arrive(qtbot, panel, 2)
    panel.bar.rate_box.setCurrentIndex(panel.bar.rate_box.count() - 1)
    panel.bar.play_button.click()
    assert panel.bar.play_button.accessibleName() == "Pause"
    arrive(qtbot, panel, panel.player.num_steps)
    qtbot.waitUntil(lambda: not panel.bar.is_playing)
    assert panel.bar.play_button.accessibleName() == "Play"
    # From the end, play begins anew.
    panel.bar.play_button.click()
    qtbot.waitUntil(lambda: 0 < panel.player.step_index < panel.player.num_steps)
    panel.bar.play_button.click()
    assert not panel.bar.is_playing


def test_every_control_has_a_name(qtbot: QtBot, run: RecordedRun) -> None:
    panel = opened(qtbot, run.path)
    for part in panel.findChildren(QWidget):
        if part.focusPolicy() != Qt.FocusPolicy.NoFocus and part.isVisible():
            interface = QAccessible.queryAccessibleInterface(part)
            assert interface.text(QAccessible.Text.Name), part


def planted(run: RecordedRun, path: Path, at: int) -> Path:
    lines = run.path.read_text(encoding="utf-8").splitlines()
    while "before" not in json.loads(lines[at]):
        at += 1
    value = json.loads(lines[at])
    value["before"][1] += 3
    lines[at] = json.dumps(value)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_planted_event_turns_the_badge_red(
    qtbot: QtBot, run: RecordedRun, tmp_path: Path
) -> None:
    panel = opened(qtbot, planted(run, tmp_path / "planted.ndjson", 200))
    badge = panel.view.badge
    assert badge.text() == "✓"
    panel.bar.slider.setValue(panel.player.num_steps)
    qtbot.waitUntil(lambda: badge.faults != [])
    assert badge.property("tone") == "error"
    assert badge.text() == "✕ Inconsistent"
    assert "does not fit the pool" in texts_of(panel)
    red = ThemeManager("light").theme.color("error")
    image = badge.grab().toImage()
    pixels = {image.pixelColor(x, 0).name() for x in range(image.width())}
    assert red.name() in pixels
    panel.bar.slider.setValue(0)
    arrive(qtbot, panel, 0)


def test_a_planted_live_event_turns_the_badge_red_and_the_panel_goes_on(qtbot: QtBot) -> None:
    pool = four_conversations()
    stage = shown(qtbot, panel_stage(qtbot, pool))
    badge = stage.panel.findChild(Badge)
    assert badge is not None
    assert badge.faults == []
    pool.append("r1", 7)
    event = next(e for e in pool.drain() if isinstance(e, BlockChanged))
    wrong = BlockChanged(
        stage.panel.model.last_seq + 1, event.step, event.kind, event.cause, event.block_id,
        event.request_id, event.conversation_id, event.after, event.before,
    )  # fmt: skip
    stage.publish()
    stage.client.post(BlockEvents((wrong,)))
    qtbot.waitUntil(lambda: badge.faults != [], timeout=3000)
    assert badge.property("tone") == "error"
    assert f"block {event.block_id} is" in badge.faults[0]
    pool.append("r1", 8)
    stage.publish()
    stage.deliver()
    qtbot.waitUntil(lambda: stage.panel.model.last_seq == pool.log.seq)
    assert stage.panel.model.inconsistency == ""


def test_truncated_recording_says_the_line_and_shows_the_rest(
    qtbot: QtBot, run: RecordedRun, tmp_path: Path
) -> None:
    path = tmp_path / "cut.ndjson"
    data = run.path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    line = data[: len(data) // 2].count(b"\n") + 1
    panel = opened(qtbot, path)
    assert f"at line {line:,}." in texts_of(panel)
    assert panel.view.badge.property("tone") == "error"
    panel.go_to(panel.player.num_steps)
    arrive(qtbot, panel, panel.player.num_steps)
    assert panel.player.position == line - 3


def test_command_line_takes_a_recording() -> None:
    assert parse(["--trace", "x.ndjson"]).trace == Path.cwd() / "x.ndjson"


@pytest.mark.parametrize(("text", "words"), [(None, "cannot be read"), ("{}", "not a recording")])
def test_an_unreadable_recording_ends_with_a_message_and_status_3(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "x.ndjson"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    done = run_app.run("--trace", str(path), "--data-dir", str(tmp_path / "profile"))
    assert done.returncode == 3
    assert words in done.stderr
    assert "x.ndjson" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "profile").exists()


def test_the_program_opens_a_recording_with_no_engine(run: RecordedRun, tmp_path: Path) -> None:
    code = f"""
import sys, threading
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
app = QApplication([])
def look():
    windows = [w for w in app.topLevelWidgets() if w.isVisible()]
    if not windows or not windows[0].panel.player.is_loaded:
        QTimer.singleShot(50, look)
        return
    (window,) = windows
    names = [t.name for t in threading.enumerate()]
    print(window.windowTitle(), len(window.panel.player.events), names, "torch" in sys.modules)
    window.close()
QTimer.singleShot(50, look)
from app.main import main
sys.exit(main(["--trace", {str(run.path)!r}, "--data-dir", {str(tmp_path / "p")!r}]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=run_app.REPOSITORY, capture_output=True, text=True,
        encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "Cache", "recording:", "run.ndjson", str(run.num_events), "['MainThread']", "False",
    ]  # fmt: skip
    assert not (tmp_path / "p").exists()
