"""The metrics page: what is counted, drawn and saved."""

from __future__ import annotations

import csv
import io
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QImage, QMouseEvent
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from app.cache_panel import metrics as names
from app.cache_panel.metrics import Metrics, percentile
from app.cache_panel.metrics_view import MetricsView, _axis, _time
from app.cache_panel.plot import LEFT, nice_top
from app.theme import load_theme
from engine.api.events import (
    EngineStats,
    FinishReason,
    RequestFinished,
    RequestUsage,
    TokensGenerated,
)
from tests.helpers.panel_stage import live_of, panel_stage, shown
from tests.helpers.vision import lightness, pixels_in

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")


def stats(used: int = 40, rate: float = 31.0, running: int = 1) -> EngineStats:
    return EngineStats(10, running, 0, used, 20, 940, 12, rate, 1600.0, 0)


def tokens(request: str, count: int = 1) -> TokensGenerated:
    return TokensGenerated(request, "c1", tuple(range(count)), "x" * count)


def finished(request: str, prompt: int, cached: int, ttft_s: float) -> RequestFinished:
    usage = RequestUsage(prompt_tokens=prompt, cached_tokens=cached, ttft_s=ttft_s)
    return RequestFinished(request, "c1", FinishReason.STOP, "", usage, None, 0)


def filled() -> Metrics:
    metrics = Metrics()
    for step in range(40):
        metrics.note_event(step * 0.05, tokens("r1"))
    metrics.note_stats(2.0, stats())
    metrics.note_event(2.1, finished("r1", 400, 300, 0.25))
    metrics.note_event(2.2, finished("r2", 100, 0, 0.75))
    metrics.note_stats(2.5, stats(used=30, running=0))
    return metrics


def test_gaps_are_of_each_answer_and_shared_by_what_came_together() -> None:
    metrics = Metrics()
    metrics.note_event(0.0, tokens("r1"))
    metrics.note_event(0.1, tokens("r2"))
    metrics.note_event(0.2, tokens("r1", 4))
    metrics.note_event(1.1, tokens("r2"))
    metrics.note_stats(1.2, stats())
    assert metrics.latest(names.ITL[0]) == pytest.approx(0.05)
    assert metrics.latest(names.ITL[2]) == pytest.approx(1.0)


def test_time_to_first_token_and_hit_rate_have_a_point_for_each_answer() -> None:
    metrics = filled()
    assert list(metrics.series[names.TTFT]) == [(2.1, 0.25), (2.2, 0.75)]
    assert list(metrics.series[names.HIT_RATE]) == [(2.1, 0.75), (2.2, 0.0)]
    assert (metrics.cached_tokens, metrics.prompt_tokens) == (300, 500)


def test_speed_is_0_while_nothing_runs() -> None:
    assert [value for _, value in filled().series[names.SPEED]] == [31.0, 0.0]


def test_old_gaps_no_longer_count() -> None:
    metrics = filled()
    metrics.note_stats(30.0, stats())
    assert math.isnan(metrics.latest(names.ITL[0]))


def test_what_was_not_seen_is_not_bridged() -> None:
    metrics = filled()
    metrics.interrupt(100.0)
    metrics.note_event(100.0, tokens("r1"))
    metrics.note_stats(100.5, stats())
    values = [value for _, value in metrics.series[names.USED]]
    assert values[:2] == [40, 30]
    assert math.isnan(values[2])
    assert values[3] == 40
    assert math.isnan(metrics.latest(names.ITL[0]))


def test_percentile_is_the_nearest_rank() -> None:
    ordered = [float(n) for n in range(1, 101)]
    assert [percentile(ordered, share) for share in names.SHARES] == [50.0, 95.0, 99.0]
    assert percentile([3.0], 0.99) == 3.0


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.03, 0.05), (1, 1), (1.1, 2), (23, 50), (99, 100)]
)
def test_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert nice_top(value) == pytest.approx(top)


def test_csv_has_every_point_with_the_time_of_day() -> None:
    file = io.StringIO()
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    count = filled().write_csv(file, 2.5, now)
    rows = list(csv.reader(io.StringIO(file.getvalue())))
    assert rows[0] == ["time", "series", "value"]
    assert len(rows) == count + 1
    assert ["2026-01-02T03:04:04.600+00:00", "ttft_s", "0.25"] in rows
    assert {row[1] for row in rows[1:]} == set(names.NAMES)
    assert "nan" not in file.getvalue()


@pytest.fixture
def view(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> MetricsView:
    view = MetricsView(filled(), load_theme("light"))
    qtbot.addWidget(view)
    view.resize(380, 500)
    view.show()
    monkeypatch.setattr("app.cache_panel.metrics_view.time.monotonic", lambda: 3.0)
    view.show_metrics()
    return view


def test_plots_say_the_newest_values(view: MetricsView) -> None:
    assert view.itl.accessibleDescription() == "p50 50 ms · p95 50 ms · p99 50 ms"
    assert view.hits.accessibleDescription() == "60 % of 500 tokens in all"
    assert view.usage.accessibleDescription() == "30 used · 20 cached · 940 free"
    assert view.ttft.accessibleDescription() == "750 ms"


def test_axis_is_no_longer_than_what_there_is_to_show(view: MetricsView) -> None:
    assert view.speed._end_s - view.speed._start_s == 30.0


def test_cursor_reads_values_with_mouse_and_keyboard(qtbot: QtBot, view: MetricsView) -> None:
    plot = view.speed
    place = QPointF(plot.width() - 1, 60)
    none = Qt.MouseButton.NoButton
    move = QMouseEvent(
        QEvent.Type.MouseMove, place, place, none, none, Qt.KeyboardModifier.NoModifier
    )
    QApplication.sendEvent(plot, move)
    assert plot.cursor_words() == "0 s ago · 0 tok/s"
    qtbot.keyClick(plot, Qt.Key.Key_Left)
    assert plot.cursor_words() == "1 s ago · 31 tok/s"
    assert plot.accessibleDescription() == "1 s ago · 31 tok/s"


def test_time_goes_on_where_nothing_is_counted(
    qtbot: QtBot, view: MetricsView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cache_panel.metrics_view.time.monotonic", lambda: 50.0)
    view.speed.setFocus()
    qtbot.keyClick(view.speed, Qt.Key.Key_End)
    qtbot.keyClick(view.speed, Qt.Key.Key_Left)
    assert view.speed._end_s == 50.0
    assert view.speed.cursor_words() == "1 s ago · 0 tok/s"


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (2.5, "2.5"), (1.0, "1"), (2000, "2,000")]
)
def test_axis_has_no_wrong_halves(value: float, text: str) -> None:
    assert _axis(value) == text


def test_no_label_of_the_axis_runs_into_the_title(view: MetricsView) -> None:
    for plot in view.plots:
        with_title = lightness(pixels_in(plot.grab().toImage().copy(0, 0, LEFT - 2, 18))) < 70
        assert with_title.any(), plot.title
        title, plot.title = plot.title, ""
        image = plot.grab().toImage()
        assert not (lightness(pixels_in(image.copy(0, 0, LEFT - 2, 18))) < 70).any(), title
        assert (lightness(pixels_in(image.copy(0, 18, LEFT - 2, 16))) < 70).any(), title


def test_nothing_is_0_seconds() -> None:
    assert [_time(0.0), _time(0.25), _time(2.0)] == ["0 s", "250 ms", "2.0 s"]


def test_files_have_names_to_begin_with(qtbot: QtBot, view: MetricsView) -> None:
    for button, name in ((view.image_button, "metrics.png"), (view.csv_button, "metrics.csv")):
        button.click()
        (dialog,) = view.findChildren(QFileDialog)
        assert [Path(file).name for file in dialog.selectedFiles()] == [name]
        dialog.close()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def test_image_shows_all_plots(view: MetricsView, tmp_path: Path) -> None:
    path = tmp_path / "plots.png"
    view.save_image(str(path))
    image = QImage(str(path))
    assert image.height() == 2 * 128 * 5
    for plot in range(5):
        area = image.copy(120, plot * 256 + 44, image.width() - 120, 160)
        colored = lightness(pixels_in(area)) < 70
        assert colored.any(), plot
    assert str(path) in view.note.text()


def test_file_that_cannot_be_written_is_said(view: MetricsView, tmp_path: Path) -> None:
    for save, name in ((view.save_csv, "a.csv"), (view.save_image, "a.png")):
        save(str(tmp_path / "missing" / name))
        assert f"{name} was not saved" in view.note.text()
    view.save_csv(str(tmp_path / "a.csv"))
    assert (tmp_path / "a.csv").read_text(encoding="utf-8").count("\n") > 10


def test_a_hidden_panel_counts_nothing(qtbot: QtBot) -> None:
    stage = shown(qtbot, panel_stage(qtbot))
    found = live_of(stage).metrics.metrics
    stage.bridge.stats_changed.emit(stats())
    stage.bridge.engine_event.emit(finished("r1", 10, 5, 0.1))
    assert len(found.series[names.USED]) == len(found.series[names.TTFT]) == 1
    stage.panel.hide()
    stage.bridge.stats_changed.emit(stats())
    stage.bridge.engine_event.emit(finished("r2", 10, 5, 0.1))
    assert len(found.series[names.USED]) == len(found.series[names.TTFT]) == 1
