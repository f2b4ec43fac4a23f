"""All KV becomes void in mid-conversation: everyone is computed again, and nothing is lost."""

import pytest

from engine.api.events import RequestPreempted
from engine.block_hash import root_hash
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.hash_runner import reference_output

SYSTEM = list(range(300, 332))
PROMPTS = [SYSTEM + [number] * (5 + number) for number in range(5)]


def restart(engine: CheckedEngine, seed: str = "other", caching: bool = True) -> None:
    def spoil() -> None:
        assert not engine.core.live_tables()
        engine.runner.pool = [None] * len(engine.runner.pool)

    engine.core.restart_cache(root_hash(seed), prefix_caching=caching, change=spoil)
    engine.events.extend(engine.core.take_events())
    engine.check()


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("when", [0, 1, 3, 5, 9, 14])
@pytest.mark.parametrize("caching", [True, False])
def test_answers_are_those_of_an_undisturbed_run(lag, when, caching):
    engine = CheckedEngine(24, 8, lag=lag, token_budget=32)
    for number, prompt in enumerate(PROMPTS):
        engine.add(f"r{number}", prompt, max_tokens=16)
    engine.add("r0.1", PROMPTS[0], max_tokens=16, sibling="r0")
    for _ in range(when):
        engine.step()
    restart(engine, caching=caching)
    assert engine.core.pool.num_cached == engine.core.pool.num_used == 0
    engine.run()
    for number, prompt in enumerate(PROMPTS):
        assert engine.output(f"r{number}") == reference_output(prompt, 16)
    assert engine.output("r0.1") == reference_output(PROMPTS[0], 16)
    assert (engine.core.pool.num_cached > 0) == caching
    if when == 9:
        assert any(isinstance(event, RequestPreempted) for event in engine.events)


def test_blocks_of_the_old_root_are_not_found():
    engine = CheckedEngine(24, 8)
    engine.add("a", PROMPTS[0], max_tokens=4)
    engine.run()
    restart(engine)
    engine.add("b", PROMPTS[0], max_tokens=4)
    engine.run()
    assert engine.finished("b").usage.cached_tokens == 0
    engine.add("c", PROMPTS[0], max_tokens=4)
    engine.run()
    assert engine.finished("c").usage.cached_tokens == 32


def test_pins_hold_again_once_their_blocks_are_computed():
    engine = CheckedEngine(24, 8)
    engine.add("a", PROMPTS[0], max_tokens=4, conversation_id="a")
    engine.run()
    assert engine.core.pins.pin("a", SYSTEM) == 4
    restart(engine)
    assert engine.core.pool.num_pinned == 0
    engine.add("other", [1] * 20, max_tokens=4, conversation_id="other")
    engine.run()
    assert engine.core.pool.num_pinned == 0
    engine.add("a2", PROMPTS[0], max_tokens=4, conversation_id="a")
    engine.run()
    assert engine.core.pool.num_pinned == 4
    engine.core.pins.unpin("a")
    assert engine.core.pool.num_pinned == 0


def test_pin_given_back_in_between_does_not_return():
    engine = CheckedEngine(24, 8)
    engine.add("a", PROMPTS[0], max_tokens=4, conversation_id="a")
    engine.run()
    engine.core.pins.pin("a", SYSTEM)
    restart(engine)
    engine.core.pins.unpin("a")
    engine.add("a2", PROMPTS[0], max_tokens=4, conversation_id="a")
    engine.run()
    assert engine.core.pool.num_pinned == 0


def test_request_that_pins_leave_no_room_for_ends_with_the_numbers():
    engine = CheckedEngine(8, 8, max_running_requests=1)
    engine.add("a", [*SYSTEM, 1], max_tokens=4, conversation_id="a")
    engine.add("b", [9] * 40, max_tokens=4, conversation_id="b")
    while "a" in engine.core.requests:
        engine.step()
    assert engine.core.pins.pin("a", SYSTEM) == 4
    engine.run()
    error = engine.finished("b").error
    assert error is not None
    assert error.code == "prompt_exceeds_pool"
    assert dict(error.numbers)["pinned_blocks"] == 4
    assert engine.core.violations() == []
