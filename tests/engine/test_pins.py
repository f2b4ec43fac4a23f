"""Pinned prefixes stay in the pool and count as taken."""

import pytest

from engine.api.errors import PromptExceedsPoolError
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.hash_runner import reference_output

PROMPT = [(5 * i) % 900 for i in range(20)]
OTHER = [(7 * i + 3) % 900 for i in range(40)]


def warmed(num_blocks: int = 8) -> CheckedEngine:
    engine = CheckedEngine(num_blocks)
    engine.add("a", PROMPT, max_tokens=2)
    engine.run()
    return engine


def test_pinned_prefix_survives_a_full_pool():
    engine = warmed()
    assert engine.core.pins.pin("c", PROMPT) == 2
    engine.check()
    engine.add("b", OTHER, max_tokens=6)
    engine.run()
    engine.add("c", PROMPT, max_tokens=2)
    engine.run()
    assert engine.finished("c").usage.cached_tokens == 16
    assert engine.output("b") == reference_output(OTHER, 6)


def test_without_a_pin_it_is_evicted():
    engine = warmed()
    engine.add("b", [*OTHER, *OTHER[:20]], max_tokens=3)
    engine.run()
    engine.add("c", PROMPT, max_tokens=2)
    engine.run()
    assert engine.finished("c").usage.cached_tokens == 0


def test_unpinned_blocks_are_cached_again():
    engine = warmed()
    engine.core.pins.pin("c", PROMPT)
    engine.core.pins.unpin("c")
    engine.check()
    assert (engine.core.pool.num_used, engine.core.pool.num_cached) == (0, 2)


def test_pinning_again_replaces_and_two_conversations_count_twice():
    engine = warmed()
    engine.core.pins.pin("c", PROMPT)
    engine.core.pins.pin("c", PROMPT)
    engine.core.pins.pin("d", PROMPT)
    engine.check()
    engine.core.pins.unpin("c")
    engine.check()
    assert (engine.core.pool.num_pinned, engine.core.pool.ref_count(0)) == (2, 1)
    engine.core.pins.unpin("d")
    engine.core.pins.unpin("d")
    engine.check()
    assert engine.core.pool.num_pinned == 0


def test_pinned_blocks_are_named_when_a_prompt_cannot_fit():
    engine = warmed()
    engine.core.pins.pin("c", PROMPT)
    with pytest.raises(PromptExceedsPoolError, match="2 pinned"):
        engine.add("b", range(48))


def test_trimmed_pins_keep_the_common_beginning():
    engine = warmed()
    engine.core.pins.pin("c", PROMPT)
    engine.core.pins.pin("d", PROMPT)
    engine.core.pins.trim("c", [*PROMPT, 1, 2])
    engine.core.pins.trim("nobody", [1])
    assert engine.core.pool.num_pinned == 2
    # They differ in the second block.
    engine.core.pins.trim("d", [*PROMPT[:12], 901])
    engine.core.pins.trim("c", [*PROMPT[:12], 901])
    engine.check()
    assert engine.core.pool.num_pinned == 1
    engine.core.pins.lapse()
    engine.core.pins.renew("c")
    engine.check()
    assert engine.core.pool.num_pinned == 1
    engine.core.pins.trim("c", [])
    engine.core.pins.unpin("c")
    engine.check()
    assert engine.core.pool.num_pinned == 0
