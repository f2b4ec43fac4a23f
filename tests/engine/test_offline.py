"""Prompts in, answers out."""

import pytest

from engine.api.errors import InvalidValueError, PromptTooLongError
from engine.api.events import FinishReason
from engine.api.params import SamplingParams
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.hash_runner import reference_output

PROMPTS = [[(i * k) % 90 for i in range(20)] for k in (3, 5, 7)]
PARAMS = SamplingParams(temperature=0.0, max_tokens=5)


def test_answers_come_in_the_order_of_the_prompts():
    core = CheckedEngine(32).core
    outputs = core.generate(PROMPTS, PARAMS)
    assert [list(o.token_ids) for o in outputs] == [reference_output(p, 5) for p in PROMPTS]
    assert outputs[0].text == "".join(f"[{token}]" for token in outputs[0].token_ids)
    assert outputs[0].reason is FinishReason.LENGTH
    assert outputs[0].usage.output_tokens == 5


def test_parameters_for_each_prompt():
    each = [SamplingParams(temperature=0.0, max_tokens=n) for n in (1, 2, 3)]
    outputs = CheckedEngine(32).core.generate(PROMPTS, each)
    assert [len(output.token_ids) for output in outputs] == [1, 2, 3]


def test_engine_can_be_used_again():
    core = CheckedEngine(32).core
    first = core.generate(PROMPTS, PARAMS)
    assert [o.token_ids for o in core.generate(PROMPTS, PARAMS)] == [o.token_ids for o in first]
    assert core.pool.num_used == 0


def test_impossible_prompt_leaves_nothing_behind():
    core = CheckedEngine(32, context_length=30).core
    with pytest.raises(PromptTooLongError):
        core.generate([PROMPTS[0], [1] * 40], PARAMS)
    assert not core.requests
    assert core.take_events() == []
    assert core.generate(PROMPTS, PARAMS)


def test_wrong_number_of_parameters_and_a_busy_engine_are_refused():
    engine = CheckedEngine(32)
    with pytest.raises(InvalidValueError, match="2 parameters for 3 prompts"):
        engine.core.generate(PROMPTS, [PARAMS] * 2)
    engine.add("a", PROMPTS[0])
    with pytest.raises(InvalidValueError, match="1 requests already"):
        engine.core.generate(PROMPTS, PARAMS)
