"""What breaks paged engines, rows 16–22: the scheduler. Each check is run once on the code as it
is, and once for each fault with that fault planted in it: then it must fail.
"""

import random

import pytest

from engine import scheduler as scheduler_module
from engine.api.events import (
    FinishReason,
    RequestFinished,
    RequestPreempted,
    TokensGenerated,
    WaitReason,
)
from engine.queues import RequestQueues
from engine.request import Phase
from engine.scheduler import Scheduler
from engine.step_loop import StepLoop
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.faults import Case, Cases, Fault
from tests.helpers.hash_runner import reference_output

CASES = Cases()
case = CASES.case
LAGS = (0, 1)


def prompt(length: int, first: int = 0) -> list[int]:
    return [(first + 7 * i) % 900 for i in range(length)]


@case(
    16,
    Fault(RequestQueues, "_release", "if request.num_in_flight == 0:", "if True:"),
    Fault(
        StepLoop,
        "_commit",
        "        if request.phase is not Phase.FINISHED:\n            num_accepted",
        "        if True:\n            num_accepted",
    ),
    Fault(
        RequestQueues,
        "step_committed",
        "self._manager.free(request, cause)",
        "pass",
    ),
)
def cancel_at_any_step_leaks_nothing() -> None:
    for lag in LAGS:
        for when in range(1, 14):
            engine = CheckedEngine(20, lag=lag, token_budget=8)
            engine.add("a", prompt(30), max_tokens=20)
            engine.add("b", prompt(12, 400), max_tokens=12)
            for _ in range(when):
                engine.step()
            request = engine.core.requests.get("a")
            engine.cancel("a")
            if request is not None and request.num_in_flight:
                used = [not engine.core.pool.is_unused(block) for block in request.block_table]
                assert used
                assert all(used)
            engine.run(500)
            told = [event for event in engine.events if event.request_id == "a"]
            assert isinstance(told[-1], RequestFinished)
            assert engine.core.pool.num_used == 0
            assert engine.output("b") == reference_output(prompt(12, 400), 12)


@case(17, Fault(RequestQueues, "finish", "if request in self.running:", "if True:"))
def conversation_closed_in_a_storm_of_preemptions() -> None:
    draw = random.Random(17)
    for lag in LAGS:
        engine = CheckedEngine(12, lag=lag, token_budget=16)
        names = [f"r{number}" for number in range(6)]
        for number, name in enumerate(names):
            engine.add(name, prompt(20 + number, 100 * number), max_tokens=30)
        alive = set(names)
        for _ in range(25):
            engine.step()
            preempted = [
                name
                for name, request in engine.core.requests.items()
                if request.phase is Phase.PREEMPTED
            ]
            if preempted and len(alive) > 3 and draw.random() < 0.3:
                alive.discard(preempted[0])
                engine.cancel(preempted[0])
        assert len(alive) < 6
        engine.run(3000)
        for number, name in enumerate(names):
            if name in alive:
                assert engine.output(name) == reference_output(
                    prompt(20 + number, 100 * number), 30
                )


@case(18, Fault(Scheduler, "_make_slot", "scheduled.pop(victim.request_id, None)", "pass"))
def victim_leaves_the_step_that_it_was_in() -> None:
    for lag in LAGS:
        engine = CheckedEngine(9, lag=lag)
        engine.add("early", prompt(24), max_tokens=30)
        engine.step()
        engine.core.scheduler.focus = "focused"
        engine.add("focused", prompt(24, 400), max_tokens=30)
        engine.run(2000)
        preempted = [event for event in engine.events if isinstance(event, RequestPreempted)]
        assert {event.request_id for event in preempted} == {"early"}
        assert {event.reason for event in preempted} == {"pool full"}
        assert engine.output("early") == reference_output(prompt(24), 30)
        assert engine.output("focused") == reference_output(prompt(24, 400), 30)


@case(
    19,
    Fault(scheduler_module, "choose_victim", "reverse=True", "reverse=False"),
)
def requests_do_not_take_each_others_blocks_for_ever() -> None:
    """The pool is nearly full and a long prompt comes back in small chunks."""
    for lag in LAGS:
        engine = CheckedEngine(22, lag=lag, token_budget=8)
        asked = {"long": (prompt(100), 40), "b": (prompt(20, 400), 60), "c": (prompt(20, 600), 60)}
        for name, (ids, count) in asked.items():
            engine.add(name, ids, max_tokens=count)
        engine.run(2000)
        useful = sum(len(ids) + count for ids, count in asked.values())
        assert engine.core.metrics.num_preemptions > 0
        assert engine.core.metrics.total_computed_tokens < 1.6 * useful
        order = [e.request_id for e in engine.events if isinstance(e, RequestPreempted)]
        # Who came first keeps its place: the one that came last gives way.
        assert "long" not in order


@case(
    20,
    Fault(
        Scheduler,
        "_plan",
        "decodes = self._schedule_decodes()",
        "decodes = [] if any(r.phase is Phase.PREFILL for r in self.running) "
        "else self._schedule_decodes()",
    ),
    Fault(
        Scheduler,
        "_prefill_budget",
        "min(budget, max(in_time, self._least_prefill))",
        "budget",
    ),
)
def long_prompt_does_not_stop_the_others() -> None:
    for lag in LAGS:
        engine = CheckedEngine(
            1100, lag=lag, token_budget=8192, prefill_time_budget_ms=5.0, context_length=9000
        )
        engine.add("a", prompt(20), max_tokens=120)
        for _ in range(5):
            engine.step()
        # As measured on a device that computes 100,000 prompt tokens a second.
        engine.core.metrics.record_step = lambda *measured: None
        engine.core.metrics.safe_padded_tokens_per_s = 100_000.0
        engine.add("b", [(3 * i) % 900 for i in range(8000)], max_tokens=1)
        chunks, quiet = [], 0
        while "b" in engine.core.requests:
            events = engine.step()
            output = engine.runner.outputs[-1]
            chunks += [chunk.num_tokens for chunk in output.prefills]
            said = any(isinstance(e, TokensGenerated) and e.request_id == "a" for e in events)
            quiet = 0 if said else quiet + 1
            assert quiet <= 1
        assert max(chunks) <= 500
        engine.run(500)


@case(21, Fault(Scheduler, "_make_slot", "if victim is None:", "if True:"))
def full_pool_ends_nobody() -> None:
    """Four conversations, each allowed the full context, in a pool of three contexts."""
    for lag in LAGS:
        engine = CheckedEngine(30, lag=lag, context_length=80)
        asked = {f"r{number}": prompt(20, 150 * number) for number in range(4)}
        for name, ids in asked.items():
            engine.add(name, ids, max_tokens=100)
        while engine.core.has_work:
            engine.step()
            short = [
                request
                for request in engine.core.scheduler.waiting
                if request.waits_for is WaitReason.CAPACITY or request.phase is Phase.PREEMPTED
            ]
            assert len(short) <= 1
        for name, ids in asked.items():
            finished = engine.finished(name)
            assert (finished.reason, finished.limit) == (FinishReason.LENGTH, "context")
            assert engine.output(name) == reference_output(ids, 60)


@case(
    22,
    Fault(
        StepLoop,
        "_fail_step",
        "guard.suspect(requests)",
        "[self._ledger.fail(each, info) for each in requests]",
    ),
    Fault(StepLoop, "_fail_step", "if len(requests) == 1 and not smaller:", "if False:"),
)
def memory_that_runs_out_ends_one_request() -> None:
    for lag in LAGS:
        engine = CheckedEngine(60, lag=lag, token_budget=64)
        asked = {f"r{number}": prompt(20, 150 * number) for number in range(4)}
        for name, ids in asked.items():
            engine.add(name, ids, max_tokens=20)
        engine.add("large", prompt(200, 77), max_tokens=5)

        def breaks(output: object) -> Exception | None:
            names = {chunk.request.request_id for chunk in output.chunks}
            return MemoryError("planted") if "large" in names else None

        engine.runner.breaks = breaks
        for _ in range(600):
            if not engine.core.has_work:
                break
            engine.step()
        failed = [
            event
            for event in engine.events
            if isinstance(event, RequestFinished) and event.reason is FinishReason.ERROR
        ]
        assert [event.request_id for event in failed] == ["large"]
        assert failed[0].error is not None
        assert failed[0].error.code == "out_of_memory"
        for name, ids in asked.items():
            assert engine.output(name) == reference_output(ids, 20)


@pytest.mark.parametrize("each", CASES.all, ids=lambda each: f"{each.number}")
def test_case_holds(each: Case) -> None:
    each.holds()


@pytest.mark.parametrize(
    ("each", "fault"),
    CASES.with_faults,
    ids=[f"{each.number}-{fault.name}" for each, fault in CASES.with_faults],
)
def test_case_sees_its_fault(each: Case, fault: Fault) -> None:
    each.sees(fault)
