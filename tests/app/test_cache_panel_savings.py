"""What sharing saves, conversation by conversation."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.cache_panel import figures, words
from app.cache_panel.against import comparison_of
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.savings_view import SavingsView
from app.cache_panel.shares import reserved_blocks, shares_of
from tests.helpers.panel_names import Numbers
from tests.helpers.scripted_pool import ScriptedPool, four_conversations

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")


class OpenNumbers(Numbers):
    def open_ids(self) -> list[str]:
        return ["c1", "c2", "c3", "c4"]


def model_of(scripted: ScriptedPool) -> PoolModel:
    return PoolModel.from_snapshot(scripted.snapshot())


def test_shares_add_up_to_the_physical_blocks() -> None:
    scripted = four_conversations()
    shares = shares_of(model_of(scripted), [])
    assert [share.conversation_id for share in shares] == ["c1", "c2", "c3", "c4"]
    assert sum(share.physical_blocks for share in shares) == pytest.approx(scripted.pool.num_used)
    logical = sum(len(request.block_table) for request in scripted.requests.values())
    saved = sum(share.saved_blocks for share in shares)
    assert saved == pytest.approx(logical - scripted.pool.num_used)
    assert {share.shared_blocks for share in shares} == {12}


def test_what_the_cache_keeps_of_an_open_conversation_counts_too() -> None:
    scripted = four_conversations()
    scripted.drain()
    model = model_of(scripted)
    scripted.finish("r2")
    assert model.apply(scripted.drain())
    kept = [share for share in shares_of(model, ["c2"]) if not share.is_live]
    assert [share.conversation_id for share in kept] == ["c2"]
    assert kept[0].empty_slots == 0
    assert not [share for share in shares_of(model, []) if not share.is_live]


def test_reservation_takes_the_whole_context_for_each() -> None:
    model = model_of(four_conversations())
    assert reserved_blocks(model, 4) == 4 * 2048 // 16


def test_table_has_a_row_for_each_and_one_for_all(qtbot: QtBot) -> None:
    view = SavingsView(Numbers())
    qtbot.addWidget(view)
    view.show()
    scripted = four_conversations(prefix=192)
    view.show_pool(model_of(scripted))
    rows = [
        [view.model.index(row, column).data() for column in range(view.model.columnCount())]
        for row in range(view.model.rowCount())
    ]
    assert [cells[0] for cells in rows] == [
        "conversation 1", "conversation 2", "conversation 3", "conversation 4", "All",
    ]  # fmt: skip
    logical = [len(request.block_table) for request in scripted.requests.values()]
    assert [cells[1] for cells in rows] == [
        *(f"12 of {n}" for n in logical), f"48 of {sum(logical)}",
    ]  # fmt: skip
    assert rows[0][2] == "3.3 MB"
    assert rows[4][2] == "13.3 MB"
    assert [cells[3] for cells in rows] == ["–", "0.1 s", "0.1 s", "0.1 s", "0.4 s"]
    assert "189 MB for 4 sequences" in view.note.text()


def test_what_paging_takes_is_what_the_rows_hold_together(qtbot: QtBot) -> None:
    scripted = four_conversations(prefix=192)
    scripted.drain()
    model = model_of(scripted)
    for name in ("r1", "r2"):
        scripted.finish(name)
    assert model.apply(scripted.drain())
    view = SavingsView(OpenNumbers())
    qtbot.addWidget(view)
    view.show()
    view.show_pool(model)
    against = comparison_of(model, OpenNumbers().open_ids())
    taken = words.megabytes(figures.megabytes(model, against.paged_slots // 16))
    assert f"for 4 sequences. Here it is {taken}." in view.note.text()
    # Blocks in use, each once.
    assert f"of {model.counts.used * 16:,} " in view.note.text()
