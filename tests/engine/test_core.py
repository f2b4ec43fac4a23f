"""The core over an integer model: output never depends on cache, batch, chunking or preemption."""

import pytest

from engine.api.errors import DuplicateIdError, PromptExceedsPoolError, PromptTooLongError
from engine.api.events import FinishReason, PrefillProgress, RequestPreempted, TokensGenerated
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.hash_runner import reference_output


def prompt(length: int, first: int = 0) -> list[int]:
    return [(first + 7 * i) % 900 for i in range(length)]


@pytest.fixture(params=[0, 1], ids=["lag0", "lag1"])
def lag(request):
    return request.param


def test_output_equals_the_model_alone(lag):
    engine = CheckedEngine(16, lag=lag)
    engine.add("a", prompt(20))
    engine.run()
    assert engine.output("a") == reference_output(prompt(20), 8)
    assert engine.finished("a").reason is FinishReason.LENGTH
    assert engine.finished("a").limit == "max_tokens"


def test_whole_prompt_cached_gives_the_same_answer(lag):
    engine = CheckedEngine(16, lag=lag)
    for name in ("a", "b"):
        engine.add(name, prompt(16))
        engine.run()
    assert engine.output("a") == engine.output("b") == reference_output(prompt(16), 8)
    usage = engine.finished("b").usage
    assert (usage.cached_tokens, usage.computed_tokens) == (8, 8)


def test_reused_block_serves_no_old_prompt(lag):
    engine = CheckedEngine(4, lag=lag)
    for name, first in (("a", 0), ("b", 400), ("c", 0)):
        engine.add(name, prompt(20, first), max_tokens=6)
        engine.run()
    assert engine.output("c") == engine.output("a") == reference_output(prompt(20), 6)
    assert engine.output("b") == reference_output(prompt(20, 400), 6)


def test_preempted_requests_finish_as_if_they_had_not_been(lag):
    engine = CheckedEngine(9, lag=lag)
    for name, first in (("a", 0), ("b", 300), ("c", 600)):
        engine.add(name, prompt(20, first), max_tokens=28)
    engine.run()
    assert any(isinstance(event, RequestPreempted) for event in engine.events)
    for name, first in (("a", 0), ("b", 300), ("c", 600)):
        assert engine.output(name) == reference_output(prompt(20, first), 28)
        assert engine.finished(name).usage.cached_tokens == 0


def test_lone_request_that_outgrows_the_pool_ends_with_a_reason(lag):
    engine = CheckedEngine(3, lag=lag)
    engine.add("a", prompt(10), max_tokens=100)
    engine.run()
    assert engine.finished("a").limit == "pool"
    assert engine.output("a") == reference_output(prompt(10), 15)


def test_prompt_larger_than_the_pool_is_refused_with_the_numbers():
    engine = CheckedEngine(3)
    with pytest.raises(PromptExceedsPoolError, match="24 tokens, but the cache holds only 24"):
        engine.add("a", prompt(24))
    engine.add("b", prompt(10))
    engine.run()
    assert engine.output("b") == reference_output(prompt(10), 8)


def test_prompt_longer_than_the_context_is_refused_with_the_numbers():
    engine = CheckedEngine(16, context_length=30)
    with pytest.raises(PromptTooLongError, match="30 tokens, but the model's context is 30"):
        engine.add("a", prompt(30))


def test_context_limit_inside_an_answer_is_told(lag):
    engine = CheckedEngine(16, context_length=24, lag=lag)
    engine.add("a", prompt(20), max_tokens=100)
    engine.run()
    assert engine.finished("a").limit == "context"
    assert engine.output("a") == reference_output(prompt(20), 4)


def test_id_can_be_used_once():
    engine = CheckedEngine(16)
    engine.add("a", prompt(4))
    with pytest.raises(DuplicateIdError):
        engine.add("a", prompt(4))


def test_twins_compute_a_shared_prompt_once(lag):
    engine = CheckedEngine(64, lag=lag)
    shared = prompt(40)
    prompts = {name: [*shared, 901 + i, 920] for i, name in enumerate("abcd")}
    for name, ids in prompts.items():
        engine.add(name, ids)
    engine.run()
    for name, ids in prompts.items():
        assert engine.output(name) == reference_output(ids, 8)
    assert [engine.finished(n).usage.cached_tokens for n in "abcd"] == [0, 40, 40, 40]
    assert [engine.finished(n).usage.computed_tokens for n in "abcd"] == [42, 2, 2, 2]


def test_waiting_twin_computes_itself_when_the_owner_is_cancelled(lag):
    engine = CheckedEngine(64, lag=lag, token_budget=8)
    engine.add("a", [*prompt(40), 901])
    engine.add("b", [*prompt(40), 902])
    engine.step()
    engine.cancel("a")
    engine.run()
    assert engine.output("b") == reference_output([*prompt(40), 902], 8)


@pytest.mark.parametrize("when", range(14))
def test_cancel_at_any_step_leaks_nothing(lag, when):
    engine = CheckedEngine(16, lag=lag, token_budget=8)
    engine.add("a", prompt(30))
    engine.add("b", [*prompt(24), 901, 902])
    for _ in range(when):
        engine.step()
    seen = len(engine.output("a"))
    engine.cancel("a")
    engine.run()
    assert engine.output("a") == reference_output(prompt(30), 8)[:seen]
    assert engine.output("b") == reference_output([*prompt(24), 901, 902], 8)
    assert engine.core.pool.num_used == 0


def test_cancel_returns_blocks_within_one_step(lag):
    engine = CheckedEngine(16, lag=lag)
    engine.add("a", prompt(30), max_tokens=50)
    for _ in range(4):
        engine.step()
    engine.cancel("a")
    engine.step()
    assert engine.core.pool.num_used == 0


def test_failure_before_the_forward_poisons_no_cache():
    engine = CheckedEngine(16)
    engine.runner.fail_next_submit = RuntimeError("planted")
    engine.add("a", prompt(20))
    engine.run()
    assert engine.finished("a").error.code == "internal"
    assert "planted" in engine.finished("a").error.message
    assert engine.core.pool.num_cached == 0
    engine.add("b", prompt(20))
    engine.run()
    assert engine.output("b") == reference_output(prompt(20), 8)


def test_failure_found_at_the_commit_poisons_no_cache(lag):
    engine = CheckedEngine(16, lag=lag)
    engine.runner.fail_next_result = RuntimeError("planted")
    engine.add("a", prompt(20))
    engine.run()
    assert "planted" in engine.finished("a").error.message
    assert engine.core.pool.num_used == engine.core.pool.num_cached == 0


def test_bad_logits_fail_one_request_only(lag):
    engine = CheckedEngine(16, lag=lag)
    engine.runner.bad_requests.add("a")
    engine.add("a", prompt(20))
    engine.add("b", prompt(20, 300))
    engine.run()
    assert engine.finished("a").reason is FinishReason.ERROR
    assert "not numbers" in engine.finished("a").error.message
    assert engine.output("b") == reference_output(prompt(20, 300), 8)


def test_end_token_stops_and_is_kept_in_the_turn(lag):
    expected = reference_output(prompt(20), 8)
    engine = CheckedEngine(16, eos=frozenset({expected[3]}), lag=lag)
    engine.add("a", prompt(20))
    engine.run()
    done = engine.finished("a")
    assert done.reason is FinishReason.STOP
    assert done.turn.output_ids == tuple(expected[:4])
    assert done.turn.prompt_ids == tuple(prompt(20))
    assert engine.core.pool.num_used == 0


def test_next_turn_takes_its_history_from_the_cache(lag):
    engine = CheckedEngine(64, lag=lag)
    engine.add("a", prompt(20), max_tokens=13)
    engine.run()
    turn = engine.finished("a").turn
    history = [*turn.prompt_ids, *turn.output_ids]
    engine.add("b", [*history, 5, 6, 7], turn_start=len(history))
    engine.run()
    # 33 tokens of history; the KV of the last one was never computed, so 32 are four full blocks.
    assert engine.finished("b").usage.cached_tokens == 32
    assert engine.finished("b").turn.prompt_ids == (5, 6, 7)


def test_progress_and_tokens_are_told_in_order():
    engine = CheckedEngine(16, token_budget=8)
    engine.add("a", prompt(20), max_tokens=2)
    engine.run()
    progress = [e.computed_tokens for e in engine.events if isinstance(e, PrefillProgress)]
    assert progress == [8, 16, 20]
    assert sum(isinstance(event, TokensGenerated) for event in engine.events) == 2


def test_ttft_parts_add_up():
    engine = CheckedEngine(16)
    engine.add("a", prompt(20))
    engine.run()
    usage = engine.finished("a").usage
    assert usage.queue_s > 0.0
    assert usage.ttft_s == pytest.approx(usage.queue_s + usage.prefill_s + usage.first_decode_s)
    assert usage.total_s > usage.ttft_s
