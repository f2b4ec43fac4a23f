"""A step that breaks off ends at most one request, and no text is lost or repeated."""

import pytest

from engine.api.events import FinishReason, RequestPreempted
from engine.scheduler_output import SchedulerOutput
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.hash_runner import reference_output

PROMPTS = {name: [(i * (7 + k)) % 900 for i in range(20)] for k, name in enumerate("abc")}


@pytest.fixture(params=[0, 1], ids=["lag0", "lag1"])
def lag(request):
    return request.param


def started(lag: int, **config: object) -> CheckedEngine:
    engine = CheckedEngine(64, lag=lag, **config)
    for name, ids in PROMPTS.items():
        engine.add(name, ids, max_tokens=10)
    return engine


def check_survivors(engine: CheckedEngine, *names: str) -> None:
    for name in names:
        assert engine.finished(name).reason is FinishReason.LENGTH
        assert engine.output(name) == reference_output(PROMPTS[name], 10)


@pytest.mark.parametrize("when", range(8))
@pytest.mark.parametrize("where", ["fail_next_submit", "fail_next_result"])
@pytest.mark.parametrize("error", [RuntimeError("planted"), MemoryError("planted")])
def test_failure_that_does_not_come_back_ends_nobody(lag, when, where, error):
    engine = started(lag)
    for _ in range(when):
        engine.step()
    setattr(engine.runner, where, error)
    engine.run()
    check_survivors(engine, *PROMPTS)


@pytest.mark.parametrize("position", [0, 5, 20, 23])
def test_request_that_breaks_every_step_ends_alone(lag, position):
    def breaks(output: SchedulerOutput) -> Exception | None:
        for chunk in output.chunks:
            reaches = chunk.start <= position < chunk.start + chunk.num_tokens
            if chunk.request.request_id == "b" and reaches:
                return RuntimeError("planted")
        return None

    engine = started(lag)
    engine.runner.breaks = breaks
    engine.run()
    assert engine.finished("b").reason is FinishReason.ERROR
    said = engine.output("b")
    assert said == reference_output(PROMPTS["b"], 10)[: len(said)]
    assert len(said) == max(0, position - 19)
    check_survivors(engine, "a", "c")


def test_prompt_too_large_for_the_workspace_is_computed_in_smaller_steps(lag):
    def breaks(output: SchedulerOutput) -> Exception | None:
        return MemoryError("planted") if output.num_tokens > 16 else None

    engine = started(lag, token_budget=256)
    engine.runner.breaks = breaks
    engine.run()
    check_survivors(engine, *PROMPTS)
    assert any(isinstance(event, RequestPreempted) for event in engine.events)


def test_budget_grows_again(lag):
    engine = started(lag, token_budget=256)
    engine.runner.fail_next_submit = MemoryError("planted")
    engine.run()
    engine.add("long", [3] * 200, max_tokens=70)
    engine.run()
    engine.add("again", [4] * 200, max_tokens=2)
    before = len(engine.runner.outputs)
    engine.run()
    assert engine.runner.outputs[before].num_tokens == 200


def test_memory_that_never_suffices_ends_requests_with_the_reason():
    engine = started(0)
    engine.runner.breaks = lambda output: MemoryError("planted")
    engine.run()
    for name in PROMPTS:
        assert engine.finished(name).error.code == "out_of_memory"
    assert engine.core.pool.num_used == 0


def test_cancelled_suspect_holds_nobody_up(lag):
    engine = started(lag)
    engine.runner.fail_next_submit = RuntimeError("planted")
    engine.step()
    engine.cancel("a")
    engine.core.pause("b")
    engine.step()
    engine.core.resume("b")
    engine.run()
    check_survivors(engine, "b", "c")


@pytest.mark.parametrize("where", ["fail_next_submit", "fail_next_result"])
def test_block_that_a_broken_step_was_to_copy_is_read_by_nobody(lag, where):
    engine = CheckedEngine(64, lag=lag)
    engine.add("a", PROMPTS["a"], max_tokens=10)
    engine.add("b", PROMPTS["a"], max_tokens=10, sibling="a")
    while not engine.output("a"):
        engine.step()
    # The next step copies a's last block because of the fork; b joins a in it and shares the copy.
    engine.core.fork("a", "f", "f", 0)
    setattr(engine.runner, where, RuntimeError("planted"))
    engine.run()
    for name in "abf":
        said = engine.output(name)
        assert said == reference_output(PROMPTS["a"], 10)[10 - len(said) :]
