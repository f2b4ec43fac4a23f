"""What a request with bad logits computed is not given to whoever asks again, however it left."""

import pytest

from engine.api.events import FinishReason
from tests.helpers.engine_cases import CheckedEngine

PROMPT = list(range(20))


@pytest.fixture(params=[0, 1], ids=["lag0", "lag1"])
def lag(request):
    return request.param


def step_badly(engine: CheckedEngine, *names: str) -> None:
    """Submits one step whose logits are bad; on a device it is in flight then."""
    engine.runner.bad_requests.update(names)
    engine.step()
    engine.runner.bad_requests.clear()


def check_nothing_found(engine: CheckedEngine) -> None:
    assert engine.core.pool.num_used == engine.core.pool.num_cached == 0
    assert engine.core.manager.known_prefix(PROMPT) == []


@pytest.mark.parametrize("sibling", ["", "a"])
def test_of_two_that_fail_in_one_step_on_the_same_blocks(lag, sibling):
    engine = CheckedEngine(16, lag=lag)
    engine.add("a", PROMPT)
    engine.add("b", PROMPT, sibling=sibling)
    while engine.core.requests["b"].num_output_tokens < 1:
        engine.step()
    step_badly(engine, "a", "b")
    engine.run()
    assert [engine.finished(name).reason for name in "ab"] == [FinishReason.ERROR] * 2
    check_nothing_found(engine)


def preempt(engine: CheckedEngine) -> None:
    engine.core.scheduler.queues.preempt(engine.core.requests["a"], "pool full")


def cancel(engine: CheckedEngine) -> None:
    engine.cancel("a")


@pytest.mark.parametrize(
    ("leave", "reason"), [(preempt, FinishReason.ERROR), (cancel, FinishReason.CANCELLED)]
)
def test_of_one_that_left_while_its_bad_step_was_in_flight(leave, reason):
    engine = CheckedEngine(16, lag=1)
    engine.add("a", PROMPT)
    engine.step()
    step_badly(engine, "a")
    leave(engine)
    engine.run()
    assert engine.finished("a").reason is reason
    check_nothing_found(engine)
