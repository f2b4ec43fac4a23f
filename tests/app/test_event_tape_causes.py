"""The event tape tells what the engine did apart from answering: pins, inspections, restarts."""

from __future__ import annotations

from app.cache_panel import tape_words
from app.cache_panel.tape_rows import TapeRow, TapeRows
from engine.block_hash import root_hash
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.panel_names import Numbers

PROMPTS = {"c1": [1] * 24, "c2": [2] * 16}


def answered() -> CheckedEngine:
    """Two conversations whose blocks are cached; the engine rests."""
    engine = CheckedEngine(32, 8)
    for name, prompt in PROMPTS.items():
        engine.add(f"r{name}", prompt, max_tokens=4, conversation_id=name)
    engine.run()
    return engine


def rows_since(engine: CheckedEngine, seq: int) -> list[TapeRow]:
    engine.check()
    rows = TapeRows()
    rows.add(event for event in engine.fold.events if event.seq > seq)
    return list(rows.rows)


def said(rows: list[TapeRow]) -> list[tuple[str, str]]:
    return [(row.conversation_id, tape_words.sentence(row, Numbers())) for row in rows]


def test_pins_of_two_conversations_are_told_of_each() -> None:
    engine = answered()
    seq = engine.core.log.seq
    for name, prompt in PROMPTS.items():
        engine.core.pins.pin(name, prompt)
    assert said(rows_since(engine, seq)) == [
        ("c1", "3 blocks pinned against eviction."),
        ("c2", "2 blocks pinned against eviction."),
    ]


def test_blocks_that_are_pinned_anew_are_not_told_as_unpinned() -> None:
    engine = answered()
    engine.core.pins.pin("c1", PROMPTS["c1"])
    seq = engine.core.log.seq
    engine.core.pins.pin("c1", PROMPTS["c1"][:16])
    assert said(rows_since(engine, seq)) == [
        ("c1", "2 blocks pinned against eviction."),
        ("c1", "1 block no longer pinned."),
    ]


def test_an_inspection_is_not_told_as_a_find_in_the_cache() -> None:
    engine = answered()
    seq = engine.core.log.seq
    holds = engine.core.holds
    kept = holds.keep(engine.core.manager.known_prefix(PROMPTS["c1"]))
    lent = holds.borrow(4, "c2", 0)
    assert lent is not None
    for hold in (kept, lent):
        holds.release(hold)
    assert said(rows_since(engine, seq)) == [
        ("c1", "Parity inspector: 3 blocks held while it looks."),
        ("c2", "Parity inspector: 4 blocks borrowed to compute in."),
        ("c1", "Parity inspector: 3 blocks given back."),
        ("c2", "Parity inspector: 4 blocks given back."),
    ]


def test_a_cache_that_is_emptied_under_an_answer_is_not_told_as_a_full_pool() -> None:
    engine = answered()
    engine.add("r3", [3] * 20, max_tokens=9, conversation_id="c3")
    engine.step()
    seq = engine.core.log.seq
    engine.core.restart_cache(root_hash("other"), prefix_caching=True)
    texts = [text for _, text in said(rows_since(engine, seq))]
    assert texts[0] == "Begins again: 3 blocks given back; it will be computed again."
    assert texts[1].endswith("dropped: the whole cache was emptied.")
    assert len(texts) == 2


def test_blocks_dropped_for_want_of_memory_have_their_sentence() -> None:
    engine = answered()
    seq = engine.core.log.seq
    engine.core.pool.drop_cached("out of memory")
    ((_, text),) = said(rows_since(engine, seq))
    assert text.startswith("Memory ran out: ")
    assert text.endswith(" blocks dropped from the cache.")
