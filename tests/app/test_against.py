"""Paged against contiguous: the figures, the words, and that the picture is to scale."""

from __future__ import annotations

import pytest

from app.cache_panel.against import comparison_of
from app.cache_panel.against_view import (
    AgainstView,
    paged_words,
    percent,
    reserved_words,
    why_words,
)
from app.cache_panel.pool_model import PoolModel
from app.theme import load_theme
from tests.helpers.scripted_pool import ScriptedPool

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

CONTEXT = 1024
PROMPT = list(range(64))


class OpenNames:
    """Conversations ``c1`` and ``c2``, open."""

    keeps_titles = True

    def number_of(self, conversation_id: str) -> int:
        return int(conversation_id[1:])

    def title_of(self, conversation_id: str) -> str:
        return conversation_id

    def open_ids(self) -> list[str]:
        return ["c1", "c2"]


def pool_of_two() -> tuple[ScriptedPool, PoolModel]:
    """Two conversations with a common beginning of 4 blocks; 74 and 70 tokens."""
    scripted = ScriptedPool(128)
    for number, own in ((1, 10), (2, 6)):
        scripted.admit(
            f"r{number}", f"c{number}", [*PROMPT, *range(1000 * number, 1000 * number + own)]
        )
        scripted.compute(f"r{number}")
    model = PoolModel(scripted.snapshot())
    model.context_length = CONTEXT
    return scripted, model


def test_figures_of_two_conversations_that_share_their_beginning() -> None:
    _, model = pool_of_two()
    found = comparison_of(model, ["c1", "c2"])
    assert found.shared_blocks == 4
    assert [held.own_blocks for held in found.held] == [1, 1]
    assert [held.tokens for held in found.held] == [74, 70]
    assert found.paged_slots == 6 * 16
    assert found.paged_tokens == 64 + 10 + 6
    assert found.reserved_slots == 2 * CONTEXT
    assert found.reserved_tokens == 144
    assert found.paged_waste == pytest.approx(16 / 96)
    assert found.reserved_waste == pytest.approx(1 - 144 / 2048)
    assert found.num_that_fit == 2


def test_kept_conversations_count_while_they_are_open() -> None:
    scripted, model = pool_of_two()
    scripted.drain()
    scripted.finish("r1")
    assert model.apply(scripted.drain())
    both = comparison_of(model, ["c1", "c2"])
    # Only full blocks stay in the cache.
    assert sorted(held.tokens for held in both.held) == [64, 70]
    assert len(comparison_of(model, ["c2"]).held) == 1
    scripted.finish("r2")
    assert model.apply(scripted.drain())
    assert comparison_of(model, []).held == ()


def test_words_have_the_waste_in_percent() -> None:
    _, model = pool_of_two()
    found = comparison_of(model, ["c1", "c2"])
    assert paged_words(model, found) == "Paged: 2.2 MB for 2 conversations. 17 % of it is empty."
    assert reserved_words(model, found) == (
        "Contiguous, with room reserved for 1,024 tokens each: 47.2 MB. 93 % of it is empty."
    )
    assert why_words(found).endswith("the memory of this pool would do for 2 conversations.")


def test_answers_of_one_conversation_are_not_called_conversations() -> None:
    scripted, _ = pool_of_two()
    scripted.admit("r3", "c2", [*PROMPT, *range(9000, 9006)])
    scripted.compute("r3")
    model = PoolModel(scripted.snapshot())
    assert "for 3 sequences." in paged_words(model, comparison_of(model, ["c1", "c2"]))


def test_a_pool_smaller_than_one_context_holds_nobody() -> None:
    _, model = pool_of_two()
    model.context_length = 128 * 16 + 1
    text = why_words(comparison_of(model, ["c1", "c2"]))
    assert text.endswith("The memory of this pool would not do for a single one.")


def test_bars_stand_in_the_order_of_the_numbers(qtbot) -> None:
    scripted, model = pool_of_two()
    scripted.drain()
    scripted.finish("r1")
    assert model.apply(scripted.drain())
    view = AgainstView(OpenNames(), load_theme("light"))
    qtbot.addWidget(view)
    view.show()
    view.show_pool(model)
    assert [held.conversation_id for held in view.comparison.held] == ["c1", "c2"]
    assert view.reserved_bars._numbers == (1, 2)


def test_bars_are_to_scale(qtbot) -> None:
    _, model = pool_of_two()
    view = AgainstView(OpenNames(), load_theme("light"))
    qtbot.addWidget(view)
    view.show()
    view.show_pool(model)
    (paged,) = view.paged_bars._rows
    assert sum(share for share, _, _ in paged) == pytest.approx(96 / CONTEXT)
    assert [is_shared for _, _, is_shared in paged] == [True, False, False]
    reserved = view.reserved_bars._rows
    assert [row[0][0] for row in reserved] == pytest.approx([74 / CONTEXT, 70 / CONTEXT])
    assert all(sum(share for share, _, _ in row) == pytest.approx(1.0) for row in reserved)
    assert view.paged_bars.accessibleDescription() == view.paged.text()


def test_what_is_longer_than_the_scale_goes_on_below(qtbot) -> None:
    _, model = pool_of_two()
    model.context_length = 40
    view = AgainstView(OpenNames(), load_theme("dark"))
    qtbot.addWidget(view)
    view.show()
    view.show_pool(model)
    rows = view.paged_bars._rows
    assert [sum(share for share, _, _ in row) for row in rows] == pytest.approx([1.0, 1.0, 0.4])


def test_an_empty_pool_says_so_and_a_hidden_view_reckons_nothing(qtbot) -> None:
    view = AgainstView(OpenNames(), load_theme("light"))
    qtbot.addWidget(view)
    assert view.paged.text() == "Nothing to compare yet: no conversation holds blocks."
    _, model = pool_of_two()
    view.show_pool(model)
    assert view.comparison.held == ()
    view.show()
    assert len(view.comparison.held) == 2


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.0312, "3.1 %"), (0.0999, "10 %"), (0.166, "17 %"), (1.0, "100 %")],
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text
