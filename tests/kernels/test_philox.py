"""Philox4x32-10 against published vectors, and the noise that is made of it."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.reference.gumbel import gumbel_argmax, gumbel_noise, upper_bytes
from kernels.reference.philox import philox4x32

# Known answers published with the generator (Random123, kat_vectors): counter, key, result.
VECTORS = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def noise(seed: int, index: int, tokens: torch.Tensor) -> torch.Tensor:
    return gumbel_noise(torch.full_like(tokens, seed), torch.full_like(tokens, index), tokens)


def call(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    c0, c1, c2, c3 = torch.tensor(counter)
    k0, k1 = torch.tensor(key)
    return tuple(int(word) for word in philox4x32((c0, c1, c2, c3), (k0, k1)))


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert call(counter, key) == expected


def test_elements_are_independent() -> None:
    c0, c1, c2, c3 = torch.tensor([vector[0] for vector in VECTORS]).unbind(1)
    k0, k1 = torch.tensor([vector[1] for vector in VECTORS]).unbind(1)
    words = torch.stack(philox4x32((c0, c1, c2, c3), (k0, k1)), 1).tolist()
    assert [tuple(row) for row in words] == [vector[2] for vector in VECTORS]


def test_words_broadcast() -> None:
    low, high = torch.arange(5), torch.arange(3)[:, None]
    zero = torch.tensor(0)
    words = philox4x32((low, zero, high, zero), (high + 7, zero))
    assert words[0].shape == (3, 5)
    got = tuple(int(word[2, 4]) for word in words)
    assert got == call((4, 0, 2, 0), (9, 0))


def test_noise_does_not_depend_on_which_tokens_are_asked_for() -> None:
    tokens = torch.arange(1000)
    whole = noise(7, 3, tokens)
    some = torch.tensor([999, 4, 5, 17])
    assert torch.equal(noise(7, 3, some), whole[some])


def test_noise_changes_with_seed_and_index() -> None:
    tokens = torch.arange(64)
    base = noise(7, 3, tokens)
    for seed, index in ((8, 3), (7, 4), (7 + 2**32, 3), (-7, 3), (7, 3 + 2**32)):
        assert not bool((noise(seed, index, tokens) == base).any()), (seed, index)


def test_noise_has_the_moments_of_a_gumbel_distribution() -> None:
    values = noise(12345, 0, torch.arange(400_000))
    # Standard errors: 0.002 of the mean, 0.004 of the variance.
    assert abs(float(values.mean()) - 0.5772156649) < 0.01
    assert abs(float(values.var()) - math.pi**2 / 6) < 0.03
    assert bool(values.isfinite().all())


def test_noise_follows_its_definition() -> None:
    """Byte t mod 16 of one call, word 0 of another: written out for one token."""
    seed, index, token = 0x0123456789ABCDEF, 2**32 + 5, 37
    key = (0x89ABCDEF, 0x01234567)
    upper = b"".join(word.to_bytes(4, "little") for word in call((2, 0, 5, 1), key))[5]
    lower = call((37, 1, 5, 1), key)[0]
    uniform = (upper * 2**32 + lower + 0.5) / 2**40
    expected = -math.log(-math.log(uniform))
    assert float(noise(seed, index, torch.tensor([token]))) == pytest.approx(expected, rel=1e-12)
    row = upper_bytes(torch.tensor([seed]), torch.tensor([index]), 40)
    assert row.shape == (1, 40)
    assert int(row[0, token]) == upper


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 5.0, 30.0])
def test_argmax_is_that_of_all_scores_and_all_noise(spread: float) -> None:
    """What is ruled out by the upper bits could not have won."""
    rows, vocab = 40, 1003
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(rows, vocab, generator=generator) * spread
    scores[:, ::7] = -torch.inf
    scores -= scores.amax(-1, keepdim=True)
    seeds, places = torch.arange(rows) - 20, torch.arange(rows) * 3
    expected = [
        int((row.double() + noise(int(seed), int(place), torch.arange(vocab))).argmax())
        for row, seed, place in zip(scores, seeds, places, strict=True)
    ]
    assert gumbel_argmax(scores, seeds, places) == expected


def test_one_token_left_is_drawn() -> None:
    scores = torch.full((3, 50), -torch.inf)
    scores[range(3), [0, 17, 49]] = 0.0
    assert gumbel_argmax(scores, torch.arange(3), torch.arange(3)) == [0, 17, 49]
