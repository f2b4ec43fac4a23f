"""Branches as a tree of blocks: the trunk once, every branch where it parts, forks too."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.cache_panel.branch_view import BranchView, row_words
from app.cache_panel.branches import Branch, BranchRow, branches_of, family_of, rows_of
from app.cache_panel.looks import LOST, PRIVATE_CELL, Looks, encode
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import GhostTable
from app.conversation import ASSISTANT, USER, Conversation, Message
from app.theme import load_theme
from engine.api.commands import LocateBlocks
from tests.helpers.real_window import RealWindow, real_window
from tests.helpers.scripted_pool import ScriptedPool

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

CELL = encode(PRIVATE_CELL, 1)


@pytest.fixture
def real(qtbot):
    with real_window(qtbot, system_prompt="hello hello hello world w", max_tokens=20) as made:
        yield made


def open_page(real: RealWindow) -> BranchView:
    real.wait(lambda: real.window.cache_panel.model is not None)
    real.live.view.pages.reveal(real.live.branches)
    return real.live.branches.view


def branching() -> tuple[Conversation, list[Message]]:
    """A question with two answers; the first was gone on with. The newest branch is shown."""
    made = Conversation(title="Pages", number=1)
    question = made.append(Message(USER, "What is a page?", created_at=1.0))
    first = made.append(Message(ASSISTANT, "A leaf.", created_at=2.0))
    more = made.append(Message(USER, "Whose leaf is it?", created_at=3.0))
    second = Message(ASSISTANT, "A side.", question.message_id, created_at=4.0)
    made.insert(second)
    return made, [question, first, more, second]


def test_branches_are_labelled_by_where_they_part() -> None:
    made, (_, _, more, second) = branching()
    branches = branches_of([made])
    assert [b.leaf_id for b in branches] == [second.message_id, more.message_id]
    assert [b.label for b in branches] == ["Pages", "Whose leaf is it?"]
    assert [b.is_shown for b in branches] == [True, False]


def test_a_family_is_forks_of_one_another() -> None:
    made, _ = branching()
    fork = made.fork(None, 2)
    fork_of_fork = fork.fork(None, 3)
    stranger = Conversation(number=4)
    everybody = [made, fork, fork_of_fork, stranger]
    for one in everybody[:3]:
        family = family_of(one, everybody)
        assert family[0] is one
        assert {c.number for c in family} == {1, 2, 3}
    assert family_of(stranger, everybody) == [stranger]
    # The original is closed: its forks still belong together.
    other = made.fork(None, 5)
    assert {c.number for c in family_of(other, [other, fork])} == {2, 5}


def test_regenerated_answers_and_forks_share_their_trunk(real: RealWindow) -> None:
    first = real.session.conversation_ids()[0]
    real.ask(first, "hello world of pages, of books")
    view = open_page(real)
    real.wait(lambda: len(view.rows) == 1 and view.rows[0].num_kept > 0)
    assert view.rows[0].parent == -1
    before = real.model.ghosts[first]
    assert real.session.regenerate(first)
    real.wait(lambda: not real.session.is_busy(first))
    real.wait(lambda: real.model.ghosts.get(first) is not before)
    real.wait(lambda: len(view.rows) == 2 and all(row.num_kept for row in view.rows))
    shown, other = view.rows
    assert (shown.parent, other.parent) == (-1, 0)
    assert shown.blocks[: other.start] == other.blocks[: other.start]
    assert other.start >= 2
    real.window.actions_registry["fork"].trigger()
    real.wait(lambda: len(view.rows) == 3 and all(row.num_kept for row in view.rows))
    fork = view.rows[0]
    assert fork.number == 2
    # The fork has all blocks of what it was copied from: nothing of its own.
    copied = next(row for row in view.rows[1:] if row.branch.is_shown)
    assert copied.parent == 0
    kept = min(fork.num_kept, copied.num_kept)
    assert copied.blocks[:kept] == fork.blocks[:kept]
    assert "shares its first" in view.accessibleDescription()


def test_a_running_answer_grows_in_the_tree(real: RealWindow) -> None:
    first = real.session.conversation_ids()[0]
    view = open_page(real)
    assert real.window.submit_text(first, "hello world")
    real.wait(lambda: len(view.rows) == 1)
    real.wait(lambda: not real.session.is_busy(first))


def test_hidden_it_asks_nothing(real: RealWindow, qtbot) -> None:
    first = real.session.conversation_ids()[0]
    real.ask(first, "hello world of pages")
    qtbot.wait(400)
    assert not [c for c in real.sent if isinstance(c, LocateBlocks)]
    open_page(real)
    real.wait(lambda: any(isinstance(c, LocateBlocks) for c in real.sent))
    real.live.view.pages.choose(0)
    real.sent.clear()
    real.ask(first, "and more")
    qtbot.wait(400)
    assert not [c for c in real.sent if isinstance(c, LocateBlocks)]


# --- the tree alone ---


def located(prompts: list[list[int]]) -> list[BranchRow]:
    """Branches of one conversation over a pool in which each prompt was computed, in order."""
    scripted = ScriptedPool(64)
    tables = []
    for index, tokens in enumerate(prompts):
        scripted.admit(f"r{index}", "c1", tokens)
        scripted.compute(f"r{index}")
        tables.append(tuple(scripted.requests[f"r{index}"].block_table))
        scripted.finish(f"r{index}")
    model = PoolModel(scripted.snapshot())
    branches = [Branch("c1", f"leaf {i}", f"Branch {i}", i == 0) for i in range(len(prompts))]
    found = {}
    for branch, blocks in zip(branches, tables, strict=True):
        hashes = tuple(int(model.block_hash[block]) for block in blocks)
        found["c1", branch.leaf_id] = GhostTable("", "c1", blocks, hashes, 0, "")
    sizes = {key: len(ghost.blocks) for key, ghost in found.items()}
    return rows_of(branches, found, sizes, model, Looks(lambda _id: 1), {"c1": 1})


def test_a_branch_hangs_on_the_one_with_the_longest_common_beginning() -> None:
    a, b, c = list(range(16)), list(range(100, 116)), list(range(200, 216))
    rows = located([a + b, a + c, c + b, a + c + b])
    assert [(row.parent, row.start) for row in rows] == [(-1, 0), (0, 1), (-1, 0), (1, 2)]


def test_what_is_not_in_the_pool_is_told_apart() -> None:
    rows = located([list(range(40))])
    # The last block is not full: nobody finds it again.
    assert len(rows[0].blocks) == 3
    assert rows[0].num_kept == 2
    assert rows[0].blocks[-1] == -1
    assert rows[0].codes[-1] == LOST


# --- the view alone ---


def row(blocks: tuple[int, ...], parent: int = -1, start: int = 0, lost: int = 0) -> BranchRow:
    codes = np.full(len(blocks), CELL, np.int32)
    if lost:
        codes[-lost:] = LOST
    branch = Branch("c1", f"leaf {blocks[-1]}", f"Branch {blocks[-1]}", parent < 0)
    return BranchRow(branch, 1, blocks, codes, parent, start)


@pytest.fixture
def view(qtbot) -> BranchView:
    made = BranchView(load_theme("light"), lambda block: f"block {block}")
    qtbot.addWidget(made)
    made.resize(400, 200)
    made.show()
    made.show_rows([row((1, 2, 3, 4)), row((1, 2, 8, 9), 0, 2), row((1, 2, 3, -1), 0, 3, lost=1)])
    return made


def test_only_own_blocks_of_a_branch_are_there_to_point_at(view: BranchView) -> None:
    hovered: list[int] = []
    view.block_hovered.connect(hovered.append)
    second = view._drawn[1]
    QTest.mouseMove(view, view._cell(second, 2).center().toPoint())
    QTest.mouseMove(view, view._cell(second, 0).center().toPoint())
    assert hovered == [8, -1]


def test_keys_walk_the_branches(view: BranchView) -> None:
    view.setFocus()
    hovered: list[int] = []
    view.block_hovered.connect(hovered.append)
    for key in (Qt.Key.Key_Right, Qt.Key.Key_Down, Qt.Key.Key_End, Qt.Key.Key_Home):
        QTest.keyClick(view, key)
    assert hovered == [2, 8, 9, 8]


def test_branches_in_words(view: BranchView) -> None:
    rows = view.rows
    assert row_words(rows, 0) == "1 Branch 4, 4 blocks"
    assert row_words(rows, 1) == "1 Branch 9, 4 blocks, shares its first 2 blocks with branch 1"
    assert row_words(rows, 2).startswith("1 Branch -1, 3 of 4 blocks in the pool, shares its first")
    assert view.accessibleDescription().count("\n") == 2


def test_a_long_branch_gets_narrow_cells_and_then_room_to_scroll(view: BranchView) -> None:
    view.show_rows([row(tuple(range(60)))])
    assert 4 <= view._side < 16
    view.show_rows([row(tuple(range(500)))])
    assert view._side == 4
    assert view.minimumSizeHint().width() > 2000


def test_a_page_that_comes_back_shows_what_has_happened_meanwhile(real: RealWindow) -> None:
    first = real.session.conversation_ids()[0]
    open_page(real)
    real.ask(first, "hello world of pages")
    tables = real.live.view.tables
    assert not tables.isVisible()
    real.live.view.pages.choose(0)
    assert [strip.conversation_id for strip in tables.strips] == [first]
    assert not tables.strips[0].is_live
