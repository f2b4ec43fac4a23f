"""Several answers, forks, pauses and continued answers.

Shared blocks, copy-on-write, nothing lost.
"""

import pytest

from engine.api.commands import BlockText
from engine.api.errors import DuplicateIdError, UnknownIdError
from engine.api.events import (
    BlockChanged,
    BlockEventKind,
    FinishReason,
    RequestPaused,
    RequestPreempted,
    RequestWaiting,
    WaitReason,
)
from engine.api.params import SamplingParams
from engine.queries import query_of
from engine.request import PLACEHOLDER_TOKEN
from tests.helpers.engine_cases import CheckedEngine, NumberStream, cannot_read_again
from tests.helpers.fake_loaded import fake_engine
from tests.helpers.hash_runner import reference_output

PROMPT = [(3 * i) % 900 for i in range(21)]


@pytest.fixture(params=[0, 1], ids=["lag0", "lag1"])
def lag(request):
    return request.param


def copies(engine: CheckedEngine) -> list[tuple[int, int]]:
    return [
        (event.source_block_id, event.block_id)
        for event in engine.fold.events
        if isinstance(event, BlockChanged) and event.kind is BlockEventKind.COPIED
    ]


def test_answers_of_one_prompt_share_every_block_and_copy_the_partial_one(lag):
    engine = CheckedEngine(32, lag=lag)
    for name in "abc":
        engine.add(name, PROMPT, sibling="" if name == "a" else "a")
    engine.run()
    for name in "abc":
        assert engine.output(name) == reference_output(PROMPT, 8)
    # 21 tokens are two full blocks and five in block 2. The last to write keeps it.
    assert [source for source, _ in copies(engine)] == [2, 2]
    usage = [engine.finished(name).usage for name in "abc"]
    assert [(u.cached_tokens, u.computed_tokens) for u in usage] == [(0, 21), (20, 1), (20, 1)]


def test_sibling_of_a_cancelled_answer_computes_itself(lag):
    engine = CheckedEngine(32, lag=lag, token_budget=8)
    engine.add("a", PROMPT)
    engine.add("b", PROMPT, sibling="a")
    engine.step()
    engine.cancel("a")
    engine.run()
    assert engine.output("b") == reference_output(PROMPT, 8)


def test_forked_request_and_its_parent_each_go_on(lag):
    engine = CheckedEngine(32, lag=lag)
    engine.add("a", PROMPT, max_tokens=12)
    for _ in range(5):
        engine.step()
    seen = engine.output("a")
    engine.core.fork("a", "b", "conversation-b", seed=1)
    engine.events += engine.core.take_events()
    engine.check()
    said_before_fork = engine.output("a")
    assert len(said_before_fork) >= len(seen) > 0
    engine.run()
    expected = reference_output(PROMPT, 12)
    assert engine.output("a") == expected
    assert said_before_fork + engine.output("b") == expected
    assert engine.finished("b").turn.output_ids == tuple(expected)
    assert engine.finished("b").turn.prompt_ids == tuple(PROMPT)
    assert len(copies(engine)) == 1


def test_fork_of_a_request_that_has_not_computed_its_prompt(lag):
    engine = CheckedEngine(32, lag=lag, token_budget=8)
    engine.add("a", PROMPT)
    engine.step()
    engine.core.fork("a", "b", "c", seed=None)
    engine.run()
    assert engine.output("a") == engine.output("b") == reference_output(PROMPT, 8)


def test_fork_in_a_full_batch_waits(lag):
    engine = CheckedEngine(32, lag=lag, max_running_requests=1)
    engine.add("a", PROMPT)
    for _ in range(3):
        engine.step()
    engine.core.fork("a", "b", "c", seed=None)
    engine.run()
    expected = reference_output(PROMPT, 8)
    assert engine.finished("b").turn.output_ids == tuple(expected)


def test_fork_of_nothing_is_refused():
    engine = CheckedEngine(32)
    with pytest.raises(UnknownIdError, match="no request x"):
        engine.core.fork("x", "b", "c", None)
    engine.add("a", PROMPT)
    with pytest.raises(DuplicateIdError):
        engine.core.fork("a", "a", "c", None)


def no_stream(self: NumberStream) -> None:
    raise MemoryError("planted")


@pytest.mark.parametrize(
    ("place", "breaks"), [("__init__", no_stream), ("feed", cannot_read_again)]
)
def test_fork_without_its_text_leaves_no_child_behind(lag, place, breaks, monkeypatch):
    engine = CheckedEngine(32, lag=lag)
    engine.add("a", PROMPT)
    for _ in range(5):
        engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(NumberStream, place, breaks)
        with pytest.raises(MemoryError, match="planted"):
            engine.core.fork("a", "b", "b", seed=1)
    assert list(engine.core.requests) == ["a"]
    # The id is free again.
    engine.core.fork("a", "b", "b", seed=1)
    engine.events += engine.core.take_events()
    engine.run()
    expected = reference_output(PROMPT, 8)
    assert engine.output("a") == expected
    assert engine.finished("b").turn.output_ids == tuple(expected)


def test_request_without_a_text_stream_is_not_taken_up(monkeypatch):
    engine = CheckedEngine(32)
    with monkeypatch.context() as patch:
        patch.setattr(NumberStream, "__init__", no_stream)
        with pytest.raises(MemoryError, match="planted"):
            engine.add("a", PROMPT)
    assert not engine.core.requests
    assert not engine.core.has_work
    engine.add("a", PROMPT)
    engine.run()
    assert engine.output("a") == reference_output(PROMPT, 8)


@pytest.mark.parametrize("when", range(10))
def test_pause_and_resume_at_any_step_change_nothing(lag, when):
    engine = CheckedEngine(32, lag=lag, token_budget=8)
    engine.add("a", PROMPT)
    for _ in range(when):
        engine.step()
    engine.core.pause("a")
    for _ in range(3):
        engine.step()
    said = len(engine.output("a"))
    engine.step()
    assert len(engine.output("a")) == said
    engine.core.resume("a")
    engine.run()
    assert engine.output("a") == reference_output(PROMPT, 8)


def test_paused_engine_work_is_no_work():
    engine = CheckedEngine(32)
    engine.add("a", PROMPT)
    engine.step()
    engine.core.pause("a")
    assert not engine.core.has_work
    assert engine.core.pool.num_used == 3


def test_paused_request_gives_its_blocks_to_who_needs_them(lag):
    engine = CheckedEngine(5, lag=lag)
    engine.add("a", PROMPT)
    for _ in range(3):
        engine.step()
    engine.core.pause("a")
    engine.add("b", [7 + token for token in PROMPT])
    for _ in range(30):
        engine.step()
    assert engine.finished("b").reason is FinishReason.LENGTH
    assert any(isinstance(e, RequestPreempted) and e.request_id == "a" for e in engine.events)
    engine.core.resume("a")
    engine.run()
    assert engine.output("a") == reference_output(PROMPT, 8)


def test_twin_of_a_paused_request_does_not_wait_for_it(lag):
    engine = CheckedEngine(32, lag=lag, token_budget=8)
    engine.add("a", PROMPT)
    engine.add("b", [*PROMPT[:-1], 899])
    engine.step()
    engine.core.pause("a")
    for _ in range(30):
        engine.step()
    assert engine.finished("b").reason is FinishReason.LENGTH


def test_waiting_request_that_is_paused_says_so():
    engine = CheckedEngine(32)
    engine.add("a", PROMPT)
    engine.core.pause("a")
    events = engine.core.take_events()
    assert [type(event) for event in events] == [RequestWaiting, RequestPaused]
    assert events[0].waits_for is WaitReason.PAUSED


def test_continued_answer_goes_on_where_it_was(lag):
    whole = reference_output(PROMPT, 14)
    engine = CheckedEngine(32, lag=lag)
    engine.add("a", PROMPT, max_tokens=6)
    engine.run()
    turn = engine.finished("a").turn
    engine.add(
        "b",
        [*turn.prompt_ids, *turn.output_ids],
        max_tokens=8,
        answer_start=len(turn.prompt_ids),
        answer_chars=turn.covered_chars,
    )
    engine.run()
    assert engine.output("b") == whole[6:]
    joined = engine.finished("b").turn
    assert joined.prompt_ids == tuple(PROMPT)
    assert joined.output_ids == tuple(whole)
    assert joined.covered_chars == sum(len(f"[{token}]") for token in whole)
    assert engine.finished("b").usage.prompt_tokens == 27


def test_blocks_are_shown_while_siblings_join_and_copies_are_due(lag):
    """A copy's fill runs ahead of what its request has drawn: the text is that which is known."""
    engine = fake_engine(lag=lag)
    core = engine.core
    params = SamplingParams(temperature=0.0, max_tokens=12, seed=0)
    for name in "abc":
        core.add_request(name, PROMPT, params, sibling="" if name == "a" else "a")
    query = query_of(BlockText(0))
    num_shown = 0
    while core.has_work:
        core.step()
        for request in core.requests.values():
            for index, block_id in enumerate(request.block_table):
                reply = query.reply(engine, BlockText(block_id), None)
                first = index * core.pool.block_size
                shown = len(reply.token_ids)
                assert PLACEHOLDER_TOKEN not in reply.token_ids
                holders = [r for r in core.requests.values() if block_id in r.block_table]
                expected = tuple(holders[0].token_ids[first : first + shown])
                assert reply.token_ids == expected
                num_shown += shown
    assert num_shown > 3 * len(PROMPT)


def test_account_of_a_fork_counts_its_own_work():
    engine = CheckedEngine(64)
    engine.add("a", PROMPT, max_tokens=60)
    for _ in range(40):
        engine.step()
    engine.core.fork("a", "b", "c", 0)
    engine.run()
    usage, parents = engine.finished("b").usage, engine.finished("a").usage
    assert usage.prompt_tokens == len(PROMPT)
    # Found in the pool: the prompt, and of the parent's answer what is no part of the prompt.
    assert usage.cached_tokens == len(PROMPT)
    # All of the answer's text, but at the rate of what was drawn since.
    assert usage.output_tokens == parents.output_tokens == 60
    assert usage.tokens_per_s <= 1.5 * parents.tokens_per_s
