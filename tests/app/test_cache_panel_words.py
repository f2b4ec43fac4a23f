"""Figures and their words."""

from __future__ import annotations

import pytest

from app.cache_panel import figures, words
from app.cache_panel.figures import sharing_of_kept, sharing_of_live
from app.cache_panel.pool_model import PoolModel
from tests.helpers.panel_names import Numbers
from tests.helpers.scripted_pool import ScriptedPool, four_conversations


def model_of(scripted: ScriptedPool, rate: float = 1600.0) -> PoolModel:
    scripted.drain()
    return PoolModel.from_snapshot(scripted.snapshot(prefill_tokens_per_s=rate))


def savings(model: PoolModel) -> str:
    return words.savings(model, sharing_of_live(model), sharing_of_kept(model))


def test_sharing_counts_logical_minus_physical_blocks() -> None:
    """200 tokens in common: 12 full blocks of 16, in four tables."""
    scripted = four_conversations()
    sharing = sharing_of_live(model_of(scripted))
    tables = [request.block_table for request in scripted.requests.values()]
    assert sharing.logical_blocks == sum(len(table) for table in tables)
    assert sharing.physical_blocks == len({block for table in tables for block in table})
    assert (sharing.shared_blocks, sharing.num_conversations, sharing.num_tables) == (12, 4, 4)
    assert sharing.saved_blocks == 36
    assert sharing.saved_tokens == 36 * 16


def test_answers_of_one_conversation_are_called_so() -> None:
    scripted = ScriptedPool(64)
    for name in ("a", "b"):
        scripted.admit(name, "c1", range(33))
        scripted.compute(name)
    text = savings(model_of(scripted))
    assert text.startswith("2 blocks shared by 2 answers of one conversation: 2 blocks, 0.74 MB")


def test_when_all_have_finished_the_cache_still_serves_them() -> None:
    scripted = four_conversations()
    scripted.drain()
    model = model_of(scripted)
    for name in list(scripted.requests):
        scripted.finish(name)
    assert model.apply(scripted.drain())
    assert sharing_of_live(model).saved_blocks == 0
    assert savings(model).startswith("12 blocks in the cache serve 4 conversations: 36 blocks")


def test_without_a_measured_rate_no_time_is_claimed() -> None:
    assert savings(model_of(four_conversations(), rate=0.0)) == (
        "12 blocks shared by 4 conversations: 36 blocks and 13.3 MB saved."
    )


def test_lone_cached_conversation_tells_what_is_kept() -> None:
    scripted = ScriptedPool(64)
    scripted.admit("a", "c1", range(160))
    scripted.compute("a")
    scripted.finish("a")
    assert savings(model_of(scripted)) == (
        "160 tokens are kept for the next turn: ≈ 0.1 s of prefill."
    )


def test_empty_pool_says_how_sharing_comes_about() -> None:
    assert savings(model_of(ScriptedPool(8))).startswith("Nothing is shared yet.")


def test_waste_is_what_last_blocks_do_not_hold() -> None:
    scripted = ScriptedPool(64)
    scripted.admit("a", "c1", range(20))
    scripted.compute("a")
    model = model_of(scripted)
    assert figures.waste_in_last_blocks(model) == 12
    assert words.waste(model) == "Unfilled in last blocks: 12 slots of 32 (37.5 %)."


def test_a_cached_block_names_all_that_find_it_again() -> None:
    scripted = four_conversations()
    scripted.drain()
    model = model_of(scripted)
    shared = scripted.requests["r1"].block_table[0]
    own = scripted.requests["r2"].block_table[13]
    for name in ("r1", "r2", "r3", "r4"):
        scripted.finish(name)
    assert model.apply(scripted.drain())
    assert words.owners(model, shared) == ["c1", "c2", "c3", "c4"]
    assert words.owners(model, own) == ["c2"]
    names = Numbers()
    assert words.block(model, names, shared)[1] == ", ".join(
        words.conversation(names, f"c{n}") for n in (1, 2, 3, 4)
    )


def test_one_block_serves_and_several_serve() -> None:
    scripted = ScriptedPool(64)
    for number in (1, 2):
        scripted.admit(
            f"r{number}", f"c{number}", [*range(16), *range(100 * number, 100 * number + 9)]
        )
        scripted.compute(f"r{number}")
    scripted.drain()
    model = model_of(scripted)
    for number in (1, 2):
        scripted.finish(f"r{number}")
    assert model.apply(scripted.drain())
    assert savings(model).startswith("1 block in the cache serves 2 conversations: ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 MB"),
        (0.0041, "4.1 KB"),
        (0.065, "65 KB"),
        (0.368, "0.37 MB"),
        (9.95, "9.9 MB"),
        (188.7, "189 MB"),
        (73_728, "73.7 GB"),
    ],
)
def test_sizes(value: float, text: str) -> None:
    assert words.megabytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "12 ms"), (0.35, "0.3 s"), (9.96, "10.0 s"), (321.4, "321 s")]
)
def test_durations(value: float, text: str) -> None:
    assert words.seconds(value) == text


def test_a_block_that_is_gone_need_not_have_been_evicted() -> None:
    # It may have been dropped with the whole cache, or because its answer failed.
    assert words.gone(2).endswith("not full when the answer ended, or dropped since")
