"""Draws on two levels: the noise by its definition, the tokens by their distribution."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernels.reference import gumbel
from kernels.reference.gumbel import GROUP, GROUPS, TOKENS, draw_tokens, gumbel_noise
from kernels.reference.philox import philox4x32
from kernels.reference.sample import RowParameters, draw, pack, sample


def noise(seed: int, index: int, places: Tensor, domain: int = TOKENS) -> Tensor:
    return gumbel_noise(torch.tensor(seed), torch.tensor(index), places, domain)


def p_value(drawn: list[int], probabilities: Tensor) -> float:
    """Of a chi-square test of the tokens, or of one of their groups where that is smaller."""
    found = torch.bincount(torch.tensor(drawn), minlength=len(probabilities)).double()
    assert not bool(found[probabilities == 0].any())
    expected = probabilities.double() * len(drawn)
    groups = torch.arange(len(expected)) // GROUP
    zeros = torch.zeros(int(groups.max()) + 1, dtype=torch.float64)
    of_groups = (zeros.index_add(0, groups, counts) for counts in (found, expected))
    return min(_chi_square(found, expected), _chi_square(*of_groups))


def _chi_square(found: Tensor, expected: Tensor) -> float:
    """What is expected fewer than ten times counts as one."""
    rare = expected < 10.0
    found = torch.cat((found[~rare], found[rare].sum()[None]))
    expected = torch.cat((expected[~rare], expected[rare].sum()[None]))
    found, expected = found[expected > 0], expected[expected > 0]
    statistic = ((found - expected) ** 2 / expected).sum()
    freedom = torch.tensor((len(expected) - 1) / 2.0, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2.0))


def scores_of(rows: int, vocab: int, spread: float) -> Tensor:
    scores = torch.randn(rows, vocab) * spread
    return scores - scores.amax(-1, keepdim=True)


@pytest.mark.parametrize(("place", "domain"), [(37, TOKENS), (37, GROUPS), (2**31 + 5, TOKENS)])
def test_noise_follows_its_definition(place: int, domain: int) -> None:
    seed, index = 0x0123456789ABCDEF, 2**32 + 5
    counter = tuple(torch.tensor([place, domain, 5, 1]))
    words = [
        int(word) for word in philox4x32(counter, tuple(torch.tensor([0x89ABCDEF, 0x1234567])))
    ]
    bits = words[0] * 2**20 + words[1] // 2**12
    uniform = (bits + 0.5) / 2**52
    expected = -math.log(-math.log(uniform))
    assert float(noise(seed, index, torch.tensor(place), domain)) == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize(("word", "expected"), [(0, -3.6), (0xFFFFFFFF, 36.74)])
def test_the_ends_of_the_noise_are_finite(
    word: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gumbel, "philox4x32", lambda counter, key: (counter[0] * 0 + word,) * 4)
    assert float(noise(1, 2, torch.tensor(3))) == pytest.approx(expected, abs=0.01)


def test_tensors_and_arrays_have_the_same_bits() -> None:
    """On the CPU NumPy computes them, on a GPU torch."""
    seed, index, place = (
        torch.tensor([[-5], [2**40]]),
        torch.tensor([[3], [2**33]]),
        torch.arange(9),
    )
    arrays = gumbel._bits(seed.numpy(), index.numpy(), place.numpy(), GROUPS)
    assert gumbel._bits(seed, index, place, GROUPS).tolist() == arrays.tolist()


def test_noise_does_not_depend_on_which_places_are_asked_for() -> None:
    whole = noise(7, 3, torch.arange(1000))
    some = torch.tensor([999, 4, 5, 17])
    assert torch.equal(noise(7, 3, some), whole[some])


def test_noise_changes_with_seed_index_and_domain() -> None:
    places = torch.arange(64)
    base = noise(7, 3, places)
    for seed, index in ((8, 3), (7, 4), (7 + 2**32, 3), (-7, 3), (7, 3 + 2**32)):
        assert not bool((noise(seed, index, places) == base).any()), (seed, index)
    assert not bool((noise(7, 3, places, GROUPS) == base).any())


@pytest.mark.parametrize("domain", [TOKENS, GROUPS])
def test_noise_has_the_moments_of_a_gumbel_distribution(domain: int) -> None:
    values = noise(12345, 0, torch.arange(400_000), domain)
    # Standard errors: 0.002 of the mean, 0.004 of the variance.
    assert abs(float(values.mean()) - 0.5772156649) < 0.01
    assert abs(float(values.var()) - math.pi**2 / 6) < 0.03
    assert bool(values.isfinite().all())


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("vocab", [5, GROUP, 3 * GROUP + 19])
def test_group_then_token(spread: float, vocab: int) -> None:
    """Written out, a group at a time."""
    rows = 40
    scores = scores_of(rows, vocab, spread)
    scores[:, 1::7] = -torch.inf
    seeds, places = torch.arange(rows) - 20, torch.arange(rows) * 3
    expected = []
    for row, seed, place in zip(scores, seeds.tolist(), places.tolist(), strict=True):
        groups = row.double().split(GROUP)
        weights = torch.stack([group.logsumexp(0) for group in groups])
        group = int((weights + noise(seed, place, torch.arange(len(groups)), GROUPS)).argmax())
        tokens = group * GROUP + torch.arange(len(groups[group]))
        expected.append(int(tokens[(groups[group] + noise(seed, place, tokens)).argmax()]))
    assert draw_tokens(scores, seeds, places) == expected


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_tokens_are_drawn_by_their_softmax(spread: float) -> None:
    draws = 20_000
    scores = scores_of(1, 2 * GROUP + 61, spread)
    drawn = draw_tokens(scores.expand(draws, -1), torch.arange(draws), torch.full((draws,), 3))
    assert p_value(drawn, scores[0].double().softmax(0)) > 1e-3


def test_tokens_of_one_answer_are_drawn_by_their_softmax() -> None:
    """One seed, place after place."""
    draws = 20_000
    scores = scores_of(1, 3 * GROUP, 2.0)
    drawn = draw_tokens(scores.expand(draws, -1), torch.full((draws,), 11), torch.arange(draws))
    assert p_value(drawn, scores[0].double().softmax(0)) > 1e-3


@pytest.mark.parametrize(
    ("choices", "kept"),
    [({"top_k": 40}, 40), ({"min_p": 0.02}, None), ({"top_p": 0.8, "temperature": 1.3}, None)],
    ids=str,
)
def test_what_filters_leave_is_drawn_by_its_softmax(
    choices: dict[str, float], kept: int | None
) -> None:
    draws = 10_000
    logits = torch.randn(1, 2 * GROUP + 61)
    temperature = choices.get("temperature", 1.0)
    ordered = (logits[0] / temperature).double().sort(descending=True)
    weights = ordered.values.softmax(0)
    if kept is None and "top_p" in choices:
        kept = int((weights.cumsum(0) < choices["top_p"]).sum()) + 1
    elif kept is None:
        kept = int((weights >= choices["min_p"] * weights[0]).sum())
    probabilities = torch.zeros(logits.shape[1], dtype=torch.float64)
    left = ordered.indices[:kept]
    probabilities[left] = weights[:kept] / weights[:kept].sum()
    rows = [RowParameters(seed, 5, **choices) for seed in range(draws)]  # type: ignore[arg-type]
    drawn = draw(logits.expand(draws, -1), logits.amax(-1).expand(draws), rows)
    assert p_value(drawn, probabilities) > 1e-3


def test_a_shift_of_probability_is_found() -> None:
    """What the tests above would say to draws from a slightly other distribution."""
    probabilities = scores_of(1, 300, 1.0)[0].softmax(0)
    shifted = probabilities.clone()
    shifted[:GROUP] *= 1.2
    drawn = torch.multinomial(shifted, 20_000, replacement=True).tolist()
    assert p_value(drawn, probabilities) < 1e-4


def test_one_token_left_is_drawn() -> None:
    scores = torch.full((4, 2 * GROUP + 3), -torch.inf)
    chosen = [0, 17, GROUP, 2 * GROUP + 2]
    scores[range(4), chosen] = 0.0
    assert draw_tokens(scores, torch.arange(4), torch.arange(4)) == chosen


def test_the_first_of_equals_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def silence(seed: Tensor, output_index: Tensor, place: Tensor, domain: int) -> Tensor:
        return (seed * output_index * place * 0).double()

    monkeypatch.setattr(gumbel, "gumbel_noise", silence)
    scores = torch.full((1, 3 * GROUP), -torch.inf)
    scores[0, [GROUP + 4, GROUP + 9, 2 * GROUP, 2 * GROUP + 1]] = 0.0
    zero = torch.zeros(1, dtype=torch.int64)
    assert draw_tokens(scores, zero, zero) == [GROUP + 4]


@pytest.mark.parametrize("temperature", [1e-3, 100.0])
def test_small_and_large_temperatures(temperature: float) -> None:
    rows, vocab = 5_000, 2 * GROUP + 61
    logits = torch.randn(1, vocab).expand(rows, -1)
    parameters = [RowParameters(seed, 0, temperature) for seed in range(rows)]
    drawn = sample(logits, torch.from_numpy(pack(parameters))).tokens
    if temperature < 1.0:
        assert bool((drawn == logits[0].argmax()).all())
    else:
        assert p_value(drawn.tolist(), (logits[0] / temperature).softmax(0)) > 1e-3
