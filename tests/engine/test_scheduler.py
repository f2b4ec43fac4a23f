"""Who computes what in a step. Exact chunks, order of queues, reasons for waiting."""

from engine.api.events import WaitReason
from engine.api.params import EngineConfig, SamplingParams
from engine.block_hash import root_hash
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool
from engine.request import Phase, Request
from engine.scheduler import Scheduler
from engine.scheduler_output import SchedulerOutput


def scheduler(num_blocks: int = 16, block_size: int = 8, **config: object) -> Scheduler:
    settings = EngineConfig.from_mapping({"block_size": block_size, "watermark": 0.0, **config})
    return Scheduler(BlockManager(BlockPool(num_blocks, block_size), root_hash("t")), settings)


def request(name: str, num_tokens: int, first: int = 0, conversation: str = "") -> Request:
    tokens = list(range(first, first + num_tokens))
    return Request(name, conversation or name, tokens, num_tokens, SamplingParams(), 0, 0.0)


def run_step(sched: Scheduler) -> SchedulerOutput:
    """Schedules, and does to the requests what the core does with lag 0."""
    output = sched.schedule()
    for chunk in (*output.decodes, *output.prefills):
        req = chunk.request
        req.num_computed_tokens = chunk.start + chunk.num_tokens
        sched.manager.commit(req, chunk.start, chunk.num_tokens, output.step)
        if chunk.samples:
            req.token_ids.append(999)
            req.phase = Phase.DECODE
    return output


def chunks(output: SchedulerOutput) -> list[tuple[str, int, int, bool]]:
    return [
        (chunk.request.request_id, chunk.start, chunk.num_tokens, chunk.samples)
        for chunk in (*output.decodes, *output.prefills)
    ]


def test_prompts_then_decodes():
    sched = scheduler()
    sched.add(request("a", 10))
    sched.add(request("b", 5, first=100))
    assert chunks(run_step(sched)) == [("a", 0, 10, True), ("b", 0, 5, True)]
    assert chunks(run_step(sched)) == [("a", 10, 1, True), ("b", 5, 1, True)]


def test_long_prompt_is_chunked_at_block_boundaries():
    sched = scheduler(token_budget=20)
    sched.add(request("a", 40))
    assert chunks(run_step(sched)) == [("a", 0, 16, False)]
    assert chunks(run_step(sched)) == [("a", 16, 16, False)]
    assert chunks(run_step(sched)) == [("a", 32, 8, True)]


def test_decodes_go_on_during_a_long_prompt():
    sched = scheduler(token_budget=17)
    sched.add(request("a", 4))
    run_step(sched)
    sched.add(request("b", 40, first=100))
    assert chunks(run_step(sched)) == [("a", 4, 1, True), ("b", 0, 16, False)]
    assert chunks(run_step(sched)) == [("a", 5, 1, True), ("b", 16, 16, False)]


def test_budget_smaller_than_a_block_still_moves_on():
    sched = scheduler(token_budget=3)
    sched.add(request("a", 10))
    assert [chunks(run_step(sched)) for _ in range(4)] == [
        [("a", 0, 3, False)],
        [("a", 3, 3, False)],
        [("a", 6, 2, False)],
        [("a", 8, 2, True)],
    ]


def test_two_prompts_share_the_budget():
    sched = scheduler(token_budget=32)
    sched.add(request("a", 40))
    sched.add(request("b", 40, first=100))
    assert chunks(run_step(sched)) == [("a", 0, 16, False), ("b", 0, 16, False)]


def test_focused_conversation_is_prefilled_first():
    sched = scheduler(token_budget=32)
    sched.focus = "b"
    sched.add(request("a", 40))
    sched.add(request("b", 40, first=100))
    assert chunks(run_step(sched)) == [("b", 0, 16, False), ("a", 0, 16, False)]


def test_twin_waits_for_the_block_and_not_for_the_prompt():
    sched = scheduler(token_budget=16)
    sched.add(request("a", 40))
    # Shares two blocks (16 tokens) with a, then goes its own way.
    twin = request("b", 16)
    twin.token_ids += [500, 501]
    twin.num_prompt_tokens = 18
    sched.add(twin)
    assert chunks(run_step(sched)) == [("a", 0, 16, False)]
    assert (twin.waits_for, twin.waits_on) == (WaitReason.TWIN, "a")
    assert ("b", 16, 2, True) in chunks(run_step(sched))
    assert twin.num_cached_tokens == 16


def test_owner_inherits_the_focus_of_its_twin():
    sched = scheduler(token_budget=16)
    sched.add(request("long", 64, first=300))
    sched.add(request("owner", 40))
    twin = request("twin", 40, conversation="focused")
    twin.token_ids[-1] = 7
    sched.add(twin)
    sched.focus = "focused"
    assert chunks(run_step(sched))[0] == ("owner", 0, 8, False)


def test_full_pool_makes_a_request_wait_with_the_number():
    sched = scheduler(num_blocks=5)
    sched.add(request("a", 24))
    waiting = request("b", 32, first=100)
    sched.add(waiting)
    run_step(sched)
    assert (waiting.waits_for, waiting.blocks_short) == (WaitReason.CAPACITY, 2)


def test_later_request_does_not_overtake_one_that_waits_for_room():
    sched = scheduler(num_blocks=5)
    sched.add(request("a", 24))
    sched.add(request("b", 32, first=100))
    sched.add(request("c", 8, first=200))
    assert chunks(run_step(sched)) == [("a", 0, 24, True)]


def test_watermark_is_kept_free_at_admission_and_waived_when_alone():
    sched = scheduler(num_blocks=10, watermark=0.2)
    sched.add(request("a", 72))
    assert chunks(run_step(sched)) == [("a", 0, 72, True)]
    sched.add(request("b", 8, first=100))
    assert chunks(run_step(sched)) == [("a", 72, 1, True)]


def test_batch_is_limited():
    sched = scheduler(max_running_requests=1)
    sched.add(request("a", 8))
    late = request("b", 8, first=100)
    sched.add(late)
    assert chunks(run_step(sched)) == [("a", 0, 8, True)]
    assert late.waits_for is WaitReason.BATCH_FULL


def test_latest_admitted_is_preempted_and_goes_to_the_front():
    sched = scheduler(num_blocks=4)
    first, second = request("a", 16), request("b", 16, first=100)
    for req in (first, second):
        sched.add(req)
    run_step(sched)
    late = request("c", 8, first=200)
    sched.add(late)
    # Both need a third block; b gives its two blocks up.
    assert chunks(run_step(sched)) == [("a", 16, 1, True)]
    assert second.phase is Phase.PREEMPTED
    assert [req.request_id for req in sched.waiting] == ["b", "c"]
    assert sched.queues.take_notes().preempted == [(second, 2, "pool full")]


def test_focused_request_is_not_preempted():
    sched = scheduler(num_blocks=4)
    first, second = request("a", 16), request("b", 16, first=100)
    for req in (first, second):
        sched.add(req)
    run_step(sched)
    sched.focus = "b"
    assert chunks(run_step(sched)) == [("b", 16, 1, True)]
    assert first.phase is Phase.PREEMPTED


def test_victim_that_was_scheduled_already_leaves_the_step():
    sched = scheduler(num_blocks=4)
    first, second = request("a", 15), request("b", 16, first=100)
    for req in (first, second):
        sched.add(req)
    run_step(sched)
    sched.focus = "b"
    # a has room in its last block and is scheduled first; then b needs a block and takes a's.
    assert chunks(run_step(sched)) == [("b", 16, 1, True)]


def test_lone_request_that_outgrows_the_pool_is_reported():
    sched = scheduler(num_blocks=2)
    lone = request("a", 15)
    sched.add(lone)
    run_step(sched)
    run_step(sched)
    assert chunks(run_step(sched)) == []
    assert sched.queues.take_notes().outgrown == [lone]


def test_decode_time_budget_bounds_the_chunk():
    sched = scheduler(num_blocks=64, token_budget=512, prefill_time_budget_ms=10.0)
    sched._metrics.record_step(0.1, 0, 400)
    sched.add(request("a", 4))
    run_step(sched)
    sched.add(request("b", 400, first=1000))
    # 4,000 tokens a second for 10 ms are 40 tokens.
    assert chunks(run_step(sched)) == [("a", 4, 1, True), ("b", 0, 40, False)]


def test_a_chunk_does_not_shrink_below_what_is_always_allowed():
    """The time of a step that hardly depends on its tokens must not make chunks ever smaller."""
    sched = scheduler(
        num_blocks=64, token_budget=512, prefill_time_budget_ms=10.0, least_prefill_tokens=96
    )
    sched._metrics.record_step(0.1, 0, 400)
    sched.add(request("a", 4))
    run_step(sched)
    sched.add(request("b", 400, first=1000))
    assert chunks(run_step(sched)) == [("a", 4, 1, True), ("b", 0, 96, False)]


def split(sched: Scheduler, parent: Request, name: str, conversation: str) -> Request:
    child = request(name, 0, conversation=conversation)
    child.token_ids = list(parent.token_ids)
    child.num_prompt_tokens = parent.num_prompt_tokens
    sched.fork(parent, child)
    return child


def test_copy_of_a_victim_leaves_the_step_with_it():
    sched = scheduler(num_blocks=3)
    early, late = request("early", 4), request("late", 4, first=100, conversation="focused")
    for req in (early, late):
        sched.add(req)
    run_step(sched)
    split(sched, early, "early's", "focused")
    split(sched, late, "late's", "focused")
    sched.focus = "focused"
    output = run_step(sched)
    # early took block 2 for its copy of block 0 and lost it to late, which copies block 1 there.
    assert early.phase is Phase.PREEMPTED
    assert output.block_copies == ((1, 2),)
    assert [chunk.request.request_id for chunk in output.decodes] == ["late", "early's", "late's"]


def test_nothing_is_reserved_once_the_last_paused_request_has_given_way():
    sched = scheduler(num_blocks=20, watermark=0.1)
    paused, large = request("p", 20), request("r", 150, first=100)
    sched.add(paused)
    run_step(sched)
    sched.pause(paused)
    sched.add(large)
    # 19 blocks of 20: with two in reserve it could never run.
    assert chunks(run_step(sched))[0][0] == "r"
    notes = sched.queues.take_notes()
    assert [victim for victim, _, _ in notes.preempted] == [paused]
    assert notes.outgrown == []
