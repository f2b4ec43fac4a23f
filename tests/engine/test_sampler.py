"""Drawing tokens: against transformers' own processors, against exact probabilities, and its
edges."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from engine.api.params import GREEDY, SamplingParams
from engine.sampler import SampleRow, sample

VOCAB = 200


def logits_of(rows: int = 1, *, seed: int = 0, spread: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, VOCAB, generator=generator) * spread


def row(
    params: SamplingParams,
    *,
    seed: int = 1,
    prompt: Sequence[int] = (1, 2, 3),
    output: Sequence[int] = (),
    name: str = "r",
) -> SampleRow:
    return SampleRow(name, params, seed, [*prompt, *output], len(prompt))


def draw(logits: torch.Tensor, params: SamplingParams, count: int) -> Counter[int]:
    """``count`` draws from one row of logits, one seed each."""
    rows = [row(params, seed=seed) for seed in range(count)]
    samples = sample(logits.expand(count, -1), rows)
    return Counter(sampled.token_ids[0] for sampled in samples)


def transformers_probabilities(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """What transformers would draw from: the same steps in the same order."""
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    steps = LogitsProcessorList([TemperatureLogitsWarper(params.temperature)])
    if params.top_k:
        steps.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        steps.append(TopPLogitsWarper(params.top_p))
    if params.min_p > 0.0:
        steps.append(MinPLogitsWarper(params.min_p))
    result: torch.Tensor = steps(torch.zeros((1, 1), dtype=torch.int64), logits).softmax(-1)
    return result[0]


FILTERS = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.6),
    SamplingParams(temperature=1.5, top_k=7),
    SamplingParams(temperature=1.0, top_p=0.8),
    SamplingParams(temperature=1.0, top_k=10, top_p=0.7),
    SamplingParams(temperature=1.2, min_p=0.1),
    SamplingParams(temperature=1.3, top_k=30, top_p=0.95, min_p=0.02),
]


@pytest.mark.parametrize("params", FILTERS, ids=lambda p: f"{p.temperature} {p.top_k} {p.top_p}")
def test_frequencies_are_those_that_transformers_would_draw_from(params: SamplingParams) -> None:
    logits = logits_of()
    expected = transformers_probabilities(logits, params)
    count = 6_000
    seen = draw(logits, params, count)
    assert all(expected[token] > 0 for token in seen), "a token outside the filter was drawn"
    # Chi-square over tokens with at least five expected draws, the rest in one class.
    large = [i for i in range(VOCAB) if expected[i] * count >= 5]
    wanted = [float(expected[i]) * count for i in large]
    terms = [(seen[i] - want) ** 2 / want for i, want in zip(large, wanted, strict=True)]
    freedom = max(1, len(large) - 1)
    assert sum(terms) < freedom + 6 * math.sqrt(2 * freedom)


def test_repetition_penalty_is_that_of_transformers() -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    for seed in range(20):
        logits = logits_of(seed=seed)
        history = random.Random(seed).choices(range(VOCAB), k=80)
        wanted = RepetitionPenaltyLogitsProcessor(1.8)(torch.tensor([history]), logits)
        params = SamplingParams(temperature=0.0, repetition_penalty=1.8)
        sampled = sample(logits, [row(params, prompt=history[:50], output=history[50:])])
        assert sampled[0].token_ids == (int(wanted.argmax()),)


def test_presence_and_frequency_count_the_output_only() -> None:
    logits = torch.zeros(1, 8)
    logits[0, :4] = torch.tensor([5.0, 4.5, 4.0, 3.0])
    presence = SamplingParams(temperature=0.0, presence_penalty=0.7)
    frequency = SamplingParams(temperature=0.0, frequency_penalty=0.4)

    def best(params: SamplingParams, output: Sequence[int]) -> int:
        return sample(logits, [row(params, prompt=[0, 0, 1], output=output)])[0].token_ids[0]

    assert best(presence, []) == 0
    assert best(presence, [0]) == 1
    assert best(presence, [0, 0, 0, 0, 1]) == 0  # 4.3 against 3.8 and 4.0
    assert best(frequency, [0]) == 0  # 4.6 against 4.5
    assert best(frequency, [0, 0]) == 1  # 4.2 against 4.5
    assert best(frequency, [0, 0, 0, 1, 1]) == 2  # 3.8 and 3.7 against 4.0


def test_greedy_takes_the_first_of_equals() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
    assert sample(logits, [row(GREEDY)])[0].token_ids == (1,)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    logits = logits_of(6, seed=2)
    params = [*FILTERS[:5], GREEDY]
    rows = [row(p, seed=i, name=str(i)) for i, p in enumerate(params)]
    together = sample(logits, rows)
    backwards = sample(logits.flip(0), rows[::-1])[::-1]
    alone = [sample(logits[i : i + 1], [rows[i]])[0] for i in range(6)]
    assert together == backwards == alone


def test_same_seed_and_index_draw_the_same_token() -> None:
    logits = logits_of(spread=0.1)
    params = SamplingParams(temperature=1.0)
    first = sample(logits, [row(params, seed=2**64 - 1, output=[5, 6])])
    again = sample(logits, [row(params, seed=2**64 - 1, prompt=[9], output=[7, 8])])
    assert first == again
    others = {
        sample(logits, [row(params, seed=7, output=[0] * index)])[0].token_ids
        for index in range(20)
    }
    assert len(others) > 10


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, top_k=1, top_p=0.8),
        SamplingParams(temperature=1.0, top_p=0.0),
        SamplingParams(temperature=1.0, min_p=1.0),
        SamplingParams(temperature=1e-6),
        SamplingParams(temperature=100.0, top_k=1),
    ],
)
def test_filters_that_leave_the_best_token(params: SamplingParams) -> None:
    logits = logits_of()
    assert draw(logits, params, 50) == {int(logits.argmax()): 50}


def test_tokens_at_minus_infinity_are_never_drawn() -> None:
    logits = torch.full((1, VOCAB), float("-inf"))
    logits[0, [3, 9]] = 0.0
    for params in FILTERS[:4]:
        assert set(draw(logits, params, 200)) <= {3, 9}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=1.0, top_p=0.9)])
def test_a_row_that_is_not_finite_fails_alone(params: SamplingParams, value: float) -> None:
    logits = logits_of(3)
    clean = sample(logits, [row(params, name=str(i)) for i in range(3)])
    logits[1, 17] = value
    samples = sample(logits, [row(params, name=str(i)) for i in range(3)])
    assert samples[1].token_ids == ()
    assert samples[1].request_id == "1"
    assert "not finite" in samples[1].error
    assert [samples[0], samples[2]] == [clean[0], clean[2]]


def test_a_row_without_any_token_fails_alone() -> None:
    logits = logits_of(2)
    logits[0] = float("-inf")
    samples = sample(logits, [row(GREEDY), row(GREEDY)])
    assert samples[0].error
    assert samples[1].token_ids == (int(logits[1].argmax()),)


def test_logprobs_are_those_of_the_raw_logits() -> None:
    logits = logits_of(2)
    params = SamplingParams(temperature=0.3, top_k=2, repetition_penalty=1.5, logprobs=0)
    for index, sampled in enumerate(sample(logits, [row(params), row(params, seed=4)])):
        expected = logits[index].log_softmax(-1)[sampled.token_ids[0]]
        assert sampled.logprobs == pytest.approx((float(expected),), abs=1e-5)
    assert sample(logits[:1], [row(GREEDY)])[0].logprobs == ()


def test_likeliest_tokens_are_those_of_the_raw_logits() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(4))
    params = SamplingParams(temperature=0.9, top_k=1, presence_penalty=9.0, logprobs=3)
    (sampled,) = sample(logits, [row(params)])
    best = logits[0].log_softmax(-1).topk(3)
    (top,) = sampled.top_logprobs
    assert [token for token, _ in top] == best.indices.tolist()
    assert [value for _, value in top] == pytest.approx(best.values.tolist(), abs=1e-5)
    (few,) = sample(logits[:, :2], [row(params)])[0].top_logprobs
    assert len(few) == 2


def test_logits_are_left_as_they_were() -> None:
    logits = logits_of(2)
    before = logits.clone()
    params = SamplingParams(
        temperature=0.5, top_p=0.5, repetition_penalty=2.0, presence_penalty=1.0
    )
    sample(logits, [row(params, output=[4]), row(GREEDY)])
    assert torch.equal(logits, before)


def test_top_p_over_many_tokens() -> None:
    """More tokens than the first look takes: a flat distribution of 5,000."""
    logits = torch.zeros(1, 5000)
    logits[0, :10] = 1e-3
    params = SamplingParams(temperature=1.0, top_p=0.5)
    # Equal scores stay together, so the whole flat part is kept.
    assert len(draw(logits, params, 300)) > 250
    logits = torch.linspace(0.0, 1e-3, 5000)[None]
    assert min(draw(logits, params, 300)) >= 2499
