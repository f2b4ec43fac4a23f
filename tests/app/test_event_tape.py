"""The event tape: what happened, why, newest first, and cheap."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.cache_panel import tape_words
from app.cache_panel.event_tape import HEAD, EventTape, TapeModel
from app.cache_panel.tape_rows import MAX_ROWS, WRITING, TapeRow, TapeRows
from app.cache_panel.trace_player import TracePlayer
from engine.api.events import BlockChanged, BlockEventKind, BlockState, BlockView
from tests.helpers.recorded_run import record_run

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> TracePlayer:
    player = TracePlayer(record_run(tmp_path_factory.mktemp("tape") / "run.ndjson").path)
    assert player.load(60.0)
    return player


def texts(tape: EventTape) -> list[str]:
    return [str(tape.model.index(i).data()) for i in range(tape.model.rowCount())]


def shown_tape(qtbot: QtBot, player: TracePlayer) -> EventTape:
    tape = EventTape(player.names)
    qtbot.addWidget(tape)
    tape.resize(360, 300)
    tape.show()
    tape.add(player.events)
    tape.show_now()
    return tape


def test_every_cause_of_a_run_has_a_sentence(player: TracePlayer) -> None:
    rows = TapeRows()
    known: set[str] = set()
    for event in player.events:
        rows.add([event])
        known.add(tape_words.sentence(rows.rows[-1], player.names))
    said = "\n".join(known)
    for part in (
        "found in the cache", "Split off", "copied to block", "evicted from the cache",
        "Pool full", "Stopped", "Answer finished", "taken for its prompt", "ready to share",
    ):  # fmt: skip
        assert part in said, part
    # No sentence falls back to the engine's word for the cause.
    assert "(" not in said


def test_newest_stands_first_with_step_and_conversation(qtbot: QtBot, player: TracePlayer) -> None:
    tape = shown_tape(qtbot, player)
    assert texts(tape)[0].startswith("Answer finished")
    head = str(tape.model.index(0).data(HEAD))
    assert head.startswith("Step")
    assert head.split("conversation ")[1] in "12345"
    firsts = [tape.model.row_at(i).first_seq for i in range(tape.model.rowCount())]
    assert firsts == sorted(firsts, reverse=True)


def test_rows_read_as_one_text_aloud(qtbot: QtBot, player: TracePlayer) -> None:
    tape = shown_tape(qtbot, player)
    index = tape.model.index(0)
    text = index.data(Qt.ItemDataRole.AccessibleTextRole)
    assert index.data() in text
    assert index.data(HEAD) in text


def test_filter_shows_one_conversation_and_what_it_lost(qtbot: QtBot, player: TracePlayer) -> None:
    tape = shown_tape(qtbot, player)
    everything = tape.model.rowCount()
    victim = next(r.owners[0] for r in tape.rows if r.owners and r.owners != [r.conversation_id])
    tape.filter_box.setCurrentIndex(tape.filter_box.findData(victim))
    assert 0 < tape.model.rowCount() < everything
    shown = [tape.model.row_at(i) for i in range(tape.model.rowCount())]
    assert all(row.concerns(victim) for row in shown)
    lost = [row for row in shown if row.conversation_id != victim]
    assert lost
    assert all(victim in row.owners for row in lost)


def change(seq: int, kind: BlockEventKind, cause: str, request: str = "r1") -> BlockChanged:
    view = BlockView(BlockState.USED, 1, b"", "c1", seq % 16)
    return BlockChanged(seq, seq, kind, cause, seq % 50, request, "c1", view, view)


def test_a_long_answer_is_one_row(player: TracePlayer) -> None:
    rows = TapeRows()
    rows.add(change(i, BlockEventKind.FILLED, "computed") for i in range(5000))
    assert [row.what for row in rows.rows] == [WRITING]
    assert rows.rows[0].last_step == 4999


def test_only_the_latest_rows_are_kept() -> None:
    rows = TapeRows()
    rows.add(change(i, BlockEventKind.RELEASED, "finish", f"r{i}") for i in range(2000))
    assert len(rows.rows) == MAX_ROWS
    assert rows.rows[-1].first_seq == 1999
    assert len(rows._open) <= MAX_ROWS


def test_an_unknown_cause_is_shown_as_it_is(player: TracePlayer) -> None:
    row = TapeRow(1, 1, 1, "released", "moved", "r", "c1", 3, num_blocks=2)
    assert tape_words.sentence(row, player.names) == "2 blocks given back (moved)."


def test_a_failed_answer_has_its_sentences(player: TracePlayer) -> None:
    row = TapeRow(1, 1, 1, "removed", "error", "r", "c1", 3, num_blocks=2)
    said = tape_words.sentence(row, player.names)
    assert said == "Answer failed: 2 blocks dropped from the cache."
    row = TapeRow(1, 1, 1, "released", "error", "r", "c1", 3, num_blocks=2)
    assert tape_words.sentence(row, player.names) == "Answer failed: 2 blocks given back."


def test_words_are_made_for_visible_rows_only(
    qtbot: QtBot, player: TracePlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[TapeRow] = []
    real = tape_words.sentence
    monkeypatch.setattr(tape_words, "sentence", lambda r, n: (made.append(r), real(r, n))[1])
    tape = shown_tape(qtbot, player)
    tape.list.viewport().grab()
    assert 0 < len({row.first_seq for row in made}) < 30 < tape.model.rowCount()


def test_many_events_are_cheap_and_hidden_ones_make_no_list(
    qtbot: QtBot, player: TracePlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shows: list[int] = []
    real = TapeModel.show_rows
    monkeypatch.setattr(TapeModel, "show_rows", lambda m, r: (shows.append(1), real(m, r)))
    tape = EventTape(player.names)
    qtbot.addWidget(tape)
    began = time.process_time()
    for _ in range(20):
        tape.add(player.events)
    each_us = (time.process_time() - began) * 1e6 / (20 * len(player.events))
    qtbot.wait(300)
    assert not shows
    assert each_us < 50
    tape.show()
    assert len(shows) == 1
    tape.add(player.events)
    tape.add(player.events)
    qtbot.waitUntil(lambda: len(shows) == 2)
    qtbot.wait(300)
    assert len(shows) == 2


def test_reading_further_down_is_not_disturbed(qtbot: QtBot, player: TracePlayer) -> None:
    tape = shown_tape(qtbot, player)
    tape.list.executeDelayedItemsLayout()
    bar = tape.list.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    assert bar.value() > 0
    top = tape.list.indexAt(tape.list.viewport().rect().topLeft())
    before = tape.model.row_at(top.row())
    tape.add(change(10**6 + i, BlockEventKind.HIT, "prefix", f"n{i}") for i in range(7))
    tape.show_now()
    after = tape.list.indexAt(tape.list.viewport().rect().topLeft())
    assert tape.model.row_at(after.row()) is before


def test_the_whole_run_stays_within_bounds(player: TracePlayer, tmp_path: Path) -> None:
    rows = TapeRows()
    for _ in range(10):
        rows.add(player.events)
    assert len(rows.rows) == MAX_ROWS
